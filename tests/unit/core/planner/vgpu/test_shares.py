"""vGPUs in plans: the actions of a request and their order, the kept vGPUs, and the places of new ones."""

from __future__ import annotations

import pytest

import support.vgpufactory as factory
from aliquot.core.model.actions import (
    Create,
    CreateVgpu,
    Destroy,
    DestroyVgpu,
    Reset,
    SetFunctions,
    SetMixedSize,
    SetMode,
)
from aliquot.core.model.desired import DesiredGpu, DesiredInstance, DesiredVgpu
from aliquot.core.model.inventory import Vgpu
from aliquot.core.model.plan import HeldPolicy, Policy
from aliquot.core.planner.vgpu.naming import stable_uuid
from unit.core.planner.sharing import (
    A2,
    A30,
    A100,
    BARE,
    H100,
    L40S,
    T4,
    asked,
    blocker,
    done,
    kind,
    kinds,
    replace,
    vgpus,
)

# -- the order of the actions on a GPU


def test_mode_functions_mixed_size_instances_types() -> None:
    got = vgpus(factory.gpu(H100, on=False), {"H100-1-10C": 2})
    assert kinds(got) == [SetMode, SetFunctions, Create, Create, CreateVgpu, CreateVgpu]
    got = vgpus(factory.gpu(L40S, on=False), {"L40S-4Q": 1, "L40S-8Q": 1}, mixed=True)
    assert kinds(got) == [SetFunctions, SetMixedSize, CreateVgpu, CreateVgpu]
    assert [a.placement for a in got.actions if isinstance(a, CreateVgpu)] == [0, 8]


def test_a_family_that_needs_a_reset_has_its_functions_off_for_it() -> None:
    of = factory.having(factory.gpu(A100), (factory.kind(A100, "4C"), 3))
    got = vgpus(of, {"A100-1-5C": 1})
    assert kinds(got) == [DestroyVgpu, SetFunctions, SetMode, Reset, SetFunctions, Create, CreateVgpu]
    assert [a.count for a in got.actions if isinstance(a, SetFunctions)] == [0, 16]
    assert (got.destroyed, got.created, got.unchanged) == (1, 2, 0)
    assert done(of, got).vgpus[0].gpu_instance is not None


def test_mig_off_wants_functions_off_and_on_again() -> None:
    of = done(factory.gpu(H100, on=False), vgpus(factory.gpu(H100, on=False), {"H100-1-10C": 1}))
    got = vgpus(of, {"H100-10C": 2})
    assert kinds(got) == [DestroyVgpu, Destroy, SetFunctions, SetMode, SetFunctions, CreateVgpu, CreateVgpu]


def test_mig_on_keeps_the_functions_where_no_reset_is_needed() -> None:
    got = vgpus(factory.gpu(H100), {"H100-7-80C": 1})
    assert kinds(got) == [SetMode, Create, CreateVgpu]
    assert [a.instance for a in got.actions if isinstance(a, CreateVgpu)] == ["0:8"]


def test_a_mig_request_does_not_end_vgpus_that_it_does_not_speak_of() -> None:
    of = factory.having(factory.gpu(H100), (factory.kind(H100, "10C"), 0))
    desired_gpu = DesiredGpu(of.pci, mig=True, instances=(DesiredInstance(9, "3g.40gb", (2,)),))
    for policy in ("refuse", "wait"):
        refused = blocker(asked(of, desired_gpu, Policy(policy)))
        assert refused.rule == "FUNCTIONS_IN_USE"
        assert "NVIDIA H100-10C on" in refused.message
        assert refused.next_step == f"aliquot plan --gpu {of.pci} --vgpu none"
    got = asked(of, replace(desired_gpu, vgpus=()))
    assert kinds(got) == [DestroyVgpu, SetMode, Create]


def test_a_mig_request_by_force_ends_time_sliced_vgpus_and_leaves_the_functions() -> None:
    of = factory.having(factory.gpu(H100), (factory.kind(H100, "10C"), 0))
    desired_gpu = DesiredGpu(of.pci, mig=True, instances=(DesiredInstance(9, "3g.40gb", (2,)),))
    got = asked(of, desired_gpu, Policy("force"))
    assert kinds(got) == [DestroyVgpu, SetMode, Create]
    assert got.actions[0].reason == "MIG mode will be enabled"
    held = factory.having(factory.gpu(H100), (factory.kind(H100, "10C"), 0), held=[0])
    assert blocker(asked(held, desired_gpu)).rule == "HELD"
    assert blocker(asked(held, desired_gpu)).holders == (factory.VM,)


