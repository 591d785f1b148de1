"""The writes for one pool in a round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from aliquot.core.model.vgpu_types import VgpuType
from aliquot.errors import Message
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds.harvester import MigConfiguration, VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import CONFIGURED, SKIP_MIG_ANNOTATION
from aliquot.kubernetes.kinds.vgpu_pools import POOL_FINALIZER, POOL_LABEL, VGPUPool, VGPUPoolStatus
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, parent_gpu_name
from aliquot.kubernetes.virtual_machines.harvester.conditions import condition
from aliquot.kubernetes.virtual_machines.harvester.object_draft import merge_patch, plain
from aliquot.kubernetes.virtual_machines.pools.agent_watch import is_unobserved
from aliquot.kubernetes.virtual_machines.pools.gpu_room import PoolRoom
from aliquot.kubernetes.virtual_machines.pools.pool_condition import PoolProgress, pool_condition, selects
from aliquot.kubernetes.virtual_machines.pools.pool_layouts import request_instances, requests_profile
from aliquot.kubernetes.virtual_machines.pools.pool_plan import JSON, PoolChange, PoolPlan, change
from aliquot.kubernetes.virtual_machines.pools.pool_view import leaves


class _Sorted(NamedTuple):
    """The devices of a pool."""

    good: list[VGPUDevice]
    """Of the right type and place."""
    held: list[VGPUDevice]
    """Wrong ones that VMs hold."""
    off: list[VGPUDevice]
    """Disabled ones."""
    unanswered: list[VGPUDevice]
    """Right ones without a vGPU, whose agent does not answer."""


class PoolRound:
    """A round for one pool."""

    def __init__(self, pool: VGPUPool, plan: PoolPlan) -> None:
        self._pool, self._plan, self._view = pool, plan, plan.view
        self._mine = self._view.devices_in(pool.name)
        self._type = pool.spec.type_name
        self._place = frozenset(_gpus_of_place(pool, self._view.snapshot))
        self._changes: list[PoolChange] = []
        self._awaited: list[str] = []

    @property
    def deleted(self) -> bool:
        return self._pool.metadata.deletion_timestamp is not None

    def deletion(self) -> list[PoolChange]:
        """Disable what no VM uses, and leave the rest to their VMs."""
        for device in self._mine:
            self._let_go(
                device, disable=device.spec.enabled and self._holder(device) is None, why="its pool is deleted"
            )
        return self._changes

    def release(self) -> Iterator[PoolChange]:
        """Yield the write that lets a deleted pool go, once it has no device."""
        kept = [name for name in self._pool.metadata.finalizers if name != POOL_FINALIZER]
        if not self._mine and len(kept) < len(self._pool.metadata.finalizers):
            yield change(self._pool, {"metadata": {"finalizers": kept}}, "it has no device any more")

    def reconcile(self) -> list[PoolChange]:
        """Change the number, the type and the place of its devices to those of the request."""
        if POOL_FINALIZER not in self._pool.metadata.finalizers:
            finalizers = [*self._pool.metadata.finalizers, POOL_FINALIZER]
            self._patch(self._pool, {"metadata": {"finalizers": finalizers}}, "it is new")
        mine = self._sort_out()
        surplus = len(mine.good) + len(mine.held) - self._pool.spec.count
        good = self._shrink(mine.good, surplus) if surplus > 0 else mine.good
        lacking = max(0, -surplus)
        coming = sum(self._enable_again(device) for device in mine.off[:lacking])
        more, reasons = self._grow(lacking - coming) if lacking > coming else (0, [])
        short = lacking - coming - more
        for device in mine.off:
            if device.name not in self._plan.taken:
                self._let_go(device, disable=False, why="it was disabled, and its pool has others")
        self._withdraw(mine.unanswered, keep=short)
        self._report(
            PoolProgress(
                good=good,
                held=mine.held,
                ready=sum(self._exists(device) for device in good),
                short=short,
                reasons=reasons,
                awaited=self._awaited,
                holders=[found for found in map(self._holder, (*good, *mine.held)) if found],
                blocking=[found for found in map(self._holder, mine.held) if found],
            )
        )
        return self._changes

    def _sort_out(self) -> _Sorted:
        """Sort its devices. Disable those of a wrong type or place that no VM holds."""
        found = _Sorted([], [], [], [])
        for device in self._mine:
            fits = device.spec.type_name == self._type and parent_gpu_name(device) in self._place
            if not device.spec.enabled:
                found.off.append(device)
            elif fits and device.spec.node_name in self._view.silent and not self._exists(device):
                found.unanswered.append(device)
            elif fits:
                found.good.append(device)
            elif self._holder(device) is not None:
                found.held.append(device)
            else:
                self._let_go(device, disable=True, why="its pool requests another type or place")
        return found

    def _withdraw(self, unanswered: list[VGPUDevice], keep: int) -> None:
        """Withdraw requests on silent nodes, except those of VMs and as many as find no other place.

        What the agent has seen it may have created: this request stays, so that the vGPU belongs to it. If there are
        too many when the agent is back, idle ones go.
        """
        unseen = [device for device in unanswered if is_unobserved(device) and self._holder(device) is None]
        for device in unseen[max(0, keep - (len(unanswered) - len(unseen))) :]:
            self._let_go(device, disable=True, why=f"the agent of node {device.spec.node_name} does not answer")

    def _exists(self, device: VGPUDevice) -> bool:
        """Report whether a device has its vGPU."""
        return device.status.state == CONFIGURED and device.status.configured == self._type

    def _shrink(self, good: list[VGPUDevice], surplus: int) -> list[VGPUDevice]:
        """Disable devices that no VM uses: first those of GPUs where the pool has the fewest."""
        counts = [parent_gpu_name(device) for device in good]
        order = sorted(good, key=lambda d: (-counts.count(parent_gpu_name(d)), d.name), reverse=True)
        leaving = [device for device in order if self._holder(device) is None][:surplus]
        for device in leaving:
            self._let_go(device, disable=True, why="its pool has more than it requests")
        return [device for device in good if device not in leaving]

    def _grow(self, lacking: int) -> tuple[int, list[Message]]:
        """Enable devices, and GPUs where devices are missing. Return how many vGPUs are to come, and why not more."""
        coming, reasons = 0, list[Message]()
        for name in sorted(self._place, key=self._preference()):
            if coming >= lacking:
                break
            if cordoned := self._cordoned_node(name):
                reasons.append(Message(f"node {cordoned} is cordoned", f"kubectl uncordon {cordoned}"))
                continue
            room = self._plan.room(name, self._type)
            if room.room:
                coming += self._take(room, min(lacking - coming, room.room))
                continue
            reasons.append(room.why)
            if room.type is not None and requests_profile(self._view.snapshot.migs.get(name), room.type.profile):
                self._plan.wanted.add(name)
        return coming, reasons

    def _cordoned_node(self, gpu: str) -> str:
        """Return the node of a GPU if it is cordoned, unless the pool names it or the GPU; then "" as well."""
        node = self._view.snapshot.nodes.get(self._view.snapshot.gpus[gpu].spec.node_name)
        named = self._pool.spec.node_name or self._pool.spec.gpu
        return "" if named or node is None or not node.spec.unschedulable else node.name

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
        instances = -(-(count - room.inside) // max(1, wanted.per_instance))
        self._changes.append(request_instances(layout, self._pool.name, wanted.profile, instances))
        return count

    def _enable_gpu(self, room: PoolRoom) -> None:
        body: JSON = {"spec": {"enabled": True}}
        if room.skip_mig:
            body["metadata"] = {"annotations": {SKIP_MIG_ANNOTATION: "true"}}
        self._patch(room.gpu, body, f"pool {self._pool.name} needs vGPUs of it")

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

    def _holder(self, device: VGPUDevice) -> Message | None:
        return self._view.users.describe(device.name)

    def _patch(self, target: KubeObject, body: JSON, why: str) -> None:
        self._changes.append(change(target, body, why))

    def _report(self, progress: PoolProgress) -> None:
        state, why = pool_condition(self._pool, self._view.snapshot, progress)
        before = self._pool.status
        status = VGPUPoolStatus(
            conditions=(condition(before.conditions, "Ready", state, why, self._view.now),),
            observed_generation=self._pool.metadata.generation,
            ready=progress.ready,
            in_use=len(progress.holders),
            devices=tuple(device.name for device in (*progress.good, *progress.held)),
        )
        if patch := merge_patch(plain(before), plain(status)):
            self._changes.append(PoolChange(VGPUPool, self._pool.name, {"status": patch}, why.reason, status=True))


def _gpus_of_place(pool: VGPUPool, snapshot: AdmissionSnapshot) -> Iterator[str]:
    """Yield the names of the GPUs on which a pool may have vGPUs.

    Those of a missing node stay until their objects go: a kubelet that registers again must not cost vGPUs.
    """
    spec = pool.spec
    for name, gpu in snapshot.gpus.items():
        node = snapshot.nodes.get(gpu.spec.node_name)
        here = (not spec.gpu or name == spec.gpu) and (not spec.node_name or gpu.spec.node_name == spec.node_name)
        if here and (node is None or selects(spec, node)):
            yield name
