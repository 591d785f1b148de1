"""A cluster of 100 nodes with vGPUs and 1,000 virtual machines that have them, with the real controller."""

from __future__ import annotations

import http.client
import os
import ssl
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds

JSON = dict[str, Any]
NODES, MACHINES, CARDS, FUNCTIONS, MOST = 100, 1000, 3, 16, 4
"""Each node has three A2s of 16 functions, four of which carry a vGPU; only the last node's last A2 is empty."""
LAST = f"node-{NODES - 1:03}"
TYPE = "NVIDIA A2-4Q"
RESOURCE = names.vgpu_resource(TYPE)
_HARVESTER, _KUBEVIRT = "devices.harvesterhci.io", "kubevirt.io"


def addresses(index: int) -> tuple[str, list[str]]:
    """Return a GPU's PCI address, and those of its virtual functions in the order of their numbers."""
    bus = f"0000:{index + 1:02x}"
    return f"{bus}:00.0", [f"{bus}:{n // 8:02x}.{n % 8}" for n in range(4, 4 + FUNCTIONS)]


def objects() -> Iterator[tuple[str, JSON]]:
    """Yield every object of the cluster with the name of its kind (``plural.group``)."""
    for number in range(NODES):
        node = f"node-{number:03}"
        yield "nodes.", _node(node)
        for product in range(CARDS):
            empty = node == LAST and product == CARDS - 1
            yield from _card(node, *addresses(product), 0 if empty else MOST)
    for number in range(MACHINES):
        yield from _machine(f"vm-{number:04}", f"node-{number % NODES:03}")


def machine(name: str, *resources: str) -> JSON:
    """Return a virtual machine that is to run, as a user writes it."""
    rows = [{"name": f"gpu{n}", "deviceName": each} for n, each in enumerate(resources)]
    inside = {"domain": {"devices": {"gpus": rows}, "memory": {"guest": "8Gi"}}}
    spec = {"runStrategy": "Always", "template": {"metadata": {"labels": {"a": "b"}}, "spec": inside}}
    return _object(_KUBEVIRT, "v1", "VirtualMachine", name, spec, namespace="default")


def vgpu(node: str, address: str, pf: str, *, enabled: bool, uid: str) -> JSON:
    spec = {"address": address, "nodeName": node, "parentGPUDeviceAddress": pf, "enabled": enabled}
    spec |= {"vGPUTypeName": TYPE if enabled else ""}
    status: JSON = {"availableTypes": {} if enabled else {TYPE: "nvidia-746"}}
    if enabled:
        status |= {"configureVGPUTypeName": TYPE, "uuid": uid, "vGPUStatus": names.CONFIGURED}
    labels = {names.NODE_LABEL: node, names.PARENT_LABEL: names.object_name(node, pf)}
    named = names.object_name(node, address)
    return _object(_HARVESTER, "v1beta1", "VGPUDevice", named, spec, status, labels=labels)


def _node(name: str) -> JSON:
    count = str((CARDS - (name == LAST)) * MOST)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is"}
    status = {"capacity": {RESOURCE: count}, "allocatable": {RESOURCE: count}, "conditions": [ready]}
    labels = {f"example.com/label-{n}": f"{name}-{n}" for n in range(20)} | {"kubernetes.io/hostname": name}
    return _object("", "v1", "Node", name, {}, status, labels=labels)


def _card(node: str, pf: str, functions: list[str], carrying: int) -> Iterator[tuple[str, JSON]]:
    mine = [names.object_name(node, each) for each in functions]
    spec = {"address": pf, "nodeName": node, "enabled": True}
    status = {"vfAddresses": functions, "vGPUDevices": mine}
    own = _object(_HARVESTER, "v1beta1", "SRIOVGPUDevice", names.object_name(node, pf), spec, status)
    yield f"sriovgpudevices.{_HARVESTER}", own
    for number, address in enumerate([pf, *functions]):
        reported = {"address": address, "nodeName": node, "vendorId": "10de", "deviceId": "25b6", "classId": "0302"}
        reported |= {"iommuGroup": str(number), "resourceName": "nvidia.com/GA107GL_A2"}
        labels = {names.NODE_LABEL: node}
        named = names.object_name(node, address)
        yield (
            f"pcidevices.{_HARVESTER}",
            _object(_HARVESTER, "v1beta1", "PCIDevice", named, {}, reported, labels=labels),
        )
    for number, address in enumerate(functions):
        uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{node}{address}"))
        yield f"vgpudevices.{_HARVESTER}", vgpu(node, address, pf, enabled=number < carrying, uid=uid)


