"""The cluster's objects for a round of pools, indexed once, and what the node agents are still doing.

While an agent prepares a GPU, its objects show less room than the GPU is about to have. A pool waits for it then:
otherwise it would enable one GPU after another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final

from aliquot.errors import Message
from aliquot.kubernetes.client.object_base import Condition
from aliquot.kubernetes.kinds.harvester import MigConfiguration, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import SYNCED
from aliquot.kubernetes.kinds.vgpu_pools import POOL_LABEL
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import DeviceUsers
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, parent_gpu_name
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import foreign_nodes
from aliquot.kubernetes.virtual_machines.harvester.reasons import PENDING
from aliquot.kubernetes.virtual_machines.pools.agent_watch import is_unobserved, ready_condition

DRIVER_S: Final = 900.0
"""Seconds for which a pool waits for an enabled GPU whose driver does not answer: its installation takes minutes."""
SETTLE_S: Final = 10.0
"""Seconds after new GPU instances in which their VGPUDevices may still lack their types."""


class PoolView:
    """The objects for a round. ``now`` is wall time in seconds. The agents of ``silent`` nodes do not answer.

    ``foreign`` are the nodes that no agent of ours serves. They are among the silent ones.
    """

    def __init__(self, snapshot: AdmissionSnapshot, now: float, silent: Collection[str] = ()) -> None:
        self.snapshot, self.now = snapshot, now
        self.foreign = foreign_nodes(snapshot.nodes.values())
        self.silent = self.foreign | frozenset(silent)
        self.users = DeviceUsers(snapshot)
        self._disabled_now: set[str] = set()

    @cached_property
    def _by_gpu(self) -> dict[str, list[VGPUDevice]]:
        found: dict[str, list[VGPUDevice]] = defaultdict(list)
        for device in sorted(self.snapshot.vgpus.values(), key=lambda each: each.name):
            found[parent_gpu_name(device)].append(device)
        return found

    @cached_property
    def _by_pool(self) -> dict[str, list[VGPUDevice]]:
        found: dict[str, list[VGPUDevice]] = defaultdict(list)
        for device in sorted(self.snapshot.vgpus.values(), key=lambda each: each.name):
            if pool := device.metadata.labels.get(POOL_LABEL):
                found[pool].append(device)
        return found

    def devices_on(self, gpu: str) -> Sequence[VGPUDevice]:
        """Return the VGPUDevices of a GPU, by name."""
        return self._by_gpu.get(gpu, ())

    def devices_in(self, pool: str) -> Sequence[VGPUDevice]:
        """Return the VGPUDevices with the label of a pool, by name."""
        return self._by_pool.get(pool, ())

    def occupying_types(self, gpu: str) -> list[str]:
        """Return the types of a GPU's vGPUs that are enabled, or stay although they are disabled."""
        devices = [d for d in self.devices_on(gpu) if d.spec.enabled or (d.status.configured and not leaves(d))]
        return [d.spec.type_name if d.spec.enabled else d.status.configured for d in devices]

    def remaining_vgpu(self, gpu: str) -> str:
        """Return which vGPU of a GPU stays although its device is disabled, and why, in one clause; "" if none does."""
        found = next((d for d in self.devices_on(gpu) if not d.spec.enabled and d.status.configured), None)
        if found is None or leaves(found):
            return ""
        ready = ready_condition(found.status)
        why = f" ({Message.parse(ready.message).sentence})" if ready is not None and ready.message else ""
        return f"keeps {found.status.configured} on {found.name}{why}"

    def note_disabled(self, device: VGPUDevice) -> None:
        """Record that this round disables a device: its GPU is about to have more room."""
        self._disabled_now.add(parent_gpu_name(device))

    def awaited(self, gpu: SRIOVGPUDevice) -> str:
        """Return what is still to come on an enabled GPU, in one clause; "" if its objects show its room."""
        ready = ready_condition(gpu.status)
        if is_unobserved(gpu) or ready is None:
            return "is being enabled"
        if ready.reason == PENDING or (ready.status == "Unknown" and self._is_recent(ready, DRIVER_S)):
            return f"is not ready ({ready.message})"
        if gpu.name in self._disabled_now or any(leaves(device) for device in self.devices_on(gpu.name)):
            return "destroys vGPUs"
        return ""

    def awaits_instances(self, mig: MigConfiguration) -> bool:
        """Report whether requested GPU instances, or their VGPUDevices' types, are still to come."""
        ready = ready_condition(mig.status)
        return is_unobserved(mig) or ready is None or ready.reason == PENDING or self._is_recent(ready, SETTLE_S)

    def is_settled(self, mig: MigConfiguration) -> bool:
        """Report whether a layout is as requested, so that the profiles' ``available`` holds."""
        ready = ready_condition(mig.status)
        return mig.status.state == SYNCED and not is_unobserved(mig) and ready is not None and ready.reason != PENDING

    def _is_recent(self, found: Condition, seconds: float) -> bool:
        try:
            since = datetime.fromisoformat(found.last_transition_time or "").timestamp()
        except ValueError:
            return False
        return self.now - since < seconds


def leaves(device: VGPUDevice) -> bool:
    """Report whether the agent destroys a device's vGPU, or is about to."""
    ready = ready_condition(device.status)
    waits = is_unobserved(device) or (ready is not None and ready.reason == PENDING)
    return not device.spec.enabled and bool(device.status.configured) and waits


def not_ready(gpu: SRIOVGPUDevice) -> str:
    """Return why a GPU is not ready, as its agent says; "" if it is."""
    ready = ready_condition(gpu.status)
    return "" if ready is None or ready.status == "True" else ready.message