def test_a_mig_request_respects_the_vgpu_on_a_gpu_instance_it_does_not_speak_of() -> None:
    of = done(factory.gpu(A30, on=False), vgpus(factory.gpu(A30, on=False), {"A30-1-6C": 2}))
    family = factory.node(of).family(of)
    whole = family.by_name["4g.24gb"]
    desired_gpu = DesiredGpu(
        of.pci, mig=True, instances=(DesiredInstance(whole.id, whole.name, (whole.default_compute.id,)),)
    )
    refused = blocker(asked(of, desired_gpu))
    assert refused.rule == "HELD"
    assert {h.kind for h in refused.holders} == {"vgpu"}
    forced = asked(of, desired_gpu, Policy("force"))
    assert kinds(forced) == [DestroyVgpu, DestroyVgpu, Destroy, Destroy, Create]
    quarter = family.by_name["1g.6gb"]
    two = DesiredInstance(quarter.id, quarter.name, (quarter.default_compute.id,))
    grown = asked(of, DesiredGpu(of.pci, mig=True, instances=(two, two, two)))
    assert kinds(grown) == [Create]
    assert grown.unchanged == 4


def test_switching_functions_on_brings_gpu_instances_back_that_it_wipes() -> None:
    node = factory.node(factory.gpu(A30, on=False, mig=True))
    family = node.family(node.gpus[0])
    quarter = family.by_name["1g.6gb"]
    desired_gpu = DesiredGpu(
        factory.PCI, mig=True, instances=(DesiredInstance(quarter.id, quarter.name, (0,), start=2),)
    )
    of = done(node.gpus[0], asked(node.gpus[0], desired_gpu))
    got = asked(of, replace(BARE, functions=True))
    assert kinds(got) == [Destroy, SetFunctions, Create]
    assert [i.placement for i in done(of, got).instances] == [i.placement for i in of.instances]


# -- kept vGPUs, and the places of new ones


def test_what_fits_stays_and_the_lowest_numeric_function_is_taken() -> None:
    of = factory.having(factory.gpu(L40S), (factory.kind(L40S, "4Q"), 0), (factory.kind(L40S, "4Q"), 2))
    got = vgpus(of, {"L40S-4Q": 10})
    made = [a.function for a in got.actions if isinstance(a, CreateVgpu)]
    assert made == [factory.address(n) for n in (1, 3, 4, 5, 6, 7, 8, 9)]
    assert (got.unchanged, got.destroyed) == (2, 0)


def test_the_tenth_function_comes_after_the_ninth() -> None:
    got = vgpus(factory.gpu(L40S), {"L40S-4Q": 12})
    assert [a.function for a in got.actions if isinstance(a, CreateVgpu)] == [factory.address(n) for n in range(12)]


def test_uuids_follow_from_gpu_and_function_and_never_change() -> None:
    of = factory.gpu(A2)
    got = vgpus(of, {"A2-4Q": 2})
    assert [a.uuid for a in got.actions if isinstance(a, CreateVgpu)] == [stable_uuid(of, 0), stable_uuid(of, 1)]
    assert stable_uuid(replace(of, uuid="GPU-1"), 0) == "299ed1e8-6c0a-5ab4-b101-68ad3e715489"


def test_held_vgpus_are_the_ones_that_stay() -> None:
    each = factory.kind(A2, "4Q")
    of = factory.having(factory.gpu(A2), *((each, n) for n in range(4)), held=[2, 3])
    got = vgpus(of, {"A2-4Q": 2})
    assert [a.function for a in got.actions if isinstance(a, DestroyVgpu)] == [factory.address(0), factory.address(1)]
    near = blocker(vgpus(of, {"A2-4Q": 1}))
    assert near.rule == "HELD"
    assert near.suggestion == "NVIDIA A2-4Q*2"
    assert near.next_step == "end vm 4711 (guest), or add --policy wait"
    assert blocker(vgpus(of, {"A2-8Q": 1})).suggestion is None, "it would only destroy two idle ones"


def test_what_cannot_be_is_not_answered_with_the_loss_of_what_was_to_stay() -> None:
    of = factory.having(factory.gpu(A2), (factory.kind(A2, "8Q"), 0))
    refused = blocker(vgpus(of, {"A2-4Q": 4, "A2-8Q": 1}))
    assert (refused.rule, refused.suggestion) == ("EQUAL_SIZE", None)


@pytest.mark.parametrize("policy", ["wait", "force"])
def test_a_held_vgpu_goes_first_under_other_policies(policy: HeldPolicy) -> None:
    each = factory.kind(A2, "4Q")
    of = factory.having(factory.gpu(A2), (each, 0), (each, 1), held=[1])
    got = asked(of, replace(BARE, vgpus=()), Policy(policy))
    assert [a.function for a in got.actions if isinstance(a, DestroyVgpu)] == [factory.address(1), factory.address(0)]
    assert got.actions[0].reason.endswith(f"held by vm 4711 (guest), policy {policy}")