def _machine(name: str, node: str) -> Iterator[tuple[str, JSON]]:
    one = machine(name, RESOURCE)
    given = {"gpus": {RESOURCE: [names.object_name(node, "0000:01:00.4")]}, "hostdevices": {}}
    one["metadata"]["annotations"] = {names.ALLOCATION_ANNOTATION: msgspec.json.encode(given).decode()}
    one["status"] = {"created": True, "ready": True, "printableStatus": "Running"}
    yield f"virtualmachines.{_KUBEVIRT}", one
    spec, status = one["spec"]["template"]["spec"], {"phase": "Running", "nodeName": node}
    run = _object(_KUBEVIRT, "v1", "VirtualMachineInstance", name, spec, status, namespace="default")
    yield f"virtualmachineinstances.{_KUBEVIRT}", run


def _object(
    group: str, version: str, kind: str, name: str, spec: JSON, status: JSON | None = None, **meta: object
) -> JSON:
    uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{kind}/{name}"))
    own = {"name": name, "uid": uid, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", **meta}
    found = {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind, "metadata": own, "spec": spec}
    return found | ({"status": status} if status is not None else {})


class ApiUser:
    """The controller's HTTPS port, over one connection that stays open, as the API server keeps it."""

    def __init__(self, port: int, authority: Path) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        self._line = http.client.HTTPSConnection("localhost", port, timeout=60, context=context)

    def ask(self, path: str, body: bytes | None = None) -> bytes:
        self._line.request("GET" if body is None else "POST", path, body)
        answer = self._line.getresponse()
        text = answer.read()
        assert answer.status == 200, f"{path}: {answer.status} {text[:500]!r}"
        return text

    def close(self) -> None:
        self._line.close()


class Site:
    """The cluster and its controller."""

    def __init__(self, folder: Path) -> None:
        from support.cluster import StandinCluster
        from support.kubevirt.players import VmCluster
        from system.harvester.controllerprocess import ControllerProcess
        from system.kubernetes.agent_rights import NS, ROOT, manifests

        self._cluster = StandinCluster(folder)
        self._cluster.apply(crds.definitions())
        mediated = {"mdevNameSelector": TYPE, "resourceName": RESOURCE, "externalResourceProvider": True}
        VmCluster(self._cluster).install({"mediatedDevices": [mediated]})
        hooks = "WebhookConfiguration"
        folders = manifests(ROOT / "kubernetes-machines")
        self._cluster.namespace(NS)
        self._cluster.apply([each for each in folders if not each["kind"].endswith(hooks)])
        for bucket, each in objects():
            self._cluster.standin.store.put(bucket, each)
        self.controller = ControllerProcess(self._cluster, folder)
        self._authority = folder / "certificates" / "ca.crt"

    def start(self) -> int:
        """Start the controller, and return its pid as soon as it answers."""
        self.controller.start()
        assert self.controller.process is not None
        return self.controller.process.pid

    def user(self) -> ApiUser:
        return ApiUser(self.controller.port, self._authority)

    def listed(self) -> None:
        """Read what in-use checks read, to measure the API server's part of them."""
        for plural in ("virtualmachines", "virtualmachineinstances"):
            self._cluster.must("GET", f"/apis/{_KUBEVIRT}/v1/{plural}")

    def close(self) -> None:
        self.controller.close()
        self._cluster.close()


def review(resource: str, group: str, old: JSON | None, new: JSON | None) -> bytes:
    """Build an admission review as the API server sends it."""
    some: Mapping[str, Any] = new or old or {}
    operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
    version = "v1beta1" if group == _HARVESTER else "v1"
    request = {
        "uid": os.urandom(8).hex(),
        "kind": {"group": group, "version": version, "kind": some["kind"]},
        "resource": {"group": group, "version": version, "resource": resource},
        "name": some["metadata"]["name"],
        "namespace": some["metadata"].get("namespace", ""),
        "operation": operation,
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": new,
        "oldObject": old,
        "dryRun": False,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


@contextmanager
def site() -> Iterator[Site]:
    """Run the cluster until the context ends, without starting the controller."""
    with TemporaryDirectory(prefix="aliquot-bench-") as folder:
        found = Site(Path(folder))
        try:
            yield found
        finally:
            found.close()
