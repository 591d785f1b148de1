"""Reviews about pools: a type that no board has, and a device of a pool that a user disables."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.kubernetes.kinds.vgpu_pools import POOL_LABEL
from aliquot.kubernetes.virtual_machines.harvester.admission.review import judge
from support.admissions import PF, claim, environment, function, merged, request, vgpu


def pool(type_name: str, count: int = 1, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "desks", **metadata}, "spec": {"vGPUTypeName": type_name, "count": count}}


def test_a_type_that_no_board_has_is_refused_with_near_names() -> None:
    found = judge(request("vgpupools", None, pool("NVIDIA A2-4QQ")), environment())
    assert not found.allowed
    assert "no board has a vGPU type NVIDIA A2-4QQ; near it are NVIDIA A2-4Q" in found.reasons[0]
    changed = request("vgpupools", pool("NVIDIA A2-4Q"), pool("NVIDIA A3-4Q"))
    assert not judge(changed, environment()).allowed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, pool("NVIDIA A2-4Q")),
        (pool("NVIDIA A2-4QQ"), pool("NVIDIA A2-4QQ", 2)),
        (pool("NVIDIA A2-4Q"), pool("typo", deletionTimestamp="2026-01-01T00:00:00Z")),
        (pool("typo"), None),
    ],
)
def test_other_writes_are_allowed(old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
    assert judge(request("vgpupools", old, new), environment()).allowed


def test_a_claim_on_a_gpu_or_function_of_a_pool_names_the_pool() -> None:
    on = merged(vgpu("0000:08:00.4", "NVIDIA A2-4Q", True), metadata={"labels": {POOL_LABEL: "desks"}})
    for address in (PF, "0000:08:00.4"):
        snapshot = environment(functions=[function(address)], vgpus=[on])
        (refused,) = judge(request("pcideviceclaims", None, claim(address)), snapshot).reasons
        assert "VGPUPool desks requests" in refused
        assert refused.endswith("| next: kubectl edit vgpupool desks")


def test_disabling_a_device_of_a_pool_warns_that_it_comes_back() -> None:
    on = merged(vgpu("0000:08:00.4", "NVIDIA A2-4Q", True), metadata={"labels": {POOL_LABEL: "desks"}})
    off = merged(on, spec={"enabled": False})
    (warning,) = judge(request("vgpudevices", on, off), environment(vgpus=[on])).warnings
    assert "belongs to VGPUPool desks, which enables it again" in warning
    assert warning.endswith("| next: kubectl edit vgpupool desks")
    free = merged(off, metadata={"labels": {}})
    assert judge(request("vgpudevices", merged(on, metadata={"labels": {}}), free), environment()).warnings == ()
