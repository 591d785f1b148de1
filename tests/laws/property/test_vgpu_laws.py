"""Planning laws for GPUs that are shared with VMs."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

import support.vgpufactory as factory
from aliquot.core.model.actions import CreateVgpu, DestroyVgpu
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Gpu, Inventory, Mig, MigMode
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import VFIO, make_restore_point
from aliquot.core.planner.semantics import step
from aliquot.core.planner.verify import verify
from laws.property import vgpu_strategies as strategies
from support.selection import laws

LAWS = laws(400)
replace = msgspec.structs.replace

Where = set[tuple[str, str, str, str]]


def vgpus(inventory: Inventory, held: bool = False) -> Where:
    """Return the (GPU, function, UUID, type) of each vGPU (or each held one)."""
    return {(g.pci, v.function, v.uuid, v.type) for g in inventory.gpus for v in g.vgpus if v.held or not held}


def states(inventory: Inventory, got: Plan) -> list[Inventory]:
    out = [inventory]
    for action in got.actions:
        out.append(step(out[-1], action))
    return out


@LAWS
@given(strategies.nodes(size=2))
def test_a_plan_ends_in_the_request_and_spares_the_held(case: tuple[Inventory, Desired]) -> None:
    inventory, desired = case
    got = plan(inventory, desired)
    if got.blockers:
        assert got.actions == ()
        assert all(b.message and b.next_step and b.gpu for b in got.blockers)
        return
    path = states(inventory, got)
    for state in path:
        assert vgpus(inventory, held=True) <= vgpus(state)
    assert verify(path[-1], desired) == ()
    again = plan(path[-1], desired)
    assert again.actions == ()
    assert not again.blockers


@LAWS
@given(strategies.nodes())
def test_what_is_satisfied_is_left_alone_and_the_figures_are_true(case: tuple[Inventory, Desired]) -> None:
    inventory, desired = case
    got = plan(inventory, desired)
    if got.blockers:
        return
    end = states(inventory, got)[-1]
    if verify(inventory, desired) == ():
        assert vgpus(inventory) == vgpus(end)
    gone = {(a.gpu, a.function, a.uuid, a.type) for a in got.actions if isinstance(a, DestroyVgpu)}
    made = {(a.gpu, a.function, a.uuid, a.type) for a in got.actions if isinstance(a, CreateVgpu)}
    assert vgpus(end) == (vgpus(inventory) - gone) | made
    whole = len(vgpus(inventory)) + sum(len(g.instances) for g in inventory.gpus)
    if not any(g.passthrough for g in inventory.gpus):
        assert got.unchanged + got.destroyed == whole


@LAWS
@given(strategies.nodes(), st.data())
def test_cut_anywhere_and_planned_again_it_ends_the_same(case: tuple[Inventory, Desired], data: st.DataObject) -> None:
    inventory, desired = case
    got = plan(inventory, desired)
    if got.blockers:
        return
    path = states(inventory, got)
    cut = path[data.draw(st.integers(0, len(path) - 1))]
    rest = plan(cut, desired, got.policy)
    assert not rest.blockers
    end = states(cut, rest)[-1]
    assert verify(end, desired) == ()
    assert vgpus(end) == vgpus(path[-1]) or _handed(inventory)


def _handed(inventory: Inventory) -> bool:
    """Report whether vfio-pci has virtual functions that the request does not mention. After they return, nothing
    records them.
    """
    return any(f.driver == VFIO for g in inventory.gpus if g.virtual for f in g.virtual.functions)


@LAWS
@given(strategies.nodes(), st.data())
def test_the_way_back_leads_back(case: tuple[Inventory, Desired], data: st.DataObject) -> None:
    # From every state on the way, the previous desired state restores every vGPU under its UUID on its function.
    inventory, desired = case
    got = plan(inventory, desired)
    if got.blockers:
        return
    path = states(inventory, got)
    cut = path[data.draw(st.integers(0, len(path) - 1))]
    goal = make_restore_point(inventory, [g.pci for g in inventory.gpus])
    assert verify(inventory, goal) == ()
    assert plan(inventory, goal).actions == ()
    back = plan(cut, goal)
    if back.blockers:
        # The driver assigns places in the order of creation: a set with a gap in it may be impossible to restore.
        assert {b.rule for b in back.blockers} == {"MIXED_SIZE"}, back.blockers
        return
    end = states(cut, back)[-1]
    assert verify(end, goal) == ()
    assert vgpus(end) == vgpus(inventory)


@LAWS
@given(strategies.nodes(size=3), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(case: tuple[Inventory, Desired], dice: random.Random) -> None:
    inventory, desired = case
    got = plan(inventory, desired)
    requests = []
    for desired_gpu in desired.gpus:
        some = list(desired_gpu.vgpus or ())
        dice.shuffle(some)
        requests.append(replace(desired_gpu, vgpus=None if desired_gpu.vgpus is None else tuple(some)))
    gpus = list(inventory.gpus)
    dice.shuffle(gpus)
    dice.shuffle(requests)
    again = plan(replace(inventory, gpus=tuple(gpus)), replace(desired, gpus=tuple(requests)))
    assert again.actions == got.actions
    assert [b.rule for b in again.blockers] == [b.rule for b in got.blockers]


@LAWS
@given(strategies.nodes())
def test_force_destroys_the_held_only_where_it_must(case: tuple[Inventory, Desired]) -> None:
    inventory, desired = case
    gentle, forced = plan(inventory, desired), plan(inventory, desired, Policy("force"))
    if not gentle.blockers:
        assert forced.actions == gentle.actions
    elif {b.rule for b in gentle.blockers} <= {"HELD", "PASSTHROUGH", "FUNCTIONS_IN_USE"}:
        assert not forced.blockers
        assert forced.actions
    else:
        assert forced.actions == ()


def rebooted(gpu: Gpu, keeps: bool) -> Gpu:
    """Return a GPU after a reboot, without virtual functions, vGPUs, GPU instances and mixed-size mode. The owner map
    records the vGPUs.
    """
    assert gpu.virtual is not None
    mode: MigMode = "enabled" if gpu.mig.enabled and keeps else "disabled"
    virtual = replace(
        gpu.virtual,
        functions=(),
        framework="" if gpu.virtual.total else "mdev",
        mixed_size=False if gpu.virtual.total else None,
        recorded_vgpus=gpu.vgpus,
    )
    return replace(gpu, instances=(), vgpus=(), mig=Mig(gpu.mig.capable, mode, mode), virtual=virtual)


@LAWS
@given(strategies.nodes())
def test_a_reboot_brings_the_same_vgpus_back(case: tuple[Inventory, Desired]) -> None:
    # Created on a new GPU, lost in a reboot, requested again: the same functions, UUIDs, places and instances.
    inventory, desired = case
    gpu = factory.gpu(inventory.gpus[0].product, on=False)
    fresh = factory.node(gpu)
    got = plan(fresh, desired)
    if got.blockers or not desired.gpus[0].vgpus:
        return
    end = states(fresh, got)[-1]
    keeps = gpu.family is not None and inventory.family(gpu).mode.mode_survives_reboot
    lost = replace(end, gpus=(rebooted(end.gpus[0], keeps),))
    came = states(lost, plan(lost, desired))[-1]
    assert verify(came, desired) == ()
    assert came.gpus[0].vgpus == end.gpus[0].vgpus
