"""Refused requests for vGPUs, drift, the limits of a rollback, and steps that are not allowed."""

from __future__ import annotations

import pytest

import support.vgpufactory as factory
from aliquot.core.model.actions import (
    Action,
    CreateVgpu,
    Destroy,
    DestroyVgpu,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
)
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance, DesiredVgpu
from aliquot.core.model.inventory import GpuVirtualization, HostVirtualization, Inventory, Vgpu, VirtualFunction
from aliquot.core.model.plan import Blocker
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import make_restore_point, spare_foreign
from aliquot.core.planner.semantics import StepRefusedError, step
from aliquot.core.planner.verify import verify
from unit.core.planner.sharing import A2, A100, BARE, H100, L40S, T4, asked, blocker, done, kind, kinds, replace, vgpus

# -- the rest of the refusals


def test_types() -> None:
    of = factory.gpu(A2)

    def refused(number: int, name: str) -> Blocker:
        return blocker(asked(of, DesiredGpu(of.pci, None, (), vgpus=(DesiredVgpu(number, name),), functions=True)))

    assert refused(99999, "NVIDIA A2-99Q").rule == "UNKNOWN_TYPE"
    wrong = refused(1150, "NVIDIA L40S-4Q")
    assert wrong.rule == "WRONG_CARD"
    assert "NVIDIA L40S, not of NVIDIA A2" in wrong.message
    assert refused(0, "NVIDIA A2-3B").rule == "TYPE_WITHOUT_ID"
    assert refused(0, "NVIDIA A2-3B").next_step == f"aliquot vgpu types {of.pci}"


def test_an_instance_that_its_gpu_cannot_have() -> None:
    profile = factory.node(factory.gpu(H100)).family(factory.gpu(H100)).by_name["3g.40gb"]
    misplaced = DesiredInstance(profile.id, profile.name, (profile.default_compute.id,), start=1)
    wanted = replace(BARE, mig=True, instances=(misplaced,), vgpus=factory.vgpus(H100, {"H100-3-40C": 1}))
    refused = blocker(asked(factory.gpu(H100, mig=True), wanted))
    assert refused.rule == "NO_INSTANCE"
    assert "which do not fit together: 3g.40gb cannot start at memory slice 1 (it can at 0, 4)" in refused.message


def test_sizes_counts_and_modes() -> None:
    two = blocker(vgpus(factory.gpu(A2), {"A2-4Q": 3, "A2-8Q": 1}))
    assert (two.rule, two.suggestion) == ("EQUAL_SIZE", "NVIDIA A2-4Q*3")
    five = blocker(vgpus(factory.gpu(A2), {"A2-4Q": 3, "A2-4C": 2}))
    assert five.rule == "MAX_VGPUS"
    assert "16 VFs but 4 x A2-4" in five.message
    eight = blocker(vgpus(factory.gpu(H100), {"H100-1-10C": 8}))
    assert (eight.rule, eight.suggestion) == ("MAX_VGPUS", "NVIDIA H100-1-10C*7")
    layout = blocker(vgpus(factory.gpu(H100), {"H100-4-40C": 1, "H100-3-40C": 2}))
    assert layout.rule == "NO_INSTANCE"
    both = replace(
        BARE, mig=True, vgpus=(*factory.vgpus(H100, {"H100-1-10C": 1}), *factory.vgpus(H100, {"H100-10C": 1}))
    )
    assert blocker(asked(factory.gpu(H100), both)).rule == "MIG_TYPE"
    sliced = replace(BARE, mig=True, vgpus=factory.vgpus(H100, {"H100-10C": 1}))
    assert blocker(asked(factory.gpu(H100), sliced)).rule == "MIG_TYPE"
    alone = replace(BARE, mig=True, vgpus=factory.vgpus(H100, {"H100-1-10C": 1}), functions=True)
    assert blocker(asked(factory.gpu(H100, mig=True), alone)).rule == "NO_INSTANCE"
    mixed = replace(BARE, mig=True, instances=(), mixed_size=True)
    assert blocker(asked(factory.gpu(H100), mixed)).rule == "MIXED_SIZE"


def test_a_refusal_of_mixed_sizes_claims_no_more_than_is_known() -> None:
    # By NVIDIA's tables of vGPU types, no board of Volta or Turing has the mode.
    both = factory.vgpus(T4, {"8Q": 1, "4Q": 2})
    refused = blocker(asked(factory.gpu(T4), replace(BARE, vgpus=both, mixed_size=True)))
    assert refused.rule == "MIXED_SIZE"
    assert "Tesla T4 has no mixed-size mode, by NVIDIA's table" in refused.message


