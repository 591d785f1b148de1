"""The planner against brute force: feasibility and least destruction, on every state and every geometry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aliquot.core.model import catalog
from aliquot.core.model.actions import Action, Create, Destroy
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan
from aliquot.core.planner.semantics import step
from laws.oracle import mig_nodes, raw
from support.selection import dice as dice_of
from support.selection import parts, samples

A100 = "a100-40gb"
SAMPLES = samples(350)


def names(geometry: tuple[tuple[str, int], ...]) -> Iterator[str]:
    for name, n in geometry:
        yield from [name] * n


def check(family: str, now: raw.State, held: raw.State, geometry: tuple[tuple[str, int], ...], base: bool) -> None:
    """Check one plan: its end state, its cost, and the legality of every step."""
    table = catalog.family(family)
    inventory = mig_nodes.node(mig_nodes.gpu(table, now, held))
    got = plan(inventory, mig_nodes.desired_state(table, names(geometry)))
    targets = raw.by_geometry(family, base)[geometry]
    held_gone, gone = raw.least(now, held, targets)
    if held_gone:
        assert [b.rule for b in got.blockers] == ["HELD"]
        assert got.actions == ()
        assert got.blockers[0].holders
        return
    assert not got.blockers, got.blockers
    assert (got.destroyed, got.unchanged) == (gone, len(now) - gone)
    assert not any(isinstance(a, Destroy) and (a.profile, _start(a)) in held for a in got.actions)
    end = walk(family, now, got)
    assert end in targets
    best = max(raw.room(family, t) for t in targets if raw.least(now, held, (t,)) == (0, gone))
    assert raw.room(family, end) == best
    inner = inventory
    for action in got.actions:
        inner = step(inner, action)
    assert {(i.profile, i.place.start) for i in inner.gpus[0].instances} == end


def _start(action: Action) -> int:
    assert isinstance(action, Create | Destroy)
    return int(action.placement.partition(":")[0])


def walk(family: str, now: raw.State, got: Plan) -> raw.State:
    """Apply the plan on the raw tables. Every state on the way must be legal."""
    state = now
    for action in got.actions:
        place = (action.profile, _start(action)) if isinstance(action, Create | Destroy) else None
        assert place is not None, action
        if isinstance(action, Destroy):
            assert place in state
            state -= {place}
        else:
            state |= {place}
            assert raw.legal(family, state), (place, state)
    return state


def test_the_number_of_states_is_as_published() -> None:
    assert len(raw.states(A100, base_only=True)) == 298
    assert len(raw.by_geometry(A100, base_only=True)) == 38


@pytest.mark.parametrize("part", parts(4))
def test_every_state_and_every_geometry_of_a100_40gb(part: int) -> None:
    # 298 placed states x 38 geometries = 11,324 plans.
    geometries = raw.by_geometry(A100, base_only=True)
    for now in raw.states(A100, base_only=True)[part::4]:
        for geometry in geometries:
            check(A100, now, frozenset(), geometry, base=True)


def test_held_instances_on_a100_40gb() -> None:
    # Covers every state, with random subsets of its instances held, against random geometries.
    dice = dice_of("held")
    geometries = list(raw.by_geometry(A100, base_only=True))
    for now in raw.states(A100, base_only=True):
        for _ in range(samples(6)):
            held = frozenset(p for p in now if dice.random() < 0.4)
            check(A100, now, held, dice.choice(geometries), base=True)


@pytest.mark.slow
@pytest.mark.parametrize("family", raw.families())
def test_samples_of_every_family(family: str) -> None:
    dice = dice_of(family)
    states = raw.states(family)
    geometries = list(raw.by_geometry(family))
    for _ in range(SAMPLES):
        now = dice.choice(states)
        held = frozenset(p for p in now if dice.random() < 0.25)
        check(family, now, held, dice.choice(geometries), base=False)


@pytest.mark.slow
@pytest.mark.parametrize("family", raw.families())
def test_infeasible_exactly_when_the_oracle_says_so(family: str) -> None:
    # The planner refuses exactly those random multisets of profiles that have no legal placed state.
    dice = dice_of(f"{family} infeasible")
    table = catalog.family(family)
    profiles = [p.name for p in table.profiles]
    geometries = raw.by_geometry(family)
    refused = 0
    for _ in range(SAMPLES):
        wanted = [dice.choice(profiles) for _ in range(dice.randint(1, table.compute_slices + 1))]
        got = plan(mig_nodes.node(mig_nodes.gpu(table, [])), mig_nodes.desired_state(table, wanted))
        feasible = tuple(sorted((n, wanted.count(n)) for n in set(wanted))) in geometries
        assert bool(got.blockers) != feasible, (wanted, got.blockers)
        if got.blockers:
            refused += 1
            assert got.actions == ()
            assert got.blockers[0].message
            assert got.blockers[0].next_step
            assert got.blockers[0].suggestion
    assert refused


def test_the_driver_s_own_choice_among_equals() -> None:
    # Ids from real hardware, for a request of six 1g.5gb and one 1g.5gb+me without placements.
    table = catalog.family(A100)
    got = plan(mig_nodes.node(mig_nodes.gpu(table, [])), mig_nodes.desired_state(table, ["1g.5gb+me", *["1g.5gb"] * 6]))
    inventory = mig_nodes.node(mig_nodes.gpu(table, []))
    for action in got.actions:
        inventory = step(inventory, action)
    ids: dict[str, list[int]] = {}
    for instance in inventory.gpus[0].instances:
        ids.setdefault(instance.profile, []).append(instance.id)
    assert ids == {"1g.5gb": [7, 8, 9, 11, 12, 13], "1g.5gb+me": [10]}
