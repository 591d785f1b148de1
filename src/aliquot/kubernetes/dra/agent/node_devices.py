"""The devices of a node under the names of a driver: what to publish, and which device a name means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.foundation.logfmt import NewWarnings
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.dra.agent.claim_types import DeviceLocation
from aliquot.kubernetes.dra.agent.loop import NodeOffer
from aliquot.kubernetes.dra.model.device import DraDevice, ModeChanges
from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.occupancy import find_occupancy
from aliquot.kubernetes.dra.model.offer import Offer, offered_devices
from aliquot.kubernetes.dra.model.ranking import PublishedChoice, PublishPolicy, choose_devices
from aliquot.kubernetes.dra.model.vm_service import VmPolicy
from aliquot.kubernetes.dra.plugin.claim_service import DeviceState
from aliquot.node.holders.prepared_claims import PASSED_THROUGH as VFIO
from aliquot.node.holders.prepared_claims import CreatedInstance

UNHEALTHY = "the driver reported an error of this GPU: see nvidia-smi and the kernel log (XID)"


class NodeDevices:
    """The devices of one node.

    The log has a sentence for each GPU that is not offered, or only in part.
    """

    def __init__(
        self,
        node: str,
        naming: DriverNaming,
        policy: PublishPolicy,
        mode_changes: ModeChanges = "without-reset",
        vms: VmPolicy | None = None,
    ) -> None:
        self.naming = naming
        self._refusals = NewWarnings(log)
        self._node = node
        self._pool = naming.pool(node)
        self._policy = policy
        self._mode_changes: ModeChanges = mode_changes
        self._vms = vms or VmPolicy()
        self._known: dict[str, DraDevice] = {}
        self._sick: frozenset[str] = frozenset()

    @property
    def layout(self) -> SliceLayout:
        return self._policy.layout

    @property
    def refusals(self) -> tuple[str, ...]:
        """A sentence for each GPU that was not offered at the last choice, or only in part."""
        return self._refusals.current

    @property
    def serves_vms(self) -> bool:
        """True if VMs get any GPU of the node."""
        return bool(self._vms)

    def is_own_pool(self, pool: str) -> bool:
        """Report whether a pool belongs to this node."""
        return pool == self._pool or (self._policy.layout.pool_per_gpu and pool.startswith(f"{self._pool}-"))

    def find(self, inventory: Inventory, pool: str, device: str) -> DeviceLocation | None:
        """Return the place of a device, whether or not it is published now; None if the node has no such device."""
        vms = self._vms.of(inventory)
        found = offered_devices(inventory, self.naming, mode_changes="any", vms=vms).device(device)
        if found is None or not self.is_own_pool(pool):
            return None
        kind = found.attributes["type"].string_value
        return DeviceLocation(found.pci, found.profile, found.start, found.vgpu or (kind if kind == VFIO else ""))

    def choose(self, node: NodeOffer) -> PublishedChoice:
        """Return what to publish now.

        An instance that was not created for a claim stays: a claim may get it as it is. Nothing is free on an unhealthy
        GPU.
        """

        def stays(gpu: Gpu, instance: GpuInstance) -> bool:
            return CreatedInstance(gpu.uuid, instance.profile_id, instance.placement) not in node.created

        offer = offered_devices(
            node.inventory,
            self.naming,
            facts=node.facts,
            mode_changes=self._mode_changes,
            vms=self._vms.of(node.inventory),
        )
        self._refusals.update(offer.refusals)
        self._known = {device.name: device for device in offer.devices}
        self._sick = frozenset(_unhealthy_gpus(node))
        closed = self._sick | self._formerly_other(node, offer)
        occupancy = find_occupancy(node.inventory, offer, node.allocated, stays, closed)
        return choose_devices(offer, occupancy, self._policy, node.published)

    def _formerly_other(self, node: NodeOffer, offer: Offer) -> frozenset[str]:
        """Return the GPUs of which a claim has a device that they do not offer any more, as the options changed.

        Its counters are others than those of the present devices, so nothing may be allocated beside it.
        """
        gone = node.allocated - {device.name for device in offer.devices}
        return frozenset(g.pci for g in node.inventory.gpus if any(self.naming.names(g, name) for name in gone))

    @property
    def health(self) -> dict[tuple[str, str], DeviceState]:
        """The health of all devices at the last choice, by pool and name."""
        states = {False: DeviceState(True), True: DeviceState(False, UNHEALTHY)}
        pools = {d.name: self.naming.gpu_pool(self._node, d.pci) for d in self._known.values()}
        per_gpu = self._policy.layout.pool_per_gpu
        return {
            (pools[device.name] if per_gpu else self._pool, device.name): states[device.pci in self._sick]
            for device in self._known.values()
        }

    def attributes(self, pool: str, device: str) -> Mapping[str, Any]:
        """Return the attributes of a device, as a ResourceSlice has them."""
        known = self._known.get(device)
        return msgspec.to_builtins(known.attributes) if known is not None and self.is_own_pool(pool) else {}


def _unhealthy_gpus(node: NodeOffer) -> set[str]:
    """Return the PCI addresses of GPUs that are unhealthy or have an unhealthy instance."""
    return {
        gpu.pci
        for gpu in node.inventory.gpus
        if node.unhealthy & {gpu.uuid, *(c.uuid for i in gpu.instances for c in i.compute_instances)}
    }