def test_no_vgpu_driver() -> None:
    of = factory.gpu(A2, on=False)
    ordinary = HostVirtualization(iommu=True, vfio=True, vgpu_manager=False)
    request = factory.desired_state(of, {"A2-4Q": 1}).gpus[0]
    assert blocker(asked(of, request, host=ordinary)).rule == "NO_VGPU_DRIVER"
    assert blocker(asked(of, replace(BARE, functions=True), host=ordinary)).rule == "NO_VGPU_DRIVER"
    assert asked(of, replace(BARE, vgpus=(), functions=False), host=ordinary).actions == ()
    assert blocker(asked(replace(of, virtual=None), request, host=ordinary)).rule == "NO_VGPU_DRIVER"
    bare_t4 = replace(factory.gpu(T4), virtual=GpuVirtualization())
    assert blocker(vgpus(bare_t4, {"T4-4Q": 1})).rule == "NO_VGPU_DRIVER"


def test_seventeen_vgpus_and_a_lost_gpu() -> None:
    assert blocker(vgpus(factory.gpu(A2), {"A2-1Q": 17})).suggestion == "NVIDIA A2-1Q*16"
    assert blocker(vgpus(replace(factory.gpu(A2), lost=True), {"A2-1Q": 1})).rule == "GPU_LOST"


def test_a_guest_says_what_to_reboot_and_what_to_do_then() -> None:
    inside = replace(factory.gpu(A100, on=False), resettable=False)
    got = asked(inside, DesiredGpu(inside.pci, mig=True, instances=()))
    assert got.reboots == (inside.pci,)
    assert "reboot the VM, then run the command again" in got.notes[-1]
    shared = asked(inside, factory.desired_state(inside, {"A100-1-5C": 1}).gpus[0])
    assert kinds(shared) == [SetMode]
    assert shared.reboots == (inside.pci,)


# -- verify, undo, step


def test_drift_is_reported_one_by_one() -> None:
    of = factory.having(factory.gpu(A2), (factory.kind(A2, "4A"), 0), (factory.kind(A2, "4Q"), 1))
    name, number = kind(A2, "4Q")
    pinned = DesiredVgpu(number, name, function=factory.address(0))
    desired_gpu = DesiredGpu(
        of.pci, None, None, vgpus=(pinned, DesiredVgpu(number, name), DesiredVgpu(number, name)), mixed_size=True
    )
    drift = verify(
        factory.node(of), Desired(gpus=(replace(desired_gpu, functions=False, vfio_bound=(factory.address(9),)),))
    )
    assert [d.kind for d in drift] == ["functions", "mixed-size", "bound", "vgpu-type", "vgpu-missing"]
    assert drift[3].message == f"GPU {of.pci}: {factory.address(0)} has NVIDIA A2-4A, but should have NVIDIA A2-4Q"
    assert drift[4].message == f"GPU {of.pci}: 1 x NVIDIA A2-4Q missing"
    extra = verify(factory.node(of), Desired(gpus=(replace(BARE, vgpus=()),)))
    assert {d.kind for d in extra} == {"vgpu-extra"}
    unavailable = verify(factory.node(of), Desired(gpus=(replace(BARE, passthrough=True),)))
    assert [d.kind for d in unavailable] == ["passthrough"]


def test_undoing_spares_what_others_made() -> None:
    each = factory.kind(A2, "4Q")
    before = factory.node(factory.having(factory.gpu(A2), (each, 0)))
    got = plan(before, factory.desired_state(before.gpus[0], {"A2-4Q": 2}))
    made = [a for a in got.actions if isinstance(a, CreateVgpu)]
    now: Inventory = before
    for action in got.actions:
        now = step(now, action)
    theirs = Vgpu(factory.address(9), each.id or 0, each.name, "theirs")
    now = replace(now, gpus=(replace(now.gpus[0], vgpus=(*now.gpus[0].vgpus, theirs)),))
    goal = spare_foreign(make_restore_point(before, [before.gpus[0].pci]), before, now, made)
    back = plan(now, goal)
    assert [a.function for a in back.actions if isinstance(a, DestroyVgpu)] == [made[0].function]


def test_step_refuses_what_the_driver_refuses() -> None:
    each = factory.kind(A2, "4Q")
    of = factory.having(factory.gpu(A2), (each, 0), held=[0])
    node = factory.node(of)
    pci = of.pci
    vgpu = of.vgpus[0]
    another = CreateVgpu(gpu=pci, reason="", function=vgpu.function, type_id=each.id or 0, type=each.name, uuid="n")
    gone = DestroyVgpu(gpu=pci, reason="", function=vgpu.function, type_id=each.id or 0, type=each.name, uuid="other")
    refused: list[Action] = [
        another,
        replace(another, function="0000:99:00.0"),
        replace(another, function=factory.address(3), uuid=vgpu.uuid),
        replace(another, function=factory.address(3), type_id=factory.kind(A2, "8Q").id or 0),
        replace(another, function=factory.address(3), type_id=1),
        gone,
        replace(gone, uuid=vgpu.uuid, ownership_token=vgpu.ownership_token),
        SetFunctions(gpu=pci, reason="", count=0),
        SetFunctions(gpu=pci, reason="", count=99),
        SetMixedSize(gpu=pci, reason="", on=True),
        SetPassthrough(gpu=pci, reason="", on=True),
        SetPassthrough(gpu=pci, reason="", on=True, function=vgpu.function),
        SetPassthrough(gpu=pci, reason="", on=False),
    ]
    for action in refused:
        with pytest.raises(StepRefusedError):
            step(node, action)


