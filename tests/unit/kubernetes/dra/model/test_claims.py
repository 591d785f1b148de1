"""Claims of all versions, as the API server returns them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aliquot.kubernetes.dra.model.claims import (
    ClaimedResult,
    UnreadableClaimError,
    allocated_devices,
    parse_claim,
)
from aliquot.kubernetes.dra.model.naming import NVIDIA_DRIVER

EXACT = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}}
OLD = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}


def result(request: str = "gpu", device: str = "gpu-0", **fields: Any) -> dict[str, Any]:
    return {"request": request, "driver": NVIDIA_DRIVER, "pool": "node-1-aliquot", "device": device, **fields}


def config(*requests: str, source: str = "FromClaim", driver: str = NVIDIA_DRIVER, **parameters: Any) -> dict[str, Any]:
    opaque = {"driver": driver, "parameters": parameters}
    return {"source": source, "requests": list(requests) or None, "opaque": opaque}


def claim(*results: dict[str, Any], configs: Any = None, version: str = "v1", **status: Any) -> dict[str, Any]:
    request = EXACT if version != "v1beta1" else OLD
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "work", "namespace": "team", "uid": "0b5a"},
        "spec": {"devices": {"requests": [request]}},
        "status": {"allocation": {"devices": {"results": list(results), "config": configs}}} | status,
    }


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize("encoded", [False, True])
def test_the_allocation_of_every_version(version: str, encoded: bool) -> None:
    document = claim(result(), version=version)
    found = parse_claim(json.dumps(document) if encoded else document, NVIDIA_DRIVER)
    assert found is not None
    assert (found.uid, found.namespace, found.name) == ("0b5a", "team", "work")
    assert found.results == (ClaimedResult("gpu", "node-1-aliquot", "gpu-0"),)
    assert str(found) == "claim team/work"


@pytest.mark.parametrize("status", [{}, {"allocation": None}, None])
def test_a_claim_that_is_not_allocated(status: Any) -> None:
    document = claim() | {"status": status}
    assert parse_claim(document, NVIDIA_DRIVER) is None


def test_devices_and_configuration_of_other_drivers_are_left_out() -> None:
    other = result("nic", "eth0") | {"driver": "nic.example.com"}
    found = parse_claim(claim(result(), other, configs=[config(driver="nic.example.com", a=1)]), NVIDIA_DRIVER)
    assert found is not None
    assert [each.device for each in found.results] == ["gpu-0"]
    assert found.configs == ()
    without = parse_claim(claim(other), NVIDIA_DRIVER)
    assert without is not None
    assert without.results == ()


def test_the_alternative_of_a_prioritized_list() -> None:
    configs = [config("mig", kind="A"), config("mig/small", kind="B"), config("gpu", kind="C")]
    document = claim(result("mig/small"), result("mig/large"), result("gpu"), result("plain"), configs=configs)
    found = parse_claim(document, NVIDIA_DRIVER)
    assert found is not None
    assert [each.main_request for each in found.results] == ["mig", "mig", "gpu", "plain"]
    kinds = [chosen.parameters["kind"] if (chosen := found.config(each)) else None for each in found.results]
    assert kinds == ["B", "A", "C", None]


def test_a_claim_s_configuration_comes_before_that_of_its_class() -> None:
    configs = [config(source="FromClass", kind="class"), config(source="FromClaim", kind="claim")]
    found = parse_claim(claim(result(), configs=configs), NVIDIA_DRIVER)
    assert found is not None
    chosen = found.config(found.results[0])
    assert chosen is not None
    assert (chosen.source, chosen.parameters) == ("FromClaim", {"kind": "claim"})


def test_access_for_administration_and_other_pools_take_no_device() -> None:
    found = parse_claim(
        claim(result(), result(device="gpu-1", adminAccess=True), result(device="gpu-2") | {"pool": "node-2-aliquot"}),
        NVIDIA_DRIVER,
    )
    assert found is not None
    assert allocated_devices([found], {"node-1-aliquot"}) == {"gpu-0"}
    assert [each.admin for each in found.results] == [False, True, False]


def test_a_share_of_a_device_is_read() -> None:
    found = parse_claim(claim(result(shareID="8f2", consumedCapacity={"memory": "1Gi"})), NVIDIA_DRIVER)
    assert found is not None
    assert found.results[0].share == "8f2"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"{", "a claim cannot be prepared"),
        (b"[" * 100_000, "a claim cannot be prepared"),
        ("[]", "a claim cannot be prepared"),
        (claim(result(device=7)), "claim team/work cannot be prepared: Expected `str`, got `int`"),  # type: ignore[arg-type]
        (claim({"request": "gpu"}), "missing required field `driver`"),
        (claim(result(), result(device="")), "`status.allocation.devices.results[1]` lacks the request"),
        (claim(result()) | {"metadata": {"name": "work"}}, "`metadata` lacks the uid"),
        (claim(result()) | {"status": []}, "Expected `object`, got `array` - at `$.status`"),
    ],
)
def test_an_unreadable_claim_is_named_with_the_field(document: Any, message: str) -> None:
    with pytest.raises(UnreadableClaimError) as caught:
        parse_claim(document, NVIDIA_DRIVER)
    assert message in caught.value.brief
    assert caught.value.next_step
