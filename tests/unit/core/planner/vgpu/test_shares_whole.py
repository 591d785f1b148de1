"""Whole functions: GPUs and virtual functions that are passed through, and virtual functions that are enabled and
disabled.
"""

from __future__ import annotations

import support.vgpufactory as factory
from aliquot.core.model.actions import Create, CreateVgpu, DestroyVgpu, SetFunctions, SetMode, SetPassthrough
from aliquot.core.model.desired import DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Holder, HostVirtualization, IommuGroupPeer
from aliquot.core.model.plan import Policy
from aliquot.core.planner.restore_point import VFIO
from unit.core.planner.sharing import A2, A100, BARE, H100, asked, blocker, done, kinds, replace, vgpus

# -- passthrough


def test_a_gpu_is_passed_through_and_taken_back() -> None:
    of = factory.gpu(H100, on=True)
    out = asked(of, replace(BARE, passthrough=True))
    assert kinds(out) == [SetFunctions, SetPassthrough]
    unavailable = done(of, out)
    assert asked(unavailable, replace(BARE, passthrough=True)).actions == ()
    assert asked(unavailable, DesiredGpu(of.pci, mig=False, instances=())).actions == ()
    assert kinds(asked(unavailable, replace(BARE, passthrough=False))) == [SetPassthrough]
    back = vgpus(unavailable, {"H100-10C": 1})
    assert kinds(back) == [SetPassthrough, SetFunctions, CreateVgpu]
    desired_gpu = DesiredGpu(of.pci, mig=True, instances=(DesiredInstance(9, "3g.40gb", (2,)),))
    assert kinds(asked(unavailable, desired_gpu)) == [SetPassthrough, SetMode, Create]
    used = replace(unavailable, holders=(factory.VM,))
    for refused in (
        vgpus(used, {"H100-10C": 1}),
        asked(used, desired_gpu),
        asked(used, replace(BARE, passthrough=False)),
    ):
        assert blocker(refused).rule == "PASSTHROUGH"
        assert blocker(refused).holders == (factory.VM,)
    assert kinds(asked(used, desired_gpu, Policy("force"))) == [SetPassthrough, SetMode, Create]


def test_mig_mode_comes_back_with_the_gpu_where_the_family_keeps_it() -> None:
    desired_gpu = DesiredGpu(factory.PCI, mig=True, instances=())
    unavailable = done(
        factory.gpu(A100, on=False, mig=True),
        asked(factory.gpu(A100, on=False, mig=True), replace(BARE, passthrough=True)),
    )
    assert unavailable.virtual is not None
    assert unavailable.virtual.was_mig
    assert asked(unavailable, desired_gpu).actions == ()
    got = asked(unavailable, replace(desired_gpu, passthrough=False))
    assert kinds(got) == [SetPassthrough]
    assert done(unavailable, got).mig.enabled


def test_why_a_gpu_is_not_passed_through() -> None:
    of = factory.gpu(A2)
    out = replace(BARE, passthrough=True)
    assert of.virtual is not None
    assert blocker(asked(of, out, host=HostVirtualization(iommu=False, vgpu_manager=True))).rule == "NO_IOMMU"
    # The blocker comes before any destruction: after a boot no other program has loaded vfio-pci.
    late = blocker(
        asked(of, replace(out, vgpus=()), host=HostVirtualization(iommu=True, vfio=False, vgpu_manager=True))
    )
    assert (late.rule, "modprobe vfio-pci" in (late.next_step or "")) == ("NO_VFIO", True)
    members = (of.pci, "0000:08:00.1", "0000:09:00.0")
    grouped = replace(of, virtual=replace(of.virtual, group_members=members))
    assert SetPassthrough in kinds(asked(grouped, out)), "other members of the group may be bridges, or have no driver"
    grouped = replace(
        of, virtual=replace(of.virtual, group_members=members, group_peers=(IommuGroupPeer("0000:09:00.0", "igb"),))
    )
    refused = blocker(asked(grouped, out))
    assert refused.rule == "IOMMU_GROUP"
    assert "0000:09:00.0 (driver igb)" in refused.message
    assert "0000:08:00.1" not in refused.message
    shared = factory.having(of, (factory.kind(A2, "4Q"), 0), held=[0])
    refused = blocker(asked(shared, out))
    assert (refused.rule, refused.next_step) == ("FUNCTIONS_IN_USE", f"aliquot vgpu disable {of.pci}")
    assert refused.holders == (factory.VM,)
    assert kinds(asked(shared, out, Policy("force"))) == [DestroyVgpu, SetFunctions, SetPassthrough]
    process = replace(of, holders=(Holder("process", "12", "nvtop"),))
    assert blocker(asked(process, out)).rule == "HELD"


