"""The writes that bring pools of vGPUs to their request. Pure.

Pools are served in the order of their creation, and each takes what the ones before it left. A pool changes only
devices with its own label, and free ones that it takes. It never touches a vGPU that was enabled without it, and
disables no device that a VM uses or may use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from aliquot.core.model.vgpu_types import VgpuType
from aliquot.errors import Message
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds.harvester import MigConfiguration, VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import CONFIGURED, SKIP_MIG_ANNOTATION
from aliquot.kubernetes.kinds.vgpu_pools import POOL_FINALIZER, POOL_LABEL, VGPUPool, VGPUPoolStatus
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, parent_gpu_name
from aliquot.kubernetes.virtual_machines.harvester.admission.vgpu_pools import explain_unknown_type
from aliquot.kubernetes.virtual_machines.harvester.conditions import ConditionStatus, condition
from aliquot.kubernetes.virtual_machines.harvester.object_draft import merge_patch, plain
from aliquot.kubernetes.virtual_machines.harvester.reasons import ObjectVerdict, join_names
from aliquot.kubernetes.virtual_machines.pools.gpu_room import PoolRoom, gpu_room
from aliquot.kubernetes.virtual_machines.pools.pool_view import PoolView, leaves

JSON = dict[str, Any]


class PoolChange(msgspec.Struct, frozen=True):
    """A merge patch of an object. ``status`` True patches only the status."""

    kind: type[KubeObject]
    name: str
    body: JSON
    why: str
    status: bool = False

    @property
    def withdraws(self) -> bool:
        """True if it takes a vGPU away."""
        return self.kind is VGPUDevice and self.body.get("spec", {}).get("enabled") is False


def decide_pools(pools: Iterable[VGPUPool], snapshot: AdmissionSnapshot, now: float) -> tuple[PoolChange, ...]:
    """Return the writes that all pools need now. ``now`` is wall time in seconds."""
    found = sorted(pools, key=lambda each: (each.metadata.creation_timestamp or "", each.name))
    plan = _Plan(PoolView(snapshot, now), frozenset(pool.name for pool in found))
    changes: list[PoolChange] = []
    for pool in found:
        round_ = _PoolRound(pool, plan)
        changes += round_.deletion() if pool.metadata.deletion_timestamp is not None else round_.reconcile()
    return tuple(changes)


class _Plan:
    """The plan of a round, to which each pool adds."""

    def __init__(self, view: PoolView, pools: frozenset[str]) -> None:
        self.view, self.pools = view, pools
        self.taken: set[str] = set()
        self._types: dict[str, list[str]] = {}

    def types_on(self, gpu: str) -> list[str]:
        """Return the types of the vGPUs that a GPU has or will have. A pool adds its own."""
        if gpu not in self._types:
            self._types[gpu] = self.view.occupying_types(gpu)
        return self._types[gpu]

    def room(self, gpu: str, type_name: str) -> PoolRoom:
        """Return the room of a GPU beside what is planned."""
        return gpu_room(self.view, self.view.snapshot.gpus[gpu], type_name, self.types_on(gpu))

    def may_take(self, device: VGPUDevice, pool: str) -> bool:
        """Report whether a device is free for a pool: no other one has it."""
        owner = device.metadata.labels.get(POOL_LABEL, pool)
        return device.name not in self.taken and (owner == pool or owner not in self.pools)

    def drop(self, device: VGPUDevice) -> None:
        """Count a vGPU no more that this round disables."""
        self.types_on(parent_gpu_name(device)).remove(device.spec.type_name)
        self.view.note_disabled(device)


class _PoolRound:
    """A round for one pool."""

    def __init__(self, pool: VGPUPool, plan: _Plan) -> None:
        self._pool, self._plan, self._view = pool, plan, plan.view
        self._mine = self._view.devices_in(pool.name)
        self._type = pool.spec.type_name
        self._place = frozenset(_gpus_of_place(pool, self._view.snapshot))
        self._changes: list[PoolChange] = []
        self._awaited: list[str] = []

    def deletion(self) -> list[PoolChange]:
        """Disable what no VM uses, leave the rest to their VMs, and let the pool go."""
        for device in self._mine:
            self._let_go(
                device, disable=device.spec.enabled and self._holder(device) is None, why="its pool is deleted"
            )
        kept = [name for name in self._pool.metadata.finalizers if name != POOL_FINALIZER]
        if not self._mine and len(kept) < len(self._pool.metadata.finalizers):
            self._patch(self._pool, {"metadata": {"finalizers": kept}}, "it has no device any more")
        return self._changes

    def reconcile(self) -> list[PoolChange]:
        """Change the number, the type and the place of its devices to those of the request."""
        if POOL_FINALIZER not in self._pool.metadata.finalizers:
            finalizers = [*self._pool.metadata.finalizers, POOL_FINALIZER]
            self._patch(self._pool, {"metadata": {"finalizers": finalizers}}, "it is new")
        good, held, off = self._sort_out()
        surplus = len(good) + len(held) - self._pool.spec.count
        good = self._shrink(good, surplus) if surplus > 0 else good
        lacking = max(0, -surplus)
        coming = sum(self._enable_again(device) for device in off[:lacking])
        more, reasons = self._grow(lacking - coming) if lacking > coming else (0, [])
        coming += more
        for device in off:
            if device.name not in self._plan.taken:
                self._let_go(device, disable=False, why="it was disabled, and its pool has others")
        self._report(good, held, lacking, coming, reasons)
        return self._changes

    def _sort_out(self) -> tuple[list[VGPUDevice], list[VGPUDevice], list[VGPUDevice]]:
        """Return its devices of the right type and place, wrong ones that VMs hold, and disabled ones.

        Disable the other wrong ones.
        """
        good: list[VGPUDevice] = []
        held: list[VGPUDevice] = []
        off: list[VGPUDevice] = []
        for device in self._mine:
            fits = device.spec.type_name == self._type and parent_gpu_name(device) in self._place
            if not device.spec.enabled:
                off.append(device)
            elif fits:
                good.append(device)
            elif self._holder(device) is not None:
                held.append(device)
            else:
                self._let_go(device, disable=True, why="its pool requests another type or place")
        return good, held, off

    def _shrink(self, good: list[VGPUDevice], surplus: int) -> list[VGPUDevice]:
        """Disable devices that no VM uses: first those of GPUs where the pool has the fewest."""
        counts = [parent_gpu_name(device) for device in good]
        order = sorted(good, key=lambda d: (-counts.count(parent_gpu_name(d)), d.name), reverse=True)
        leaving = [device for device in order if self._holder(device) is None][:surplus]
        for device in leaving:
            self._let_go(device, disable=True, why="its pool has more than it requests")
        return [device for device in good if device not in leaving]

    def _grow(self, lacking: int) -> tuple[int, list[str]]:
        """Enable devices, and GPUs where devices are missing. Return how many vGPUs are to come, and why not more."""
        coming, reasons = 0, []
        for name in sorted(self._place, key=self._preference()):
            if coming >= lacking:
                break
            room = self._plan.room(name, self._type)
            if room.room:
                coming += self._take(room, min(lacking - coming, room.room))
            else:
                reasons.append(f"{name} {room.why}")
        return coming, reasons

    def _enable_again(self, device: VGPUDevice) -> bool:
        """Enable a device that was disabled without the pool. Return False if it has no place any more."""
        gpu = parent_gpu_name(device)
        if gpu not in self._place or device.status.configured not in ("", self._type):
            return False
        if not device.status.configured or leaves(device):
            room = self._plan.room(gpu, self._type)
            if not room.room or room.enable:
                return False
            self._plan.types_on(gpu).append(self._type)
        self._enable(device)
        return True

    def _preference(self) -> Callable[[str], tuple[bool, bool, bool, str]]:
        """Prefer GPUs that have the pool's vGPUs already, then any vGPUs, then any functions."""
        mine, gpus = {parent_gpu_name(device) for device in self._mine}, self._view.snapshot.gpus
        return lambda gpu: (gpu not in mine, not self._plan.types_on(gpu), not gpus[gpu].spec.enabled, gpu)

    def _take(self, room: PoolRoom, count: int) -> int:
        """Request ``count`` vGPUs on a GPU. Return the number that can come."""
        gpu, wanted = room.gpu, room.type
        assert wanted is not None
        if room.enable or room.skip_mig:
            self._enable_gpu(room)
        elif room.layout is not None and count > room.inside:
            count = self._take_with_instances(room, room.layout, wanted, count)
        else:
            taken = self._take_devices(room, count)
            if room.awaited and taken < count:
                self._awaited.append(f"{gpu.name} {room.awaited}")
            else:
                count = taken
        self._plan.types_on(gpu.name).extend([wanted.name] * count)
        return count

    def _take_devices(self, room: PoolRoom, count: int) -> int:
        """Enable free devices, first those that the pool had. Return their number."""
        free = [device for device in room.free if self._plan.may_take(device, self._pool.name)]
        free = sorted(free, key=lambda device: device not in self._mine)[:count]
        for device in free:
            self._enable(device)
        return len(free)

    def _take_with_instances(self, room: PoolRoom, layout: MigConfiguration, wanted: VgpuType, count: int) -> int:
        """Enable devices in the present GPU instances, and request instances for the rest, one pool in each round."""
        self._take_devices(room, room.inside)
        if layout.name in self._plan.taken:
            return room.inside
        self._plan.taken.add(layout.name)
        self._request_instances(layout, wanted.profile, -(-(count - room.inside) // max(1, wanted.per_instance)))
        return count

    def _enable_gpu(self, room: PoolRoom) -> None:
        body: JSON = {"spec": {"enabled": True}}
        if room.skip_mig:
            body["metadata"] = {"annotations": {SKIP_MIG_ANNOTATION: "true"}}
        self._patch(room.gpu, body, f"pool {self._pool.name} needs vGPUs of it")

    def _request_instances(self, layout: MigConfiguration, profile: str, count: int) -> None:
        before = {row.id: row.requested for row in layout.spec.profile_spec} if layout.spec.enabled else {}
        # The status has all profiles; a user's merge patch may have dropped some from the spec.
        requested = [
            {
                "id": row.id,
                "name": row.name,
                "requested": before.get(row.id, 0) + count * (row.name.removeprefix("MIG ") == profile),
            }
            for row in layout.status.profile_status
        ]
        body = {"spec": {"enabled": True, "profileSpec": requested}}
        self._patch(layout, body, f"pool {self._pool.name} needs {count} x {profile}")

    def _enable(self, device: VGPUDevice) -> None:
        self._plan.taken.add(device.name)
        body = {
            "metadata": {"labels": {POOL_LABEL: self._pool.name}},
            "spec": {"enabled": True, "vGPUTypeName": self._type},
        }
        self._patch(device, body, f"pool {self._pool.name} needs {self._type}")

    def _let_go(self, device: VGPUDevice, *, disable: bool, why: str) -> None:
        body: JSON = {"metadata": {"labels": {POOL_LABEL: None}}}
        if disable:
            self._plan.drop(device)
            body["spec"] = {"enabled": False, "vGPUTypeName": ""}
        self._patch(device, body, why)

    def _holder(self, device: VGPUDevice) -> str | None:
        found = self._view.users.describe(device.name)
        return None if found is None else found.sentence

    def _patch(self, target: KubeObject, body: JSON, why: str) -> None:
        version = {"resourceVersion": target.metadata.resource_version}
        body = {**body, "metadata": {**body.get("metadata", {}), **version}}
        self._changes.append(PoolChange(type(target), target.name, body, why))

    def _report(
        self, good: list[VGPUDevice], held: list[VGPUDevice], lacking: int, coming: int, reasons: list[str]
    ) -> None:
        ready = [d for d in good if d.status.state == CONFIGURED and d.status.configured == self._type]
        holders = [found for found in map(self._holder, (*good, *held)) if found]
        state, why = self._condition(good, held, ready, lacking - coming, reasons, holders)
        before = self._pool.status
        status = VGPUPoolStatus(
            conditions=(condition(before.conditions, "Ready", state, why, self._view.now),),
            observed_generation=self._pool.metadata.generation,
            ready=len(ready),
            in_use=len(holders),
            devices=tuple(device.name for device in (*good, *held)),
        )
        if patch := merge_patch(plain(before), plain(status)):
            self._changes.append(PoolChange(VGPUPool, self._pool.name, {"status": patch}, why.reason, status=True))

    def _condition(
        self,
        good: list[VGPUDevice],
        held: list[VGPUDevice],
        ready: list[VGPUDevice],
        short: int,
        reasons: list[str],
        holders: list[str],
    ) -> tuple[ConditionStatus, ObjectVerdict]:
        count = self._pool.spec.count
        if short > 0 and (unknown := explain_unknown_type(self._type)):
            return "False", ObjectVerdict("UnknownType", unknown, f"kubectl edit vgpupool {self._pool.name}")
        if short > 0:
            why_not, step = _missing_place(self._pool, self._view.snapshot)
            why_not = why_not or join_names(reasons, 4) or "no GPU of this place has the type"
            text = f"{count - short} of {count} vGPUs of type {self._type} fit: {why_not}"
            return "False", ObjectVerdict("Insufficient", text, step)
        if held or len(good) > count:
            return "False", ObjectVerdict("Held", f"vGPUs that should go are in use: {join_names(holders, 3)}")
        if len(ready) < count:
            why, step = self._pending_reason(good)
            return "False", ObjectVerdict("Pending", f"{len(ready)} of {count} vGPUs exist{why}", step)
        return "True", ObjectVerdict("Configured", f"{count} vGPUs of type {self._type} exist")

    def _pending_reason(self, good: list[VGPUDevice]) -> tuple[str, str]:
        """Return what keeps vGPUs from existing, as the end of a sentence, and the next command."""
        for device in good:
            if failure := _failure(device):
                reported = Message.parse(failure)
                step = reported.next_step or f"kubectl describe vgpudevice {device.name}"
                return f": {device.name}: {reported.sentence}", step
        why = f": {join_names(self._awaited, 3)}" if self._awaited else ""
        return why, f"kubectl wait vgpupool/{self._pool.name} --for condition=Ready"


def _missing_place(pool: VGPUPool, snapshot: AdmissionSnapshot) -> tuple[str, str]:
    """Return what a pool's place lacks altogether ("" if nothing), and the command that shows what there is."""
    spec = pool.spec
    if spec.node_name and spec.node_name not in snapshot.nodes:
        return f"node {spec.node_name} does not exist", "kubectl get nodes"
    if spec.gpu and spec.gpu not in snapshot.gpus:
        return f"SRIOVGPUDevice {spec.gpu} does not exist", "kubectl get sriovgpudevices"
    return "", "aliquot capacity"


def _failure(device: VGPUDevice) -> str:
    """Return what the agent says about a device that it cannot bring to its request."""
    ready = next((c for c in device.status.conditions if c.type == "Ready"), None)
    return ready.message if ready is not None and ready.status == "False" and ready.reason != "Pending" else ""


def _gpus_of_place(pool: VGPUPool, snapshot: AdmissionSnapshot) -> Iterator[str]:
    """Yield the names of the GPUs on which a pool may have vGPUs."""
    spec = pool.spec
    for name, gpu in snapshot.gpus.items():
        node = snapshot.nodes.get(gpu.spec.node_name)
        labels = node.metadata.labels if node is not None else {}
        here = (not spec.gpu or name == spec.gpu) and (not spec.node_name or gpu.spec.node_name == spec.node_name)
        if here and all(labels.get(key) == value for key, value in spec.node_selector.items()):
            yield name
