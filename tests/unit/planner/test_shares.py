"""Every kind of wish for GPUs that are shared with virtual machines: what is done, in which order, and why not."""

from __future__ import annotations

import msgspec
import pytest

import vgpufactory as factory
from aliquot.model.actions import (
    Action,
    Create,
    CreateVgpu,
    Destroy,
    DestroyVgpu,
    Reset,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
)
from aliquot.model.desired import Desired, GpuWish, InstanceWish, VgpuWish
from aliquot.model.inventory import Gpu, Holder, Inventory, Stranger, Vgpu, Virtual, VirtualFunction, VirtualHost
from aliquot.model.plan import Blocker, Plan, Policy
from aliquot.planner.former import VFIO, former, sparing
from aliquot.planner.planning import plan
from aliquot.planner.step import StepRefused, step
from aliquot.planner.verify import verify
from aliquot.planner.vgpu.names import stable_uuid

replace = msgspec.structs.replace
A2, L40S, H100, A100 = "NVIDIA A2", "NVIDIA L40S", "NVIDIA H100 PCIe", "NVIDIA A100-PCIE-40GB"
RTX, T4, A30 = "NVIDIA RTX PRO 6000 Blackwell Server Edition", "Tesla T4", "NVIDIA A30"
BARE = GpuWish(factory.PCI, mig=None, instances=None)


def asked(of: Gpu, wish: GpuWish, policy: Policy | None = None, host: VirtualHost | None = None) -> Plan:
    return plan(factory.node(of, host=host), Desired(gpus=(wish,), name="x"), policy)


def vgpus(of: Gpu, counts: dict[str, int], mixed: bool | None = None, policy: Policy | None = None) -> Plan:
    return plan(factory.node(of), factory.wish(of, counts, mixed), policy)


def blocker(got: Plan) -> Blocker:
    assert got.actions == ()
    assert len(got.blockers) == 1
    return got.blockers[0]


def done(of: Gpu, got: Plan) -> Gpu:
    inventory = factory.node(of)
    for action in got.actions:
        inventory = step(inventory, action)
    assert verify(inventory, got.desired) == ()
    return inventory.gpus[0]


def kinds(got: Plan) -> list[type[Action]]:
    return [type(a) for a in got.actions]


def kind(name: str, short: str) -> tuple[str, int]:
    return factory.kind(name, short).name, factory.kind(name, short).id or 0


# -- the order of a lane


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
    assert (got.destroyed, got.created, got.kept) == (1, 2, 0)
    assert done(of, got).vgpus[0].gpu_instance is not None


def test_mig_off_wants_functions_off_and_on_again() -> None:
    of = done(factory.gpu(H100, on=False), vgpus(factory.gpu(H100, on=False), {"H100-1-10C": 1}))
    got = vgpus(of, {"H100-10C": 2})
    assert kinds(got) == [DestroyVgpu, Destroy, SetFunctions, SetMode, SetFunctions, CreateVgpu, CreateVgpu]


def test_mig_on_keeps_the_functions_where_no_reset_is_needed() -> None:
    got = vgpus(factory.gpu(H100), {"H100-7-80C": 1})
    assert kinds(got) == [SetMode, Create, CreateVgpu]
    assert [a.instance for a in got.actions if isinstance(a, CreateVgpu)] == ["0:8"]


def test_a_mig_wish_does_not_end_vgpus_that_it_does_not_speak_of() -> None:
    of = factory.having(factory.gpu(H100), (factory.kind(H100, "10C"), 0))
    wish = GpuWish(of.pci, mig=True, instances=(InstanceWish(9, "3g.40gb", (2,)),))
    for policy in ("refuse", "wait"):
        refused = blocker(asked(of, wish, Policy(policy)))
        assert refused.rule == "FUNCTIONS_IN_USE"
        assert "NVIDIA H100-10C on" in refused.message
        assert refused.next_step == f"aliquot plan --gpu {of.pci} --vgpu none"
    got = asked(of, replace(wish, vgpus=()))
    assert kinds(got) == [DestroyVgpu, SetMode, Create]


def test_a_mig_wish_by_force_ends_time_sliced_vgpus_and_leaves_the_functions() -> None:
    of = factory.having(factory.gpu(H100), (factory.kind(H100, "10C"), 0))
    wish = GpuWish(of.pci, mig=True, instances=(InstanceWish(9, "3g.40gb", (2,)),))
    got = asked(of, wish, Policy("force"))
    assert kinds(got) == [DestroyVgpu, SetMode, Create]
    assert got.actions[0].reason == "MIG mode goes on"
    held = factory.having(factory.gpu(H100), (factory.kind(H100, "10C"), 0), held=[0])
    assert blocker(asked(held, wish)).rule == "HELD"
    assert blocker(asked(held, wish)).holders == (factory.VM,)