def test_virtual_functions_are_passed_through_alone() -> None:
    of = factory.having(factory.gpu(A2), (factory.kind(A2, "4Q"), 1))
    two = (factory.address(1), factory.address(5))
    got = asked(of, replace(BARE, vfio_bound=two))
    assert kinds(got) == [DestroyVgpu, SetPassthrough, SetPassthrough]
    after = done(of, got)
    assert after.virtual is not None
    assert [f.pci for f in after.virtual.functions if f.driver == VFIO] == list(two)
    # A vGPU is never created on a function that is passed through, and mode changes restore the binding.
    made = vgpus(after, {"A2-4Q": 4})
    assert not {a.function for a in made.actions if isinstance(a, CreateVgpu)} & set(two)
    assert kinds(asked(after, replace(BARE, vfio_bound=()))) == [SetPassthrough, SetPassthrough]
    assert blocker(asked(of, replace(BARE, vfio_bound=("0000:99:00.0",)))).rule == "NO_FUNCTION"
    assert blocker(asked(of, replace(BARE, vfio_bound=two), host=HostVirtualization(iommu=False))).rule == "NO_IOMMU"
    assert blocker(asked(of, replace(BARE, vfio_bound=two), host=HostVirtualization(iommu=True))).rule == "NO_VFIO"


# -- functions


def test_functions_on_and_off() -> None:
    off, on = factory.gpu(A2, on=False), factory.gpu(A2)
    assert kinds(asked(off, replace(BARE, functions=True))) == [SetFunctions]
    assert asked(on, replace(BARE, functions=True)).actions == ()
    assert kinds(asked(on, replace(BARE, functions=False))) == [SetFunctions]
    assert asked(off, replace(BARE, functions=False)).actions == ()
    used = factory.having(on, (factory.kind(A2, "4Q"), 0))
    assert blocker(asked(used, replace(BARE, functions=False))).rule == "FUNCTIONS_IN_USE"
    assert kinds(asked(used, replace(BARE, functions=False, vgpus=()))) == [DestroyVgpu, SetFunctions]
    assert on.virtual is not None
    busy = tuple(replace(f, holders=(factory.VM,)) if f.number == 3 else f for f in on.virtual.functions)
    refused = blocker(asked(replace(on, virtual=replace(on.virtual, functions=busy)), replace(BARE, functions=False)))
    assert (refused.rule, refused.holders) == ("FUNCTIONS_IN_USE", (factory.VM,))


def test_too_few_functions() -> None:
    of = factory.gpu(A2)
    assert of.virtual is not None
    unavailable = tuple(replace(f, driver=VFIO) if f.number < 14 else f for f in of.virtual.functions)
    refused = blocker(vgpus(replace(of, virtual=replace(of.virtual, functions=unavailable)), {"A2-4Q": 3}))
    assert refused.rule == "NO_FUNCTION"
    assert refused.suggestion == "NVIDIA A2-4Q*2"
    some = replace(of, virtual=replace(of.virtual, functions=of.virtual.functions[:2]))
    assert vgpus(some, {"A2-4Q": 2}).actions[0] == vgpus(of, {"A2-4Q": 2}).actions[0]
    assert [a.count for a in vgpus(some, {"A2-4Q": 3}).actions if isinstance(a, SetFunctions)] == [0, 16]
