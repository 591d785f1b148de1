"""The plan and the page report an instance that is destroyed and created again elsewhere as moved."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.config.select.command_line import adhoc
from aliquot.core.model.actions import Create, Destroy
from aliquot.core.model.inventory import Holder, Inventory
from aliquot.core.model.plan import HeldPolicy, Plan, Policy
from aliquot.core.planner.plan import plan
from aliquot.dashboard.change_requests import FitInstance
from aliquot.dashboard.local import preview_requests
from aliquot.dashboard.local.node_access import NodeObservation
from aliquot.dashboard.pages import plan_text
from support import factory
from support.selection import laws

A100 = "a100-sxm4-40gb"
HOLDER = Holder("process", "4711", "python")


def node(*instances: str, held: tuple[int, ...] = ()) -> Inventory:
    """Build an A100 with these instances. ``held`` are the indexes of the held ones."""
    made = factory.with_instances(factory.inventory(A100), 0, *instances)
    gpu = made.gpus[0]
    cut = tuple(
        msgspec.structs.replace(i, held=True, holders=(HOLDER,)) if n in held else i
        for n, i in enumerate(gpu.instances)
    )
    return msgspec.structs.replace(made, gpus=(msgspec.structs.replace(gpu, instances=cut),))


def asked_for(inventory: Inventory, mig: str, policy: HeldPolicy = "refuse") -> Plan:
    rules = Policy(held=policy)
    return plan(inventory, adhoc([inventory.gpus[0].pci], [mig], inventory), rules)


def reasons(made: Plan) -> list[str]:
    found = []
    for each in made.actions:
        assert isinstance(each, Destroy | Create)
        verb = "destroy" if isinstance(each, Destroy) else "create"
        found.append(f"{verb} {each.profile} {each.placement}: {each.reason}")
    return found


def test_what_makes_room_moves_and_what_was_asked_for_is_asked_for() -> None:
    seen = node("1g.5gb@1", "2g.10gb@4")
    made = preview_requests.preview(
        FitInstance(node="n", gpu=seen.gpus[0].pci, profile="4g.20gb"), {"n": NodeObservation(seen)}, None, _same
    )
    assert [(a.verb, a.what, a.reason) for a in made.actions] == [
        ("destroy", "1g.5gb at 1:1", "moves to 6:1, blocks 4g.20gb at 0:4"),
        ("create", "4g.20gb at 0:4", 'requested by "one more 4g.20gb"'),
        ("create", "1g.5gb at 6:1", "moved from 1:1"),
    ]
    assert [(gone.what, again.what) for gone, again in plan_text.moves(made.actions)] == [
        ("1g.5gb at 1:1", "1g.5gb at 6:1")
    ]


def _same(step: str, node: str) -> str:
    return step


def test_a_cut_tells_it_too() -> None:
    assert reasons(asked_for(node("1g.5gb@1"), "4g.20gb,1g.5gb")) == [
        "destroy 1g.5gb 1:1: moves to 6:1, blocks 4g.20gb at 0:4",
        "create 4g.20gb 0:4: requested",
        "create 1g.5gb 6:1: moved from 1:1",
    ]


def test_a_place_that_was_asked_for_is_no_move() -> None:
    assert reasons(asked_for(node("1g.5gb@1"), "4g.20gb,1g.5gb@5")) == [
        "destroy 1g.5gb 1:1: blocks 4g.20gb at 0:4",
        "create 4g.20gb 0:4: requested",
        "create 1g.5gb 5:1: requested",
    ]


def test_what_is_on_a_held_one_ends_it_does_not_move() -> None:
    (gone, *made) = reasons(asked_for(node("1g.5gb@1", held=(0,)), "4g.20gb,1g.5gb", "force"))
    assert gone == ("destroy 1g.5gb 1:1: blocks 4g.20gb at 0:4; held by process 4711 (python), policy force")
    assert not any("moved" in each for each in made)


def test_of_two_one_moves_where_one_is_wanted() -> None:
    found = reasons(asked_for(node("1g.5gb@0", "1g.5gb@1"), "4g.20gb,1g.5gb"))
    assert sum("moves to" in each for each in found) == sum("moved from" in each for each in found) == 1


@given(st.sets(st.sampled_from((0, 1, 2, 3, 4, 5, 6)), min_size=1, max_size=4), st.sampled_from(("2g.10gb", "3g.20gb")))
@laws(60)
def test_both_ends_name_each_other(taken: set[int], wanted: str) -> None:
    seen = node(*(f"1g.5gb@{start}" for start in sorted(taken)))
    made = asked_for(seen, ",".join([wanted, *["1g.5gb"] * len(taken)]))
    gone = {a.placement: a.reason for a in made.actions if isinstance(a, Destroy)}
    came = {a.placement: a.reason for a in made.actions if isinstance(a, Create)}
    moved = {
        place: why.removeprefix("moved from ").partition(";")[0]
        for place, why in came.items()
        if why.startswith("moved")
    }
    assert len(moved) == len(gone), "each is created again: the same number is requested"
    assert all(gone[was].startswith(f"moves to {place}") for place, was in moved.items())