def test_after_a_reboot_a_vgpu_has_its_function_and_its_uuid_again() -> None:
    name, number = kind(A2, "4Q")
    of = factory.gpu(A2, on=False)
    assert of.virtual is not None
    gone = Vgpu(factory.address(7), number, name, "11111111-2222-4333-8444-555555555555")
    of = replace(of, virtual=replace(of.virtual, recorded_vgpus=(gone,)))
    got = vgpus(of, {"A2-4Q": 2})
    made = [a for a in got.actions if isinstance(a, CreateVgpu)]
    assert {(a.function, a.uuid) for a in made} == {
        (gone.function, gone.uuid),
        (factory.address(0), stable_uuid(of, 0)),
    }
    assert any(a.reason.endswith("as before the reboot") for a in made)


def test_a_vgpu_that_was_asked_on_a_function_comes_there_or_moves_what_is_there() -> None:
    name, number = kind(A2, "4Q")
    other = factory.kind(A2, "4A")
    of = factory.having(factory.gpu(A2), (other, 3))
    here = DesiredVgpu(number, name, function=factory.address(3), uuid="u-3")
    free = DesiredVgpu(other.id or 0, other.name)
    got = asked(of, DesiredGpu(of.pci, None, (), vgpus=(here, free), functions=True))
    assert kinds(got) == [DestroyVgpu, CreateVgpu, CreateVgpu]
    after = done(of, got)
    assert {(v.function, v.uuid) for v in after.vgpus if v.type == name} == {(factory.address(3), "u-3")}
    wrong = asked(of, DesiredGpu(of.pci, None, (), vgpus=(replace(here, function="0000:99:00.4"),), functions=True))
    assert blocker(wrong).rule == "NO_FUNCTION"


def test_mdevs_of_the_gpu_itself_have_slots() -> None:
    of = factory.gpu(T4)
    got = vgpus(of, {"T4-4Q": 2})
    made = [a for a in got.actions if isinstance(a, CreateVgpu)]
    assert [(a.function, a.uuid) for a in made] == [(of.pci, stable_uuid(of, 0)), (of.pci, stable_uuid(of, 1))]
    more = vgpus(done(of, got), {"T4-4Q": 3})
    assert [a.uuid for a in more.actions if isinstance(a, CreateVgpu)] == [stable_uuid(of, 2)]
    assert blocker(vgpus(of, {"T4-4Q": 1, "T4-8Q": 1}, mixed=True)).rule == "MIXED_SIZE"
    assert blocker(asked(of, replace(BARE, functions=True))).rule == "NO_FUNCTION"


def test_a_place_that_was_asked() -> None:
    name, number = kind(L40S, "8Q")
    of = factory.gpu(L40S, mixed=True)
    requests = (DesiredVgpu(number, name, placement=16), DesiredVgpu(number, name), DesiredVgpu(number, name))
    got = asked(of, DesiredGpu(of.pci, None, (), vgpus=requests[:2], functions=True, mixed_size=True))
    assert [b.rule for b in got.blockers] == []
    places = [a.placement for a in got.actions if isinstance(a, CreateVgpu)]
    assert places == [0, 16]
    alone = asked(of, DesiredGpu(of.pci, None, (), vgpus=requests[:1], functions=True, mixed_size=True))
    assert blocker(alone).rule == "MIXED_SIZE"
    assert "first free place" in blocker(alone).message


def test_mixed_size_mode_is_left_where_it_is_unless_the_request_needs_it_off() -> None:
    of = factory.gpu(L40S, mixed=True)
    assert kinds(vgpus(of, {"L40S-4Q": 8})) == [CreateVgpu] * 8
    assert kinds(vgpus(of, {"L40S-4Q": 12})) == [SetMixedSize, *[CreateVgpu] * 12]
    assert blocker(vgpus(of, {"L40S-4Q": 12}, mixed=True)).rule == "MIXED_SIZE"
    assert blocker(vgpus(of, {"L40S-4Q": 12}, mixed=True)).suggestion == "NVIDIA L40S-4Q*8"
    each = factory.kind(L40S, "4Q")
    busy = factory.having(of, (each, 0, 0), held=[0])
    assert blocker(asked(busy, replace(BARE, mixed_size=False))).rule == "HELD"


@pytest.mark.parametrize("mixed", [True, False])
def test_vgpus_are_the_same_ones_after_a_change_of_mixed_size_mode(mixed: bool) -> None:
    of = factory.gpu(L40S, mixed=not mixed)
    places = (16, 32) if of.virtual is not None and of.virtual.mixed_size else (None, None)
    of = factory.having(of, *((factory.kind(L40S, "16Q"), n, place) for n, place in zip((3, 7), places, strict=True)))
    of = replace(of, vgpus=tuple(replace(v, parameters="enable_uvm=1") for v in of.vgpus))
    got = vgpus(of, {"16Q": 2}, mixed)
    assert sum(isinstance(a, DestroyVgpu) for a in got.actions) == 2
    after = done(of, got).vgpus
    assert [v.key for v in after] == [v.key for v in of.vgpus], "VMs know them by function and UUID"
    assert {v.parameters for v in after} == {"enable_uvm=1"}