def test_a_mig_wish_respects_the_vgpu_on_a_gpu_instance_it_does_not_speak_of() -> None:
    of = done(factory.gpu(A30, on=False), vgpus(factory.gpu(A30, on=False), {"A30-1-6C": 2}))
    family = factory.node(of).family(of)
    whole = family.by_name["4g.24gb"]
    wish = GpuWish(of.pci, mig=True, instances=(InstanceWish(whole.id, whole.name, (whole.default_compute.id,)),))
    refused = blocker(asked(of, wish))
    assert refused.rule == "HELD"
    assert {h.kind for h in refused.holders} == {"vgpu"}
    forced = asked(of, wish, Policy("force"))
    assert kinds(forced) == [DestroyVgpu, DestroyVgpu, Destroy, Destroy, Create]
    quarter = family.by_name["1g.6gb"]
    two = InstanceWish(quarter.id, quarter.name, (quarter.default_compute.id,))
    grown = asked(of, GpuWish(of.pci, mig=True, instances=(two, two, two)))
    assert kinds(grown) == [Create]
    assert grown.kept == 4


def test_switching_functions_on_brings_gpu_instances_back_that_it_wipes() -> None:
    node = factory.node(factory.gpu(A30, on=False, mig=True))
    family = node.family(node.gpus[0])
    quarter = family.by_name["1g.6gb"]
    wish = GpuWish(factory.PCI, mig=True, instances=(InstanceWish(quarter.id, quarter.name, (0,), start=2),))
    of = done(node.gpus[0], asked(node.gpus[0], wish))
    got = asked(of, replace(BARE, functions=True))
    assert kinds(got) == [Destroy, SetFunctions, Create]
    assert [i.placement for i in done(of, got).instances] == [i.placement for i in of.instances]


# -- what stays, and where new ones come


def test_what_fits_stays_and_the_lowest_numeric_function_is_taken() -> None:
    of = factory.having(factory.gpu(L40S), (factory.kind(L40S, "4Q"), 0), (factory.kind(L40S, "4Q"), 2))
    got = vgpus(of, {"L40S-4Q": 10})
    made = [a.function for a in got.actions if isinstance(a, CreateVgpu)]
    assert made == [factory.address(n) for n in (1, 3, 4, 5, 6, 7, 8, 9)]
    assert (got.kept, got.destroyed) == (2, 0)


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
    assert near.next_step == f'aliquot plan --gpu {of.pci} --vgpu "NVIDIA A2-4Q*2"'


@pytest.mark.parametrize("policy", ["wait", "force"])
def test_a_held_vgpu_goes_first_under_other_policies(policy: str) -> None:
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
    of = replace(of, virtual=replace(of.virtual, remembered=(gone,)))
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
    here = VgpuWish(number, name, function=factory.address(3), uuid="u-3")
    free = VgpuWish(other.id or 0, other.name)
    got = asked(of, GpuWish(of.pci, None, (), vgpus=(here, free), functions=True))
    assert kinds(got) == [DestroyVgpu, CreateVgpu, CreateVgpu]
    after = done(of, got)
    assert {(v.function, v.uuid) for v in after.vgpus if v.type == name} == {(factory.address(3), "u-3")}
    wrong = asked(of, GpuWish(of.pci, None, (), vgpus=(replace(here, function="0000:99:00.4"),), functions=True))
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
    wishes = (VgpuWish(number, name, placement=16), VgpuWish(number, name), VgpuWish(number, name))
    got = asked(of, GpuWish(of.pci, None, (), vgpus=wishes[:2], functions=True, mixed=True))
    assert [b.rule for b in got.blockers] == []
    places = [a.placement for a in got.actions if isinstance(a, CreateVgpu)]
    assert places == [0, 16]
    alone = asked(of, GpuWish(of.pci, None, (), vgpus=wishes[:1], functions=True, mixed=True))
    assert blocker(alone).rule == "MIXED_SIZE"
    assert "first free place" in blocker(alone).message


def test_mixed_size_mode_is_left_where_it_is_unless_the_wish_needs_it_off() -> None:
    of = factory.gpu(L40S, mixed=True)
    assert kinds(vgpus(of, {"L40S-4Q": 8})) == [CreateVgpu] * 8
    assert kinds(vgpus(of, {"L40S-4Q": 12})) == [SetMixedSize, *[CreateVgpu] * 12]
    assert blocker(vgpus(of, {"L40S-4Q": 12}, mixed=True)).rule == "MIXED_SIZE"
    assert blocker(vgpus(of, {"L40S-4Q": 12}, mixed=True)).suggestion == "NVIDIA L40S-4Q*8"
    each = factory.kind(L40S, "4Q")
    busy = factory.having(of, (each, 0, 0), held=[0])
    assert blocker(asked(busy, replace(BARE, mixed=False))).rule == "HELD"


