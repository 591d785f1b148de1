"""The real file code over a mounted node, which answers like a host's own /sys and /proc."""

from __future__ import annotations

import pytest

from aliquot.core.model.inventory import Holder
from aliquot.errors import InUseError
from contract.virtual_bench import Start, bench, end, gpu, make, ready

__all__ = ["bench"]


@pytest.mark.parametrize(
    ("template", "short"), [("tesla-t4:mdev", "T4-4Q"), ("a2:mdev", "A2-4Q"), ("a2:vfio", "A2-4Q")]
)
def test_the_life_of_a_vgpu(bench: Start, template: str, short: str) -> None:
    node = bench(template, "mount")
    found = ready(node)
    vgpu = make(node, found, short)
    device = vgpu.uuid if template.endswith("mdev") else vgpu.function
    pid = node.control("vm-start", name="web", devices=[device])["pid"]
    assert gpu(node).vgpus[0].holders == (Holder("vm", str(pid), "web"),)
    with pytest.raises(InUseError, match="web"):
        end(node, found, vgpu)
    node.control("vm-stop", name="web")
    end(node, found, vgpu)
    assert gpu(node) == found


def test_a_gpu_is_passed_through_and_taken_back(bench: Start) -> None:
    node = bench("a2:vfio", "mount")
    before = gpu(node)
    node.backend.set_passthrough(before.pci, True)
    unavailable = gpu(node)
    assert (unavailable.passthrough, unavailable.uuid, unavailable.product) == (True, before.uuid, before.product)
    assert unavailable.virtual is not None
    assert unavailable.virtual.driver == "vfio-pci"
    node.backend.set_passthrough(before.pci, False)
    assert gpu(node) == before
