"""Claims as the API server returns them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aliquot.kubernetes.client.codec import decode
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.kinds.claim_status import AllocatedConfig, AllocationResult


def result(request: str = "gpu", **fields: Any) -> dict[str, Any]:
    return {"request": request, "driver": "gpu.nvidia.com", "pool": "n1-aliquot", "device": "gpu-0", **fields}


def read(status: Any) -> ResourceClaim:
    exact = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount"}}
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "work", "namespace": "team", "uid": "0b5a"},
        "spec": {"devices": {"requests": [exact]}},
        "status": status,
    }
    return decode(json.dumps(document).encode(), ResourceClaim)


def test_an_allocation_with_all_its_fields() -> None:
    parameters = {"kind": "GpuConfig", "sharing": None}
    config = {"source": "FromClass", "requests": ["gpu"], "opaque": {"driver": "d", "parameters": parameters}}
    results = [result(), result("mig/small", adminAccess=True, shareID="8f2", consumedCapacity={"memory": "1Gi"})]
    allocation = {"devices": {"results": results, "config": [config]}, "nodeSelector": {"nodeSelectorTerms": []}}
    found = read({"allocation": allocation, "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]})
    assert str(found) == "claim team/work"
    assert found.results == (
        AllocationResult("gpu", "gpu.nvidia.com", "n1-aliquot", "gpu-0"),
        AllocationResult("mig/small", "gpu.nvidia.com", "n1-aliquot", "gpu-0", True, "8f2"),
    )
    (chosen,) = found.configs
    assert (chosen.source, chosen.requests) == ("FromClass", ("gpu",))
    assert chosen.opaque is not None
    assert (chosen.opaque.driver, chosen.opaque.parameters) == ("d", parameters)
    assert found.pods == ("p",)


@pytest.mark.parametrize("status", [{}, {"allocation": None}, None])
def test_a_claim_that_is_not_allocated(status: Any) -> None:
    found = read(status)
    assert (found.results, found.configs) == ((), ())


@pytest.mark.parametrize(
    ("request_name", "covered"),
    [
        ("mig/small", [True, True, False, True]),
        ("mig/large", [True, False, False, True]),
        ("gpu", [False, False, True, True]),
    ],
)
def test_the_alternatives_of_a_prioritized_list(request_name: str, covered: list[bool]) -> None:
    configs = [AllocatedConfig(requests=requests) for requests in (("mig",), ("mig/small",), ("gpu",), ())]
    assert [each.covers(AllocationResult(request_name)) for each in configs] == covered


def test_an_unreadable_claim_is_refused_with_the_field() -> None:
    with pytest.raises(ApiError, match=r"Expected `str`, got `int`.*device"):
        read({"allocation": {"devices": {"results": [result(device=7)]}}})
