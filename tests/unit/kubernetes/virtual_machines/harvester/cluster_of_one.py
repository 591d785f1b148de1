"""A simulated node and its objects in this process: the work of the devices agent without an API server.

``Store`` keeps objects as JSON and applies changes as an API server does (merge patches, generations, finalizers).
``One`` observes, writes outdated objects, executes one request, and observes again.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec

from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ExecutionContext
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.peripherals import Peripherals
from aliquot.core.planner.plan import plan
from aliquot.errors import AliquotError
from aliquot.hardware.kernel.bus_scan import scan
from aliquot.hardware.kernel.function_binding import bind_function, release_function
from aliquot.hardware.kernel.network_ports import scan_ports, set_functions
from aliquot.hardware.kernel.pci_ids import pci_names
from aliquot.hardware.kernel.usb_scan import scan_usb
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds.harvester_names import object_name
from aliquot.kubernetes.kinds.harvester_peripherals import ALL_KINDS
from aliquot.kubernetes.virtual_machines.agent.retry_state import error_result
from aliquot.kubernetes.virtual_machines.harvester.gpu_intents import digest, intents
from aliquot.kubernetes.virtual_machines.harvester.node_view import Intent, NodeView, ObjectChange, Objects, Result
from aliquot.kubernetes.virtual_machines.harvester.object_changes import changes
from aliquot.kubernetes.virtual_machines.harvester.other_functions import FunctionBinding, bindings
from aliquot.kubernetes.virtual_machines.harvester.peripherals.network_devices import requests
from aliquot.kubernetes.virtual_machines.harvester.reasons import blocker_verdict
from support.simnodes import Node
from unit.core.engine.memory import CountingClock, MemoryJournal, NoLock, OneByOne, Recorder

JSON = dict[str, Any]
NOW = 1_700_000_000.0
PLURALS = {
    "SRIOVGPUDevice": "gpus",
    "VGPUDevice": "vgpus",
    "MigConfiguration": "migs",
    "PCIDevice": "functions",
    "PCIDeviceClaim": "claims",
    "USBDevice": "usb",
    "USBDeviceClaim": "usb_claims",
    "SRIOVNetworkDevice": "network",
}
NAMES = pci_names((str(Path(__file__).with_name("other_vendors.ids")),))


def merged(value: Any, patch: Any) -> Any:
    """Return a value after a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    out = dict(value) if isinstance(value, dict) else {}
    for name, each in patch.items():
        if each is None:
            out.pop(name, None)
        else:
            out[name] = merged(out.get(name), each)
    return out


