"""Devices of claims, found in the slices of a cluster."""

from __future__ import annotations

import msgspec

from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.objects import ResourcePool, ResourceSlice, ResourceSliceSpec, SliceDevice
from aliquot.kubernetes.dra.view.allocated import allocated_devices
from aliquot.kubernetes.kinds.claim_status import (
    AllocationResult,
    ClaimAllocationStatus,
    DeviceResults,
    ResourceClaimStatus,
)
from unit.kubernetes.dra.model.nodes import NAMING
from unit.kubernetes.dra.view.test_pools import POOL, claim, published

HALF = "gpu-0-mig-3g20gb-9-4"


def test_a_device_is_found_with_its_node_and_placement() -> None:
    (found,) = allocated_devices(published(), (claim("train", HALF), claim("waiting")))
    assert (found.claim.name, found.node) == ("train", "n1")
    assert found.device is not None
    assert (found.device.profile, found.device.start) == ("3g.20gb", 4)


def test_a_device_that_is_not_published_any_more_is_known_by_its_claim() -> None:
    (found,) = allocated_devices(published(), (claim("lost", "gpu-9"),))
    assert (found.node, found.device, found.result.device) == ("n1", None, "gpu-9")


def test_slices_of_an_older_generation_do_not_count() -> None:
    slices = published()
    newer = ResourceSlice(ObjectMeta(name="newer"), ResourceSliceSpec(NAMING.driver, ResourcePool(POOL, 7, 1), "n1"))
    for order in ((*slices, newer), (newer, *slices)):
        (found,) = allocated_devices(order, (claim("train", HALF),))
        assert (found.node, found.device) == ("n1", None)


def test_claims_on_devices_that_are_no_gpus_are_left_out() -> None:
    network = ResourceSliceSpec("nic.example", ResourcePool("n1", 1, 1), "n1", (SliceDevice("eth0"),))
    result = AllocationResult("r", "nic.example", "n1", "eth0")
    status = ResourceClaimStatus(ClaimAllocationStatus(DeviceResults((result,))))
    nic = ResourceClaim(ObjectMeta(name="nic", namespace="team"), status)
    both = msgspec.structs.replace(nic, status=claim("x", HALF).status)
    found = allocated_devices((*published(), ResourceSlice(spec=network)), (nic, both))
    assert [each.result.device for each in found] == [HALF]
