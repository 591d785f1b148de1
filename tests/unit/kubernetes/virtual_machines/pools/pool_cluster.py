"""Simulated nodes with their agents, pools and VMs in one process, without an API server."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.kinds.harvester_names import ALLOCATION_ANNOTATION
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.kinds.vgpu_pools import POOL_LABEL, VGPUPool
from aliquot.kubernetes.kinds.vm_claims import VmClaim
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.node_view import ObjectChange
from aliquot.kubernetes.virtual_machines.harvester.object_changes import changes
from aliquot.kubernetes.virtual_machines.pools.agent_watch import ANSWER_S, AgentWatch
from aliquot.kubernetes.virtual_machines.pools.pool_decision import decide_pools
from aliquot.kubernetes.virtual_machines.pools.pool_plan import PoolChange
from support.admissions import entry, instance, machine, resource_claim
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON, NOW, One, merged

FOUR_Q, EIGHT_Q = "NVIDIA A2-4Q", "NVIDIA A2-8Q"


class Cluster:
    """Simulated nodes with their agents' work, the pools, and VMs that hold devices."""

    def __init__(self, directory: Path, **templates: str) -> None:
        self.nodes: dict[str, One] = {}
        for name, template in templates.items():
            (directory / name).mkdir()
            self.nodes[name] = One(template, directory / name, name).settle()
        self.labels: dict[str, dict[str, str]] = {name: {} for name in templates}
        self.annotations = {name: {DEVICES_ANNOTATION: '{"state":"idle","reason":"Working"}'} for name in templates}
        self.cordoned: set[str] = set()
        self.unregistered: set[str] = set()
        """The nodes that are not registered now, although their objects exist."""
        self.pools: dict[str, JSON] = {}
        self.held: dict[str, tuple[str, str]] = {}
        """The VM of each device that is in use, and the resource; "" if it has the device by a ResourceClaim."""
        self.passed: list[JSON] = []
        """ResourceClaims besides those of ``held``."""
        self.born = 0
        self.now = NOW
        self.dead: set[str] = set()
        """The nodes whose agents do not run."""
        self.agents = AgentWatch()

    def pool(self, name: str, type_name: str = FOUR_Q, count: int = 4, **place: Any) -> None:
        self.born += 1
        meta = {
            "name": name,
            "generation": 1,
            "creationTimestamp": f"2026-01-01T00:00:{self.born:02}Z",
            "finalizers": [],
        }
        spec = {"vGPUTypeName": type_name, "count": count, **place}
        self.pools[name] = {"metadata": meta, "spec": spec, "status": {}}

    def delete(self, name: str) -> None:
        self.pools[name]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"

    def run_vm(self, device: str) -> None:
        """Let a VM hold a device by name."""
        node = next(name for name, one in self.nodes.items() if device in one.store.of("VGPUDevice"))
        type_name = self.nodes[node].store.get("VGPUDevice", device)["spec"]["vGPUTypeName"]
        self.held[device] = (f"vm-{device}", "nvidia.com/" + type_name.replace(" ", "_"))

    def run_claiming_vm(self, device: str) -> None:
        """Let a VM hold a device by a ResourceClaim."""
        self.held[device] = (f"vm-{device}", "")

    def snapshot(self) -> AdmissionSnapshot:
        found: dict[str, dict[str, Any]] = {"gpus": {}, "vgpus": {}, "migs": {}, "functions": {}, "claims": {}}
        for one in self.nodes.values():
            objects = one.store.typed()
            for field, items in found.items():
                items.update(getattr(objects, field))
        nodes = {
            name: msgspec.convert(
                {
                    "metadata": {"name": name, "labels": self.labels[name], "annotations": self.annotations[name]},
                    "spec": {"unschedulable": name in self.cordoned},
                },
                Node,
            )
            for name in self.nodes.keys() - self.unregistered
        }
        vms, running = {}, {}
        claims = list(self.passed)
        for device, (vm, resource) in self.held.items():
            node = next(name for name, one in self.nodes.items() if device in one.store.of("VGPUDevice"))
            if not resource:
                vms["default", vm] = msgspec.convert(machine(vm), VirtualMachine)
                running["default", vm] = msgspec.convert(instance(vm, node), VirtualMachineInstance)
                claims.append(self._claim(device, vm, node))
                continue
            body = machine(vm, entry(device, resource))
            allocation = json.dumps({"gpus": {resource: [device]}})
            body = merged(body, {"metadata": {"annotations": {ALLOCATION_ANNOTATION: allocation}}})
            vms["default", vm] = msgspec.convert(body, VirtualMachine)
            running["default", vm] = msgspec.convert(
                instance(vm, node, entry(device, resource)), VirtualMachineInstance
            )
        held = {each.key: each for each in msgspec.convert(claims, list[VmClaim])}
        return AdmissionSnapshot(nodes=nodes, vms=vms, instances=running, resource_claims=held, **found)  # type: ignore[arg-type]

    def _claim(self, device: str, vm: str, node: str) -> JSON:
        """Build the claim of a VM. Its driver reports an mdev by its UUID, and another vGPU by its function."""
        body = self.device(device)
        uuid, address = body["status"].get("uuid", ""), body["spec"]["address"]
        data = {"uuid": uuid} if "-" in uuid else {"function": address}
        return resource_claim(f"{vm}-gpu", f"virt-launcher-{vm}-x7k2p", node=node, **data)

    def settle(self) -> Cluster:
        """Run controller and agents until nothing is left to do."""
        for _ in range(12):
            if not self._round():
                return self
        raise AssertionError("it does not come to rest")

    def wait(self) -> Cluster:
        """Let more time pass than an agent may take to answer."""
        self.now += ANSWER_S + 1
        return self.settle()

    def watch_every_write(self) -> Cluster:
        """Let the controller decide after each single write of an agent, as a slow agent would."""
        for one in self.nodes.values():
            self._watch(one)
        return self

    def _watch(self, one: One) -> None:
        apply = one.store.apply

        def followed(change: ObjectChange) -> None:
            apply(change)
            self.decide()

        one.store.apply = followed  # type: ignore[method-assign]

    def decide(self) -> bool:
        """Run one round of the controller. Return whether it wrote anything."""
        planned = self.plan()
        self.write(planned)
        return bool(planned)

    def plan(self) -> list[tuple[PoolChange, JSON]]:
        """Return what the controller would write now, each with the object that it read."""
        pools = [msgspec.convert(body, VGPUPool) for body in self.pools.values()]
        snapshot = self.snapshot()
        found = decide_pools(pools, snapshot, self.now, self.agents.silent_nodes(snapshot, self.now))
        return [(change, copy.deepcopy(self._read(change))) for change in found]

    def write(self, planned: list[tuple[PoolChange, JSON]]) -> None:
        """Write as the API server allows: what changed since it was read is a conflict."""
        for change, before in planned:
            if change.status or self._read(change) == before:
                self._apply(change.kind.TYPE.kind, change.name, change.body)

    def _read(self, change: PoolChange) -> JSON:
        if change.kind is VGPUPool:
            return self.pools.get(change.name, {})
        kind = change.kind.TYPE.kind
        return next((one.store.of(kind)[change.name] for one in self._nodes_with(kind, change.name)), {})

    def _nodes_with(self, kind: str, name: str) -> Iterator[One]:
        return (one for one in self.nodes.values() if name in one.store.of(kind))

    def _round(self) -> bool:
        wrote = self.decide()
        self.decide()
        return self.work() or wrote

    def work(self) -> bool:
        """Let the agents work that run. Return whether they wrote anything."""
        wrote = False
        for name, one in self.nodes.items():
            if name not in self.dead:
                before = len(one.store.written)
                one.settle()
                wrote |= len(one.store.written) > before
        return wrote

    def _apply(self, kind: str, name: str, body: JSON) -> None:
        body = {part: value for part, value in body.items() if value}
        if kind == "VGPUPool" and name not in self.pools:
            return
        if kind == "VGPUPool":
            self.pools[name] = merged(self.pools[name], body)
            meta = self.pools[name]["metadata"]
            if meta.get("deletionTimestamp") and not meta["finalizers"]:
                del self.pools[name]
            return
        one = next(self._nodes_with(kind, name))
        body.get("metadata", {}).pop("resourceVersion", None)
        one.store.patch(kind, name, body)

    # -- the visible state

    def types(self) -> dict[str, Counter[str]]:
        """Return the existing vGPUs by node."""
        return {name: Counter(one.live().values()) for name, one in self.nodes.items() if one.live()}

    def ready(self, name: str) -> tuple[str, str]:
        (found,) = self.pools[name]["status"]["conditions"]
        return found["status"], found["reason"]

    def message(self, name: str) -> str:
        (found,) = self.pools[name]["status"]["conditions"]
        return str(found["message"])

    def gpu(self, node: str) -> JSON:
        """Return the SRIOVGPUDevice of a node with one GPU."""
        (found,) = self.nodes[node].store.of("SRIOVGPUDevice").values()
        return found

    def device(self, name: str) -> JSON:
        """Return a VGPUDevice of any node."""
        return next(found[name] for one in self.nodes.values() if name in (found := one.store.of("VGPUDevice")))

    def answers(self, node: str) -> list[ObjectChange]:
        """Return what the agent of a node would write now about its VGPUDevices."""
        one = self.nodes[node]
        found = changes(one.view(), one.store.typed(), one.results)
        return [change for change in found if change.kind == "VGPUDevice"]

    def enabled(self, name: str) -> list[str]:
        """Return the enabled devices with the label of a pool."""
        devices = [body for one in self.nodes.values() for body in one.store.of("VGPUDevice").values()]
        return [
            body["metadata"]["name"]
            for body in devices
            if body["metadata"]["labels"].get(POOL_LABEL) == name and body["spec"]["enabled"]
        ]

    def devices(self, name: str) -> list[str]:
        return list(self.pools[name]["status"].get("devices", ()))