# -- passthrough


def test_a_gpu_is_handed_out_and_taken_back() -> None:
    of = factory.gpu(H100, on=True)
    out = asked(of, replace(BARE, passthrough=True))
    assert kinds(out) == [SetFunctions, SetPassthrough]
    away = done(of, out)
    assert asked(away, replace(BARE, passthrough=True)).actions == ()
    assert asked(away, GpuWish(of.pci, mig=False, instances=())).actions == ()
    assert kinds(asked(away, replace(BARE, passthrough=False))) == [SetPassthrough]
    back = vgpus(away, {"H100-10C": 1})
    assert kinds(back) == [SetPassthrough, SetFunctions, CreateVgpu]
    wish = GpuWish(of.pci, mig=True, instances=(InstanceWish(9, "3g.40gb", (2,)),))
    assert kinds(asked(away, wish)) == [SetPassthrough, SetMode, Create]
    used = replace(away, holders=(factory.VM,))
    for refused in (vgpus(used, {"H100-10C": 1}), asked(used, wish), asked(used, replace(BARE, passthrough=False))):
        assert blocker(refused).rule == "PASSTHROUGH"
        assert blocker(refused).holders == (factory.VM,)
    assert kinds(asked(used, wish, Policy("force"))) == [SetPassthrough, SetMode, Create]


def test_mig_mode_comes_back_with_the_gpu_where_the_family_keeps_it() -> None:
    wish = GpuWish(factory.PCI, mig=True, instances=())
    away = done(
        factory.gpu(A100, on=False, mig=True),
        asked(factory.gpu(A100, on=False, mig=True), replace(BARE, passthrough=True)),
    )
    assert away.virtual is not None
    assert away.virtual.was_mig
    assert asked(away, wish).actions == ()
    got = asked(away, replace(wish, passthrough=False))
    assert kinds(got) == [SetPassthrough]
    assert done(away, got).mig.enabled


