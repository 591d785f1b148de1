"""GPUs on NVSwitch: a request that cannot work in a VM without a fabric partition is refused."""

from __future__ import annotations

import msgspec
import pytest

import support.vgpufactory as factory
from aliquot.core.config.boot_record import RecordedRequest, replay
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Gpu, HostVirtualization
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan
from aliquot.core.planner.vgpu.vm_rules import VmDevice, check

H200, SECOND = "NVIDIA H200", "0000:09:00.0"
HGX = HostVirtualization(iommu=True, vfio=True, vgpu_manager=True, sriov_manage="/s", nvswitch=True)
PLAIN = msgspec.structs.replace(HGX, nvswitch=False)


def vgpus(of: Gpu, short: str, count: int = 1, restoring: bool = False, host: HostVirtualization = HGX) -> Plan:
    made = factory.vgpus(of.product, {short: count})
    return plan(
        factory.node(of, host=host), Desired((DesiredGpu(of.pci, None, None, vgpus=made, restoring=restoring),))
    )


def whole(*gpus: Gpu, host: HostVirtualization = HGX, restoring: bool = False) -> Plan:
    requests = [DesiredGpu(g.pci, None, None, passthrough=True, restoring=restoring) for g in gpus]
    return plan(factory.node(*gpus, host=host), Desired(tuple(requests)))


def rules(found: Plan) -> list[str]:
    return [each.rule for each in found.blockers]


def test_a_vgpu_that_is_a_whole_gpu_is_refused_on_nvswitch_alone() -> None:
    of = factory.gpu(H200)
    (blocker,) = vgpus(of, "141C").blockers
    assert (blocker.rule, blocker.next_step) == ("FABRIC", f"aliquot vgpu types {of.pci}")
    assert "802" in blocker.message
    assert not vgpus(of, "141C", host=PLAIN).blocked
    assert not vgpus(of, "70C", 2).blocked


def test_one_that_is_there_stays_and_one_that_was_there_comes_back() -> None:
    of = factory.gpu(H200)
    assert not vgpus(factory.having(of, (factory.kind(H200, "141C"), 0)), "141C").blocked
    assert not vgpus(of, "141C", restoring=True).blocked


@pytest.mark.parametrize("product", ["NVIDIA B200", "NVIDIA B300 SXM6 AC"])
def test_boards_whose_switches_are_hidden_are_on_nvswitch(product: str) -> None:
    largest = next(t.short for t in factory.table(product).types if t.max == 1 and not t.mig_backed)
    assert rules(vgpus(factory.gpu(product), largest, host=PLAIN)) == ["FABRIC"]


def test_one_gpu_is_passed_through_with_a_word_of_what_it_needs() -> None:
    of = factory.gpu(H200)
    found = whole(of)
    assert not found.blocked
    assert "NVreg_NvLinkDisable=1" in found.notes[0]
    assert whole(of, host=PLAIN).notes == ()


def test_several_are_not_passed_through_at_once() -> None:
    one, two = factory.gpu(H200), factory.gpu(H200, pci=SECOND)
    refused = whole(one, two)
    assert rules(refused) == ["FABRIC"]
    assert refused.blockers[0].next_step == f"aliquot passthrough enable {one.pci}"
    assert not whole(one, two, host=PLAIN).blocked
    assert not whole(one, two, restoring=True).blocked
    unavailable = [msgspec.structs.replace(g, passthrough=True) for g in (one, two)]
    assert not whole(*unavailable).blocked, "they are in that state already"


def test_what_was_recorded_comes_back_after_a_boot() -> None:
    # GPUs that were passed through one by one are recorded one by one, and restored together.
    one, two = factory.gpu(H200), factory.gpu(H200, pci=SECOND)
    node = factory.node(one, two, host=HGX)
    kept = [RecordedRequest(DesiredGpu(g.pci, None, None, passthrough=True), g.uuid) for g in (one, two)]
    assert not plan(node, replay(kept, node)[0]).blocked
    whole_one = DesiredGpu(one.pci, None, None, vgpus=factory.vgpus(H200, {"141C": 1}))
    assert not plan(node, replay([RecordedRequest(whole_one, one.uuid)], node)[0]).blocked


def test_one_virtual_machine_has_one_of_them() -> None:
    one, two = (VmDevice(factory.gpu(H200, on=False, pci=p), on_nvswitch=True) for p in (factory.PCI, SECOND))
    assert [b.rule for b in check((one, two))] == ["FABRIC"]
    assert check((one,)) == ()
    apart = [msgspec.structs.replace(each, on_nvswitch=False) for each in (one, two)]
    assert check(apart) == ()
    both = [msgspec.structs.replace(each, type=factory.kind(H200, "141C")) for each in (one, two)]
    assert [b.rule for b in check(both)] == ["FABRIC"]