class Store:
    """The objects of one node. ``written`` are all changes that the store accepted."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], JSON] = {}
        self.written: list[ObjectChange] = []
        self._uid = 0
        self._kinds: dict[str, type[KubeObject]] = {kind.TYPE.kind: kind for kind in ALL_KINDS}

    def get(self, kind: str, name: str) -> JSON:
        return self.objects[kind, name]

    def of(self, kind: str) -> dict[str, JSON]:
        return {name: body for (of, name), body in sorted(self.objects.items()) if of == kind}

    def create(self, kind: str, body: JSON) -> None:
        name = body["metadata"]["name"]
        assert (kind, name) not in self.objects, f"{kind} {name} exists"
        self._uid += 1
        meta = {**body["metadata"], "uid": f"uid-{self._uid}", "generation": 1, "resourceVersion": f"{self._uid}"}
        self.objects[kind, name] = {**body, "metadata": meta}
        self.objects[kind, name].pop("status", None)  # a subresource: the server drops it

    def patch(self, kind: str, name: str, patch: JSON) -> None:
        """Apply a patch as ``kubectl patch --type merge`` does."""
        before = self.objects[kind, name]
        after = merged(before, {k: v for k, v in patch.items() if k != "status"})
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] += 1
        self._keep(kind, name, after)

    def delete(self, kind: str, name: str) -> None:
        body = self.objects[kind, name]
        if body["metadata"].get("finalizers"):
            body["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
        else:
            del self.objects[kind, name]

    def apply(self, change: ObjectChange) -> None:
        self.written.append(change)
        if change.verb == "create":
            assert change.body["metadata"]["name"] == change.name
            self.create(change.kind, change.body)
        elif change.verb == "delete":
            assert change.uid == self.get(change.kind, change.name)["metadata"]["uid"]
            self.delete(change.kind, change.name)
        elif change.verb == "status":
            assert set(change.body) == {"status"}
            self._keep(change.kind, change.name, merged(self.get(change.kind, change.name), change.body))
        else:
            assert set(change.body) <= {"metadata", "spec"}
            self.patch(change.kind, change.name, change.body)

    def _keep(self, kind: str, name: str, body: JSON) -> None:
        if body["metadata"].get("deletionTimestamp") and not body["metadata"].get("finalizers"):
            del self.objects[kind, name]
        else:
            self.objects[kind, name] = body

    def typed(self) -> Objects:
        stores: dict[str, dict[str, Any]] = {plural: {} for plural in PLURALS.values()}
        for (kind, name), body in self.objects.items():
            stores[PLURALS[kind]][name] = msgspec.convert(body, self._kinds[kind])
        return Objects(**stores)


class Tweaked(Node):
    """A simulated node whose first GPU has a given address, with the UUID of a real one if that matters."""

    def __init__(self, template: str, directory: str, address: str | None) -> None:
        super().__init__(template, directory=directory)
        if address is not None:
            self.backend.memory.node.gpus[0].state.pci = address
            self.backend.memory.node.files_changed()
            self.backend.renumber()


class One:
    """A node with its objects. ``blind`` is the reason why no driver answers, or "" if one does. With ``all_devices``
    the agent serves the functions of all vendors, with ``peripherals`` USB devices and network ports.
    """

    def __init__(
        self,
        template: str,
        directory: Path,
        name: str = "node",
        address: str | None = None,
        *,
        all_devices: bool = False,
        peripherals: bool = False,
    ) -> None:
        self.serves_peripherals = peripherals
        self.name = name
        self.all_devices = all_devices
        self.node_addresses: tuple[str, ...] = ()
        self.node = Tweaked(template, str(directory), address)
        self.store = Store()
        self.results: dict[str, Result] = {}
        self.blind = ""
        self.now = NOW
        self.allocated: dict[str, str] = {}
        self.kubelet_error = ""

    # -- the agent's actions

    def view(self) -> NodeView:
        inventory: Inventory | None = None if self.blind else self.node.whole.read()
        return NodeView(
            node=self.name,
            boot=self.node.boot(),
            now=self.now,
            functions=scan(self.node.files, NAMES, everything=self.all_devices),
            all_devices=self.all_devices,
            inventory=inventory,
            reason="DriverPodNotReady" if self.blind else "",
            driver_error=self.blind,
            peripherals=self._peripherals() if self.serves_peripherals else None,
            allocated=dict(self.allocated),
            kubelet_error=self.kubelet_error,
        )

    def _peripherals(self) -> Peripherals:
        files, addresses = self.node.files, self.node_addresses
        return Peripherals(scan_usb(files, NAMES, addresses), scan_ports(files, addresses))

    def publish(self) -> int:
        """Write until all objects are current. Return the number of changes."""
        count = 0
        for _ in range(6):
            view, objects = self.view(), self.store.typed()
            found = changes(view, objects, self.results)
            if not found:
                return count
            count += len(found)
            for change in found:
                self.store.apply(change)
        raise AssertionError(f"never true: {found}")

    def intents(self) -> tuple[Intent, ...]:
        return intents(self.view(), self.store.typed())

    def act(self) -> bool:
        """Execute every request that needs a change. Return whether there was one."""
        done = False
        for intent in self.intents():
            if intent.desired is not None:
                done = self._execute(intent) or done
        for binding in bindings(self.view(), self.store.typed()):
            done = self._bind(binding) or done
        return done

    def _bind(self, binding: FunctionBinding) -> bool:
        try:
            if binding.on:
                bind_function(self.node.files, CountingClock(), binding.address, self.node_addresses)
            else:
                release_function(self.node.files, binding.address, binding.driver)
        except AliquotError as error:
            self.results[binding.address] = error_result(error, binding.digest)
            return False
        self.results.pop(binding.address, None)
        return True

    def set_functions(self) -> bool:
        """Set the requested numbers of virtual functions of network ports. Return whether anything changed."""
        changed = False
        for each in requests(self.view(), self.store.typed()):
            try:
                set_functions(self.node.files, each.address, each.count)
                changed = True
            except AliquotError as error:
                self.results[each.address] = Result(each.digest, False, "HardwareRefused", error.brief)
        return changed

    def _execute(self, intent: Intent) -> bool:
        assert intent.desired is not None
        made = plan(self.node.whole.read(), Desired((intent.desired,)))
        if made.blockers:
            why = blocker_verdict(made.blockers[0])
            self.results[intent.pci] = Result(digest(intent), False, why.reason, why.message)
            return False
        if not made.actions:
            self.results[intent.pci] = Result(digest(intent), True, "Applied")
            return False
        ports = ExecutionContext(
            self.node.whole, self.node.backend, MemoryJournal(), CountingClock(), NoLock(), OneByOne(), Recorder()
        )
        try:
            outcome = apply(made, ports, lambda line: None)
        except AliquotError as error:
            self.results[intent.pci] = Result(digest(intent), False, "HardwareRefused", error.brief)
            return False
        if outcome.error is not None:
            self.results[intent.pci] = Result(digest(intent), False, "HardwareRefused", outcome.error.brief)
            return False
        return True

    def settle(self) -> One:
        """Run rounds until there is nothing to write and nothing to do."""
        for _ in range(8):
            wrote, did = self.publish(), self.act()
            did = self.set_functions() or did
            if not wrote and not did:
                return self
        raise AssertionError("it does not come to rest")

    # -- actions of users and of the host

    def kubectl(self, kind: str, name: str, **spec: object) -> One:
        """Run ``kubectl patch KIND NAME --type merge`` with some fields of the spec, then the agent's rounds."""
        self.store.patch(kind, name, {"spec": spec})
        return self.settle()

    def mark(self, kind: str, name: str, key: str, value: str | None) -> One:
        """Run ``kubectl annotate``."""
        self.store.patch(kind, name, {"metadata": {"annotations": {key: value}}})
        return self.settle()

    def control(self, do: str, **facts: object) -> JSON:
        code, text = self.node.backend.memory.control(do, **facts)
        assert code == 0, text
        if do == "reboot":
            self.node.backend.memory.link = self.node.backend.memory.open(100)
            self.node.backend.renumber()
        return msgspec.json.decode(text) if text else {}

    def reboot(self, number: int = 2) -> One:
        self.control("reboot", boot_id=f"boot-{number}")
        return self

    def make_by_hand(self, address: str, type_id: int, uuid: str = "") -> None:
        """Create a vGPU as a user does with echo: an mdev, or a type written to the function."""
        folder = f"/sys/bus/pci/devices/{address}"
        if uuid:
            self.node.files.write(f"{folder}/mdev_supported_types/nvidia-{type_id}/create", f"{uuid}\n")
        else:
            self.node.files.write(f"{folder}/nvidia/current_vgpu_type", f"{type_id}\n")

    def functions_by_hand(self, on: bool) -> None:
        """Run ``sriov-manage`` as a user does."""
        memory = self.node.backend.memory
        memory.link.close()  # the driver releases a GPU only if no process has NVML open
        reported = self.control("sriov-manage", action="-e" if on else "-d", address="ALL")
        memory.link = memory.open(100)
        assert reported["rc"] == 0, reported

    def instance_by_hand(self, profile: int, start: int, size: int, gpu: int = 0) -> int:
        """Run ``nvidia-smi mig -cgi ID:START -C``, without the compute instance."""
        made = self.node.backend.memory.create(profile, (start, size), gpu)
        assert made > 0, f"refused with {-made}"
        return made

    def destroy_by_hand(self, address: str, instance: int) -> None:
        self.control("destroy", gpu=address, instance=str(instance))

    def start_vm(self, *devices: str) -> None:
        self.control("vm-start", name="guest", devices=list(devices))

    def stop_vm(self) -> None:
        self.control("vm-stop", name="guest")

    # -- the visible state

    def name_of(self, address: str) -> str:
        return object_name(self.name, address)

    def device(self, address: str) -> JSON:
        return self.store.get("SRIOVGPUDevice", self.name_of(address))

    def vgpu(self, address: str) -> JSON:
        return self.store.get("VGPUDevice", self.name_of(address))

    def mig(self, address: str) -> JSON:
        return self.store.get("MigConfiguration", self.name_of(address))

    def live(self) -> dict[str, str]:
        """Return the types of existing vGPUs by virtual function."""
        return {v.function: v.type for g in self.node.whole.read().gpus for v in g.vgpus}

    def instances(self) -> list[str]:
        return [f"{i.profile}@{i.place.start}" for g in self.node.whole.read().gpus for i in g.instances]


def ready(body: JSON, kind: str = "Ready") -> tuple[str, str]:
    """Return the status and the reason of a condition."""
    found = next(c for c in body["status"]["conditions"] if c["type"] == kind)
    return found["status"], found["reason"]


def message(body: JSON) -> str:
    return str(next(c for c in body["status"]["conditions"] if c["type"] == "Ready")["message"])


def shown(body: JSON) -> JSON:
    """Return an object as the original shows it: without our fields, and without values that differ between servers."""
    ours = ("conditions", "observedGeneration", "appliedBoot", "differences")
    meta = {k: v for k, v in body["metadata"].items() if k in ("name", "labels", "ownerReferences")}
    status = {k: v for k, v in body.get("status", {}).items() if k not in ours}
    return {**body, "metadata": meta, "status": status}
