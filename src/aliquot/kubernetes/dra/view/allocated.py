"""The devices that the claims of a cluster have, found among the published ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.device import PCI_BUS_ID, DraDevice
from aliquot.kubernetes.dra.model.objects import ResourceSlice, SliceDevice
from aliquot.kubernetes.dra.model.slices import read_device
from aliquot.kubernetes.kinds.claim_status import AllocationResult


class ClaimDevice(msgspec.Struct, frozen=True):
    """A device of a claim.

    ``device`` is None if no slice of its pool has the device. ``node`` is empty if the pool has no slice.
    """

    claim: ResourceClaim
    result: AllocationResult
    node: str
    device: DraDevice | None


class _Pool(msgspec.Struct, frozen=True):
    """The slices of a pool that have its highest generation."""

    generation: int
    slices: list[ResourceSlice]

    def find(self, name: str) -> SliceDevice | None:
        return next((device for each in self.slices for device in each.spec.devices if device.name == name), None)


def allocated_devices(slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]) -> tuple[ClaimDevice, ...]:
    """Return the devices that claims have from drivers which publish GPUs.

    Reads no other devices, so that a cluster of a thousand nodes takes milliseconds.
    """
    pools, drivers = _pools(slices)
    return tuple(
        _find(claim, result, pools.get((result.driver, result.pool)))
        for claim in claims
        for result in claim.results
        if result.driver in drivers
    )


def _pools(slices: Iterable[ResourceSlice]) -> tuple[Mapping[tuple[str, str], _Pool], set[str]]:
    """Return the pools by driver and name, and the drivers that have GPUs."""
    pools: dict[tuple[str, str], _Pool] = {}
    drivers: set[str] = set()
    for each in slices:
        spec = each.spec
        if spec.devices and PCI_BUS_ID in spec.devices[0].attributes:
            drivers.add(spec.driver)
        key = spec.driver, spec.pool.name
        known = pools.get(key)
        if known is None or known.generation < spec.pool.generation:
            known = pools[key] = _Pool(spec.pool.generation, [])
        if known.generation == spec.pool.generation:
            known.slices.append(each)
    return pools, drivers


def _find(claim: ResourceClaim, result: AllocationResult, pool: _Pool | None) -> ClaimDevice:
    if pool is None:
        return ClaimDevice(claim, result, "", None)
    found = pool.find(result.device)
    return ClaimDevice(claim, result, pool.slices[0].spec.node_name, read_device(found) if found else None)
