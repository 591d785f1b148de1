"""Devices that one VM may hold, by NVIDIA's support and by the driver."""

from __future__ import annotations

import msgspec
import pytest

import support.vgpufactory as factory
from aliquot.core.planner.vgpu.vm_rules import MAX_VGPUS_PER_VM, VmDevice, VmPolicy, check, default_ramfb

replace = msgspec.structs.replace


def device(product: str, short: str, pci: str = factory.PCI) -> VmDevice:
    return VmDevice(factory.gpu(product, pci=pci), factory.kind(product, short))


def rules(*devices: VmDevice, policy: VmPolicy = "nvidia") -> list[str]:
    return [b.rule for b in check(devices, policy)]


@pytest.mark.parametrize("board", ["A2", "A16"])
def test_on_a2_and_a16_only_q_types_may_be_several(board: str) -> None:
    product = f"NVIDIA {board}"
    q, c, a = (device(product, f"{board}-4{s}") for s in "QCA")
    assert rules(q, q) == []
    assert rules(c) == []
    assert rules(c, c) == ["PER_VM"]
    assert rules(c, c, policy="driver") == []
    assert rules(a, a) == rules(a, a, policy="driver") == ["PER_VM"]
    assert "Q-series" in check((c, c))[0].message


def test_other_boards_allow_compute_types() -> None:
    c = device("NVIDIA A40", "A40-8C")
    assert rules(c, c, c) == []


def test_mig_backed_types_are_alone() -> None:
    one = device("NVIDIA H100 PCIe", "H100-1-10C")
    assert rules(one) == []
    assert rules(one, one) == rules(one, one, policy="driver") == ["PER_VM"]


def test_one_board_and_one_series_in_whatever_sizes() -> None:
    small, big = device("NVIDIA L40S", "L40S-4Q"), device("NVIDIA L40S", "L40S-24Q", "0000:09:00.0")
    assert rules(small, big) == []
    other = device("NVIDIA L40", "L40-4Q", "0000:0a:00.0")
    compute = device("NVIDIA L40S", "L40S-4C", "0000:0b:00.0")
    assert rules(small, other) == ["SERIES"]
    assert rules(small, compute) == ["SERIES"]
    assert rules(small, compute, other, policy="driver") == []


def test_sixteen_and_not_one_more() -> None:
    one = device("NVIDIA L40S", "L40S-2Q")
    assert rules(*[one] * MAX_VGPUS_PER_VM) == []
    assert "PER_VM" in rules(*[one] * (MAX_VGPUS_PER_VM + 1))


def test_nodes_and_whole_gpus() -> None:
    one = device("NVIDIA L40S", "L40S-4Q")
    assert rules(replace(one, node="a"), replace(one, node="b")) == ["ONE_NODE"]
    whole = VmDevice(replace(one.gpu, passthrough=True, virtual=None))
    assert rules(one, whole) == ["PASSTHROUGH"]
    assert rules(whole) == []


def test_one_ramfb_and_no_display_on_compute_types() -> None:
    q, c = device("NVIDIA L40S", "L40S-4Q"), device("NVIDIA L40S", "L40S-4C")
    assert rules(replace(q, ramfb=True), replace(q, ramfb=True)) == ["RAMFB"]
    assert rules(replace(c, ramfb=True)) == ["RAMFB"]
    assert rules(replace(q, ramfb=True, display=False)) == ["RAMFB"]
    assert rules(replace(c, display=True)) == ["DISPLAY"]
    whole = VmDevice(q.gpu, display=True)
    assert rules(whole) == ["DISPLAY"]


def test_default_ramfb_is_on_exactly_one() -> None:
    q, c = device("NVIDIA L40S", "L40S-4Q"), device("NVIDIA L40S", "L40S-4C")
    assert [d.ramfb for d in default_ramfb((c, q, q))] == [False, True, False]
    assert [d.display for d in default_ramfb((c, q, q))] == [None, True, None]
    assert [d.ramfb for d in default_ramfb((q, replace(q, ramfb=True)))] == [False, True]
    assert [d.ramfb for d in default_ramfb((replace(q, ramfb=False), q))] == [False, True]
    assert [d.ramfb for d in default_ramfb((c, c))] == [False, False]
    for devices in ((q, q), (c, q, q), (q, replace(q, ramfb=True))):
        assert rules(*default_ramfb(devices), policy="driver") == []