def test_why_a_gpu_is_not_handed_out() -> None:
    of = factory.gpu(A2)
    out = replace(BARE, passthrough=True)
    assert of.virtual is not None
    assert blocker(asked(of, out, host=VirtualHost(iommu=False, vgpu_manager=True))).rule == "NO_IOMMU"
    # Before anything is destroyed for it: after a boot nothing else has loaded it.
    late = blocker(asked(of, replace(out, vgpus=()), host=VirtualHost(iommu=True, vfio=False, vgpu_manager=True)))
    assert (late.rule, "modprobe vfio-pci" in (late.next_step or "")) == ("NO_VFIO", True)
    members = (of.pci, "0000:08:00.1", "0000:09:00.0")
    grouped = replace(of, virtual=replace(of.virtual, group_members=members))
    assert SetPassthrough in kinds(asked(grouped, out)), "what a group has besides may be bridges, or have no driver"
    grouped = replace(
        of, virtual=replace(of.virtual, group_members=members, strangers=(Stranger("0000:09:00.0", "igb"),))
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


def test_virtual_functions_are_handed_out_alone() -> None:
    of = factory.having(factory.gpu(A2), (factory.kind(A2, "4Q"), 1))
    two = (factory.address(1), factory.address(5))
    got = asked(of, replace(BARE, bound=two))
    assert kinds(got) == [DestroyVgpu, SetPassthrough, SetPassthrough]
    after = done(of, got)
    assert after.virtual is not None
    assert [f.pci for f in after.virtual.functions if f.driver == VFIO] == list(two)
    # A vGPU never comes on a function that is handed out, and mode changes bring the binding back.
    made = vgpus(after, {"A2-4Q": 4})
    assert not {a.function for a in made.actions if isinstance(a, CreateVgpu)} & set(two)
    assert kinds(asked(after, replace(BARE, bound=()))) == [SetPassthrough, SetPassthrough]
    assert blocker(asked(of, replace(BARE, bound=("0000:99:00.0",)))).rule == "NO_FUNCTION"
    assert blocker(asked(of, replace(BARE, bound=two), host=VirtualHost(iommu=False))).rule == "NO_IOMMU"
    assert blocker(asked(of, replace(BARE, bound=two), host=VirtualHost(iommu=True))).rule == "NO_VFIO"


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
    away = tuple(replace(f, driver=VFIO) if f.number < 14 else f for f in of.virtual.functions)
    refused = blocker(vgpus(replace(of, virtual=replace(of.virtual, functions=away)), {"A2-4Q": 3}))
    assert refused.rule == "NO_FUNCTION"
    assert refused.suggestion == "NVIDIA A2-4Q*2"
    some = replace(of, virtual=replace(of.virtual, functions=of.virtual.functions[:2]))
    assert vgpus(some, {"A2-4Q": 2}).actions[0] == vgpus(of, {"A2-4Q": 2}).actions[0]
    assert [a.count for a in vgpus(some, {"A2-4Q": 3}).actions if isinstance(a, SetFunctions)] == [0, 16]


# -- the rest of the refusals


def test_types() -> None:
    of = factory.gpu(A2)

    def refused(number: int, name: str) -> Blocker:
        return blocker(asked(of, GpuWish(of.pci, None, (), vgpus=(VgpuWish(number, name),), functions=True)))

    assert refused(99999, "NVIDIA A2-99Q").rule == "UNKNOWN_TYPE"
    wrong = refused(1150, "NVIDIA L40S-4Q")
    assert wrong.rule == "WRONG_CARD"
    assert "NVIDIA L40S, not of NVIDIA A2" in wrong.message
    assert refused(0, "NVIDIA A2-3B").rule == "TYPE_WITHOUT_ID"
    assert refused(0, "NVIDIA A2-3B").next_step == f"aliquot vgpu types {of.pci}"


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
    mixed = replace(BARE, mig=True, instances=(), mixed=True)
    assert blocker(asked(factory.gpu(H100), mixed)).rule == "MIXED_SIZE"


def test_no_vgpu_driver() -> None:
    of = factory.gpu(A2, on=False)
    ordinary = VirtualHost(iommu=True, vfio=True, vgpu_manager=False)
    wish = factory.wish(of, {"A2-4Q": 1}).gpus[0]
    assert blocker(asked(of, wish, host=ordinary)).rule == "NO_VGPU_DRIVER"
    assert blocker(asked(of, replace(BARE, functions=True), host=ordinary)).rule == "NO_VGPU_DRIVER"
    assert asked(of, replace(BARE, vgpus=(), functions=False), host=ordinary).actions == ()
    assert blocker(asked(replace(of, virtual=None), wish, host=ordinary)).rule == "NO_VGPU_DRIVER"
    bare_t4 = replace(factory.gpu(T4), virtual=Virtual())
    assert blocker(vgpus(bare_t4, {"T4-4Q": 1})).rule == "NO_VGPU_DRIVER"


def test_seventeen_vgpus_and_a_lost_gpu() -> None:
    assert blocker(vgpus(factory.gpu(A2), {"A2-1Q": 17})).suggestion == "NVIDIA A2-1Q*16"
    assert blocker(vgpus(replace(factory.gpu(A2), lost=True), {"A2-1Q": 1})).rule == "GPU_LOST"


def test_a_guest_says_what_to_reboot_and_what_to_do_then() -> None:
    inside = replace(factory.gpu(A100, on=False), reset=False)
    got = asked(inside, GpuWish(inside.pci, mig=True, instances=()))
    assert got.reboots == (inside.pci,)
    assert "reboot the virtual machine, then ask for the same again" in got.notes[-1]
    shared = asked(inside, factory.wish(inside, {"A100-1-5C": 1}).gpus[0])
    assert kinds(shared) == [SetMode]
    assert shared.reboots == (inside.pci,)


# -- verify, undo, step


def test_drift_is_told_one_by_one() -> None:
    of = factory.having(factory.gpu(A2), (factory.kind(A2, "4A"), 0), (factory.kind(A2, "4Q"), 1))
    name, number = kind(A2, "4Q")
    pinned = VgpuWish(number, name, function=factory.address(0))
    wish = GpuWish(of.pci, None, None, vgpus=(pinned, VgpuWish(number, name), VgpuWish(number, name)), mixed=True)
    drift = verify(factory.node(of), Desired(gpus=(replace(wish, functions=False, bound=(factory.address(9),)),)))
    assert [d.kind for d in drift] == ["functions", "mixed-size", "bound", "vgpu-type", "vgpu-missing"]
    assert drift[3].message == f"GPU {of.pci}: {factory.address(0)} has NVIDIA A2-4A, it should have NVIDIA A2-4Q"
    assert drift[4].message == f"GPU {of.pci}: 1 x NVIDIA A2-4Q missing"
    extra = verify(factory.node(of), Desired(gpus=(replace(BARE, vgpus=()),)))
    assert {d.kind for d in extra} == {"vgpu-extra"}
    away = verify(factory.node(of), Desired(gpus=(replace(BARE, passthrough=True),)))
    assert [d.kind for d in away] == ["passthrough"]


def test_undoing_spares_what_others_made() -> None:
    each = factory.kind(A2, "4Q")
    before = factory.node(factory.having(factory.gpu(A2), (each, 0)))
    got = plan(before, factory.wish(before.gpus[0], {"A2-4Q": 2}))
    made = [a for a in got.actions if isinstance(a, CreateVgpu)]
    now: Inventory = before
    for action in got.actions:
        now = step(now, action)
    theirs = Vgpu(factory.address(9), each.id or 0, each.name, "theirs")
    now = replace(now, gpus=(replace(now.gpus[0], vgpus=(*now.gpus[0].vgpus, theirs)),))
    goal = sparing(former(before, [before.gpus[0].pci]), before, now, made)
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
        replace(gone, uuid=vgpu.uuid, claim=vgpu.claim),
        SetFunctions(gpu=pci, reason="", count=0),
        SetFunctions(gpu=pci, reason="", count=99),
        SetMixedSize(gpu=pci, reason="", on=True),
        SetPassthrough(gpu=pci, reason="", on=True),
        SetPassthrough(gpu=pci, reason="", on=True, function=vgpu.function),
        SetPassthrough(gpu=pci, reason="", on=False),
    ]
    for action in refused:
        with pytest.raises(StepRefused):
            step(node, action)