def test_functions_keep_their_numbers() -> None:
    # A check of the test factory: function ten is on the next device number.
    assert factory.functions(16)[12] == VirtualFunction("0000:08:02.0", 12, "nvidia", 102)


def test_vendor_specific_functions_are_not_bound() -> None:
    of = factory.gpu(L40S)
    refused = blocker(asked(of, replace(BARE, vfio_bound=(factory.address(1),))))
    assert refused.rule == "NO_FUNCTION"
    assert "as they are" in refused.message


def test_types_that_the_driver_does_not_list_are_refused() -> None:
    # As on a recorded L40S, whose driver lists types of the A, B and Q series.
    of = factory.gpu(L40S)
    assert of.virtual is not None
    offered = tuple(t.id for t in factory.table(L40S).types if t.id is not None and t.series != "C")
    of = replace(of, virtual=replace(of.virtual, creatable=offered))
    refused = blocker(vgpus(of, {"L40S-4C": 1}))
    assert refused.rule == "SERIES"
    assert "no C-series type" in refused.message
    assert not vgpus(of, {"L40S-4Q": 1}).blockers
    four = tuple(t.id for t in factory.table(L40S).types if t.id in offered and t.fb_mib == 4096)
    assert of.virtual is not None
    busy = replace(of, virtual=replace(of.virtual, creatable=tuple(n for n in four if n is not None)))
    busy = factory.having(busy, (factory.kind(L40S, "4Q"), 0))
    assert blocker(vgpus(busy, {"L40S-8C": 1})).rule == "SERIES", "another size, but of a series that is not listed"
    assert not vgpus(busy, {"L40S-8Q": 1}).blockers, "another size is not listed next to these"
    fewer = tuple(n for n in offered if n != factory.kind(L40S, "3B").id)
    old = replace(of, virtual=replace(of.virtual, creatable=fewer))
    assert "does not list NVIDIA L40S-3B" in blocker(vgpus(old, {"L40S-3B": 1})).message


def test_a_vgpu_on_a_virtual_function_needs_an_iommu() -> None:
    off = HostVirtualization(iommu=False, vgpu_manager=True)
    of = factory.gpu(A2)
    desired = factory.desired_state(of, {"A2-4Q": 1})
    assert blocker(plan(factory.node(of, host=off), desired)).rule == "NO_IOMMU"
    t4 = factory.gpu(T4)
    assert not plan(factory.node(t4, host=off), factory.desired_state(t4, {"T4-4Q": 1})).blockers, (
        "an mdev of the GPU does not"
    )


def test_who_holds_the_vgpu_is_named_where_mig_mode_would_go_off() -> None:
    of = done(factory.gpu(H100), vgpus(factory.gpu(H100), {"H100-1-10C": 1}))
    used = replace(of, vgpus=tuple(replace(v, holders=(factory.VM,)) for v in of.vgpus))
    refused = blocker(vgpus(used, {"H100-10C": 1}))
    assert (refused.rule, refused.holders) == ("HELD", (factory.VM,))


def test_instances_under_idle_vgpus_say_how_to_be_rid_of_those() -> None:
    of = done(factory.gpu(H100), vgpus(factory.gpu(H100), {"H100-1-10C": 1}))
    cut = replace(BARE, mig=False, instances=())
    assert "the idle vGPUs" in (blocker(asked(of, cut)).next_step or "")
    used = replace(of, vgpus=tuple(replace(v, holders=(factory.VM,)) for v in of.vgpus))
    assert "the idle vGPUs" not in (blocker(asked(used, cut)).next_step or "")


def test_why_gpu_instances_go() -> None:
    of = done(factory.gpu(H100), vgpus(factory.gpu(H100), {"H100-1-10C": 1}))
    off = asked(of, replace(BARE, vgpus=(), functions=False))
    assert {a.reason for a in off.actions if isinstance(a, Destroy)} == {"a change of virtual functions removes it"}
    off = vgpus(of, {"H100-10C": 1})
    assert {a.reason for a in off.actions if isinstance(a, Destroy)} == {"MIG mode will be disabled"}


@pytest.mark.parametrize("needs", [{"mixed_size": True}, {"scheduler": "equal-share"}], ids=["mixed", "scheduler"])
def test_a_mode_of_vgpus_needs_the_functions_that_they_need(needs: dict[str, object]) -> None:
    off = replace(BARE, vgpus=(), functions=False, **needs)
    for on in (False, True):
        got = blocker(asked(factory.gpu(L40S, on=on), off))
        assert (got.rule, "disables the virtual functions" in got.message) == ("NO_FUNCTION", True)
    assert asked(factory.gpu(L40S, on=False), replace(off, mixed_size=False, scheduler="best-effort")).actions == ()
