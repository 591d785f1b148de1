"""A model of pcidevices 1.8 on one node with vendor-specific VFIO, as far as it concerns GPUs. It acts on the same
objects and the same simulated hardware as our agent.

Facts are from harvester/pcidevices bdd8025: pkg/controller/nodes, pcidevice, gpudevice, and pkg/util/gpuhelper. Its
writes know only its own fields, so that ours vanish.
"""

from __future__ import annotations

from typing import Any

from aliquot.kubernetes.kinds import harvester_names as names
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON, One

CONFIGURED = names.CONFIGURED


class Pcidevices:
    """The controller. ``run`` is its node loop with the handlers that the loop's writes wake."""

    def __init__(self, one: One, gpu: str) -> None:
        self.one, self.gpu = one, gpu
        self.name = one.name_of(gpu)

    def run(self) -> None:
        """Run until nothing changes."""
        for _ in range(6):
            before = repr(self.one.store.objects) + repr(self.one.live())
            self._functions()
            self._gpu()
            self._vgpus()
            if before == repr(self.one.store.objects) + repr(self.one.live()):
                return
        raise AssertionError("pcidevices does not come to rest")

    def _virtual(self) -> list[str]:
        return next(list(f.virtual) for f in self.one.view().functions if f.address == self.gpu)

    def _functions(self) -> None:
        """Create a PCIDevice for each function, and delete those whose function is gone."""
        here = {self.one.name_of(address): address for address in (self.gpu, *self._virtual())}
        for name, address in here.items():
            if name not in self.one.store.of("PCIDevice"):
                self._create("PCIDevice", name, {}, {"address": address, "nodeName": self.one.name})
        for name in set(self.one.store.of("PCIDevice")) - set(here):
            self.one.store.delete("PCIDevice", name)

    def _gpu(self) -> None:
        """Create the SRIOVGPUDevice with what the hardware has, or bring the hardware to what it requests."""
        enabled = bool(self._virtual())
        if self.name not in self.one.store.of("SRIOVGPUDevice"):
            spec = {"address": self.gpu, "nodeName": self.one.name, "enabled": enabled}
            self._create("SRIOVGPUDevice", self.name, spec, {})
        wanted = self.one.device(self.gpu)["spec"]["enabled"]
        if wanted != enabled:
            self.one.functions_by_hand(wanted)
        functions = sorted(self._virtual())
        status = {"vfAddresses": functions, "vGPUDevices": [self.one.name_of(f) for f in functions]}
        self.one.device(self.gpu)["status"] = status if functions else {}

    def _vgpus(self) -> None:
        functions = self._virtual()
        for address in functions:
            name, status = self.one.name_of(address), self._seen(address)
            if name not in self.one.store.of("VGPUDevice"):
                spec = {"address": address, "nodeName": self.one.name, "enabled": False, "vGPUTypeName": ""}
                self._create("VGPUDevice", name, {**spec, "parentGPUDeviceAddress": self.gpu}, {})
            self._vgpu(address, self.one.vgpu(address), status)
        gone = [n for n, body in self.one.store.of("VGPUDevice").items() if body["spec"]["address"] not in functions]
        if not self.one.device(self.gpu)["spec"]["enabled"]:
            for name in gone:
                self.one.store.delete("VGPUDevice", name)

    def _vgpu(self, address: str, body: JSON, status: JSON) -> None:
        known = {k: v for k, v in body.get("status", {}).items() if k == "configureVGPUTypeName"}
        spec, types = body["spec"], status.get("availableTypes", {})
        if spec["enabled"] and "vGPUStatus" not in status and spec["vGPUTypeName"] in types:
            self._claim(address, body)
            self._write(address, types[spec["vGPUTypeName"]])
            known = {"configureVGPUTypeName": spec["vGPUTypeName"]}
        elif not spec["enabled"] and "vGPUStatus" in status:
            if self.one.name_of(address) in self.one.store.of("PCIDeviceClaim"):
                self._release(self.one.name_of(address))
            self._write(address, "0")
            known = {}
        body["status"] = self._seen(address) | known

    def _seen(self, address: str) -> JSON:
        folder = f"/sys/bus/pci/devices/{address}/nvidia"
        current = self.one.node.files.read(f"{folder}/current_vgpu_type").strip()
        lines = self.one.node.files.read(f"{folder}/creatable_vgpu_types").splitlines()
        pairs = [tuple(part.strip() for part in line.split(":")) for line in lines if line.count(":") == 1]
        status: JSON = {"availableTypes": {name: number for number, name in pairs if number.isdigit()}}
        return status | ({"vGPUStatus": CONFIGURED, "uuid": current} if current not in ("", "0") else {})

    def _write(self, address: str, number: str) -> None:
        self.one.node.files.write(f"/sys/bus/pci/devices/{address}/nvidia/current_vgpu_type", f"{number}\n")

    def _claim(self, address: str, vgpu: JSON) -> None:
        name = self.one.name_of(address)
        if name in self.one.store.of("PCIDeviceClaim"):
            return
        resource = "nvidia.com/" + vgpu["spec"]["vGPUTypeName"].replace(" ", "_")
        owners = [self._owner("PCIDevice", name), self._owner("VGPUDevice", name)]
        notes = {names.SKIP_BINDING_ANNOTATION: "true", names.RESOURCE_ANNOTATION: resource}
        spec = {"address": address, "nodeName": self.one.name, "userName": "admin"}
        self._create(
            "PCIDeviceClaim", name, spec, {"passthroughEnabled": True}, ownerReferences=owners, annotations=notes
        )

    def _owner(self, kind: str, name: str) -> JSON:
        uid = self.one.store.get(kind, name)["metadata"]["uid"]
        return {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": kind, "name": name, "uid": uid}

    def _release(self, name: str) -> None:
        """Delete a claim. Its finalizer is its own controller's, which has nothing to undo."""
        self.one.store.get("PCIDeviceClaim", name)["metadata"].pop("finalizers", None)
        self.one.store.delete("PCIDeviceClaim", name)

    def _create(self, kind: str, name: str, spec: JSON, status: JSON, **meta: Any) -> None:
        labels = {names.NODE_LABEL: self.one.name}
        if kind == "VGPUDevice":
            labels[names.PARENT_LABEL] = self.name
        head = {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": kind}
        self.one.store.create(kind, {**head, "metadata": {"name": name, "labels": labels, **meta}, "spec": spec})
        self.one.store.get(kind, name)["status"] = status
