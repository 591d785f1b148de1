"""The ResourceClaims of the cluster, kept by watches, for the count of devices that VMs have through them."""

from __future__ import annotations

from aliquot.kubernetes.client.client import ALL_NAMESPACES
from aliquot.kubernetes.client.informer import KIND_TIMING, Informer, InformerGroup
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.kinds.vm_claims import VmClaimTemplate
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers
from aliquot.kubernetes.virtual_machines.kubevirt.claim_demand import (
    ClaimClassCapacity,
    ClaimObservation,
    claimed_devices,
    class_capacities,
)


class VmClaimInformers(InformerGroup):
    """The informers of claims and their templates. Those of the VMs have their own owner."""

    def __init__(self, informers: VmClusterInformers, *, timing: WatchTiming = KIND_TIMING) -> None:
        self._informers = informers
        self.claims = informers.resource_claims
        self.templates = Informer(VmClaimTemplate, namespace=ALL_NAMESPACES, timing=timing)
        super().__init__(self.claims, self.templates)

    def classes(self) -> tuple[ClaimClassCapacity, ...] | None:
        """Return the devices by class; None while claims or VMs are not known."""
        if not (self.synced and self._informers.synced):
            return None
        observation = ClaimObservation(self.claims.items, self.templates.items)
        return class_capacities(
            claimed_devices(self._informers.vms.items, self._informers.instances.items, observation)
        )