def test_functions_keep_their_numbers() -> None:
    """A guard on the factory: function ten is one device further."""
    assert factory.functions(16)[12] == VirtualFunction("0000:08:02.0", 12, "nvidia", 102)


def test_vendor_specific_functions_are_not_bound() -> None:
    of = factory.gpu(L40S)
    refused = blocker(asked(of, replace(BARE, bound=(factory.address(1),))))
    assert refused.rule == "NO_FUNCTION"
    assert "as it is" in refused.message


def test_types_that_the_driver_does_not_list_are_refused() -> None:
    """As on a captured L40S, whose driver lists types of the A, B and Q series."""
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
    assert blocker(vgpus(busy, {"L40S-8C": 1})).rule == "SERIES", "another size, but the series is not there"
    assert not vgpus(busy, {"L40S-8Q": 1}).blockers, "another size is not listed beside these"
    fewer = tuple(n for n in offered if n != factory.kind(L40S, "3B").id)
    old = replace(of, virtual=replace(of.virtual, creatable=fewer))
    assert "does not list NVIDIA L40S-3B" in blocker(vgpus(old, {"L40S-3B": 1})).message


def test_a_vgpu_on_a_virtual_function_needs_an_iommu() -> None:
    off = VirtualHost(iommu=False, vgpu_manager=True)
    of = factory.gpu(A2)
    wish = factory.wish(of, {"A2-4Q": 1})
    assert blocker(plan(factory.node(of, host=off), wish)).rule == "NO_IOMMU"
    t4 = factory.gpu(T4)
    assert not plan(factory.node(t4, host=off), factory.wish(t4, {"T4-4Q": 1})).blockers, "an mdev of the GPU does not"


def test_who_holds_the_vgpu_is_named_where_mig_mode_would_go_off() -> None:
    of = done(factory.gpu(H100), vgpus(factory.gpu(H100), {"H100-1-10C": 1}))
    used = replace(of, vgpus=tuple(replace(v, holders=(factory.VM,)) for v in of.vgpus))
    refused = blocker(vgpus(used, {"H100-10C": 1}))
    assert (refused.rule, refused.holders) == ("HELD", (factory.VM,))


def test_instances_under_idle_vgpus_say_how_to_be_rid_of_those() -> None:
    of = done(factory.gpu(H100), vgpus(factory.gpu(H100), {"H100-1-10C": 1}))
    cut = replace(BARE, mig=False, instances=())
    assert "which nobody uses" in (blocker(asked(of, cut)).next_step or "")
    used = replace(of, vgpus=tuple(replace(v, holders=(factory.VM,)) for v in of.vgpus))
    assert "which nobody uses" not in (blocker(asked(used, cut)).next_step or "")


def test_why_gpu_instances_go() -> None:
    of = done(factory.gpu(H100), vgpus(factory.gpu(H100), {"H100-1-10C": 1}))
    off = asked(of, replace(BARE, vgpus=(), functions=False))
    assert {a.reason for a in off.actions if isinstance(a, Destroy)} == {"switching virtual functions takes them away"}
    off = vgpus(of, {"H100-10C": 1})
    assert {a.reason for a in off.actions if isinstance(a, Destroy)} == {"MIG mode goes off"}
