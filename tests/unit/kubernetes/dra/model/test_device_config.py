"""Configuration that a claim may have. What is refused is named with the claim and the field."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.errors import AliquotError
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.device_config import NVIDIA_API, check_claim
from aliquot.kubernetes.kinds.claim_status import (
    AllocatedConfig,
    AllocationResult,
    ClaimAllocationStatus,
    DeviceResults,
    OpaqueConfig,
    ResourceClaimStatus,
)

DRIVER = "gpu.aliquot.dev"
WHOLE = AllocationResult("gpu", DRIVER, "node-1-aliquot", "gpu-0")
MIG = AllocationResult("mig", DRIVER, "node-1-aliquot", "gpu-0-mig-1g5gb-19-0")
VFIO = AllocationResult("gpu", DRIVER, "node-1-aliquot", "vm-0000-08-00-0-vfio")
ADMIN = AllocationResult("gpu", DRIVER, "p", "gpu-0", admin_access=True)
FIELD = "claim team/work: `status.allocation.devices.config[0].opaque.parameters`"


def claim_of(*results: AllocationResult, configs: tuple[AllocatedConfig, ...] = ()) -> ResourceClaim:
    allocation = ClaimAllocationStatus(DeviceResults(results, configs))
    return ResourceClaim(ObjectMeta(name="work", namespace="team", uid="u"), ResourceClaimStatus(allocation))


def with_parameters(
    parameters: Any, *requests: str, result: AllocationResult = WHOLE, source: str = "FromClaim", driver: str = DRIVER
) -> ResourceClaim:
    return claim_of(result, configs=(AllocatedConfig(source, requests, OpaqueConfig(driver, parameters)),))


def configured(kind: str, result: AllocationResult = WHOLE, source: str = "FromClaim", **fields: Any) -> ResourceClaim:
    return with_parameters({"apiVersion": NVIDIA_API, "kind": kind, **fields}, result=result, source=source)


@pytest.mark.parametrize(
    "claim",
    [
        ResourceClaim(),
        claim_of(WHOLE, MIG),
        with_parameters({"other": 1}, driver="nic.example.com"),
        with_parameters({"apiVersion": NVIDIA_API, "kind": "MigDeviceConfig"}, "other"),
        claim_of(WHOLE, AllocationResult("nic", "nic.example.com", "p", "eth0", admin_access=True, share_id="8f2")),
        claim_of(WHOLE, configs=(AllocatedConfig(),)),
        configured("GpuConfig"),
        configured("MigDeviceConfig", MIG),
        configured("GpuConfig", sharing={"strategy": "TimeSlicing"}),
        configured("GpuConfig", sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}}),
        configured("GpuConfig", sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {}}),
        configured("MigDeviceConfig", MIG, sharing={"strategy": "TimeSlicing"}),
        configured("GpuConfig", MIG, source="FromClass"),
        configured("VfioDeviceConfig", VFIO),
        configured("VfioDeviceConfig", source="FromClass"),
    ],
)
def test_what_is_accepted(claim: ResourceClaim) -> None:
    check_claim(claim, DRIVER)


@pytest.mark.parametrize(
    ("claim", "code", "message"),
    [
        (
            configured("GpuConfig", sharing={"strategy": "MPS", "mpsConfig": {}}),
            "DRA_SHARING",
            f"{FIELD}.sharing.strategy is MPS",
        ),
        (configured("MigDeviceConfig", MIG, sharing={"strategy": "MPS"}), "DRA_SHARING", "strategy is MPS"),
        (
            configured("GpuConfig", sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}),
            "DRA_SHARING",
            f"{FIELD}.sharing.timeSlicingConfig.interval is Long",
        ),
        (
            configured("GpuConfig", sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Brief"}}),
            "DRA_CONFIG",
            "interval is 'Brief', not Default, Short, Medium, Long",
        ),
        (
            configured("MigDeviceConfig", MIG, sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {}}),
            "DRA_CONFIG",
            "timeSlicingConfig is not valid for a MigDeviceConfig",
        ),
        (configured("GpuConfig", sharing={"strategy": "Luck"}), "DRA_CONFIG", "strategy is 'Luck'"),
        (configured("GpuConfig", sharing=["MPS"]), "DRA_CONFIG", f"{FIELD}.sharing is not an object"),
        (configured("GpuConfig", sharing={"strategy": "TimeSlicing", "x": 1}), "DRA_CONFIG", "unknown fields: x"),
        (configured("GpuConfig", shared=True), "DRA_CONFIG", f"{FIELD} has unknown fields: shared"),
        (configured("GpuConfig", MIG), "DRA_CONFIG", "request mig has device gpu-0-mig-1g5gb-19-0"),
        (configured("MigDeviceConfig"), "DRA_CONFIG", "is a MigDeviceConfig, but request gpu has device gpu-0"),
        (configured("VfioDeviceConfig"), "DRA_CONFIG", "is a VfioDeviceConfig, but request gpu has device gpu-0"),
        (configured("VfioDeviceConfig", VFIO, iommu="x"), "DRA_CONFIG", f"{FIELD} has unknown fields: iommu"),
        (configured("ComputeDomainChannelConfig"), "DRA_CONFIG", "'ComputeDomainChannelConfig' of"),
        (
            with_parameters({"apiVersion": "resource.nvidia.com/v1", "kind": "GpuConfig"}),
            "DRA_CONFIG",
            "of 'resource.nvidia.com/v1', not GpuConfig",
        ),
        (with_parameters({}), "DRA_CONFIG", "None of None"),
        (with_parameters("GpuConfig"), "DRA_CONFIG", "is not an object"),
        (with_parameters(None), "DRA_CONFIG", "is not an object"),
        (
            claim_of(ADMIN),
            "DRA_ADMIN_ACCESS",
            "claim team/work: request gpu has `adminAccess`",
        ),
        (
            claim_of(AllocationResult("gpu", DRIVER, "p", "gpu-0", share_id="8f2")),
            "DRA_SHARE",
            "request gpu has a share of device gpu-0",
        ),
    ],
)
def test_what_is_refused(claim: ResourceClaim, code: str, message: str) -> None:
    with pytest.raises(AliquotError) as caught:
        check_claim(claim, DRIVER)
    assert caught.value.code == code
    assert message in caught.value.brief
    assert caught.value.brief.startswith("claim team/work")
    assert caught.value.next_step


def test_all_refusals_are_reported_at_once() -> None:
    parameters = {"apiVersion": NVIDIA_API, "kind": "MigDeviceConfig", "extra": 1}
    claim = with_parameters(parameters, "gpu", result=ADMIN)
    with pytest.raises(AliquotError) as caught:
        check_claim(claim, DRIVER)
    assert (caught.value.code, len(caught.value.details)) == ("DRA_ADMIN_ACCESS", 2)
    with pytest.raises(AliquotError) as caught:
        check_claim(claim, DRIVER, monitoring=True)
    assert (caught.value.code, len(caught.value.details)) == ("DRA_CONFIG", 1)


def test_access_for_administration_where_it_is_permitted() -> None:
    check_claim(claim_of(ADMIN), DRIVER, monitoring=True)


def test_a_field_is_named_by_its_place_in_the_whole_claim() -> None:
    ours = OpaqueConfig(DRIVER, {})
    claim = claim_of(
        WHOLE, configs=(AllocatedConfig(opaque=OpaqueConfig("nic.example.com")), AllocatedConfig(opaque=ours))
    )
    with pytest.raises(AliquotError, match=r"devices\.config\[1\]\.opaque"):
        check_claim(claim, DRIVER)
