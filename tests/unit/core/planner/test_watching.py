"""Results of a series of observations: idle times, peaks, and instances that count as new."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.model.inventory import Gpu, Holder, Inventory, Vgpu
from aliquot.core.model.usage import Usage
from aliquot.core.planner.usage_tracking import (
    GAP_S,
    Recreation,
    UsageHistory,
    round_peaks,
    update_history,
    usage_of_unchanged,
    with_history,
    worth_writing,
)
from support.factory import inventory, with_instances

replace = msgspec.structs.replace
NODE = inventory("h100-80gb-hbm3", enabled=True)
PCI = NODE.gpus[0].pci
START = 1_000_000.0


def node(*names: str, held: Collection[int] = ()) -> Inventory:
    """Build a node with one GPU and these instances. ``held`` are positions."""
    gpu = with_instances(NODE, 0, *names).gpus[0]
    instances = tuple(replace(i, held=n in held) for n, i in enumerate(gpu.instances))
    return replace(NODE, gpus=(replace(gpu, instances=instances),))


def used(at: Inventory, mib: int | None, compute: float | None = None) -> list[Usage]:
    return [Usage(PCI, i.id, i.profile, mib, 20000, compute) for i in at.gpus[0].instances]


def observations(
    *steps: tuple[float, Inventory, int | None], made: Collection[Recreation] = ()
) -> tuple[UsageHistory, tuple[Usage, ...]]:
    """Observe each step, and return the usage at the last one. ``made`` is passed to every observation but the
    first.
    """
    watch, usage = UsageHistory(), list[Usage]()
    for n, (at, seen, mib) in enumerate(steps):
        usage = used(seen, mib)
        watch = update_history(watch, seen, usage, START + at, "boot", recreated=made if n else ())
    return watch, with_history(watch, usage)


IDLE, HELD = node("3g.40gb@0"), node("3g.40gb@0", held=[0])


def test_idle_is_counted_from_the_first_look_that_found_it_so() -> None:
    assert observations((0, HELD, 5))[1][0].idle_since is None
    assert observations((0, HELD, 5), (45, IDLE, 5), (90, IDLE, 5))[1][0].idle_since == START + 45
    assert observations((0, IDLE, 5), (45, IDLE, 5))[1][0].idle_since == START
    assert observations((0, IDLE, 5), (45, HELD, 5), (90, IDLE, 5))[1][0].idle_since == START + 90


def test_the_most_is_kept() -> None:
    watch, (last,) = observations((0, HELD, 100), (45, HELD, 900), (90, IDLE, 10))
    assert (last.peak_mib, last.memory_used_mib, last.watched_since) == (900, 10, START)
    assert watch.at == START + 90


def test_what_is_not_reported_is_not_zero() -> None:
    (last,) = observations((0, HELD, None), (45, HELD, None))[1]
    assert (last.peak_mib, last.peak_compute) == (None, None)
    assert observations((0, HELD, None), (45, HELD, 7), (90, HELD, None))[1][0].peak_mib == 7


def test_shares_have_a_peak_too() -> None:
    watch = update_history(UsageHistory(), HELD, used(HELD, 1, 0.25), START)
    watch = update_history(watch, HELD, used(HELD, 1, None), START + 45)
    assert watch.tracked[0].peak_compute == 0.25


def test_an_instance_that_was_not_read_is_reported_without_figures() -> None:
    watch = update_history(UsageHistory(), IDLE, (), START)
    assert with_history(watch, ()) == (Usage(PCI, 1, "3g.40gb", idle_since=START, watched_since=START),)


@pytest.mark.parametrize("seconds", [GAP_S + 1, 3600.0, -1.0])
def test_a_pause_or_a_clock_set_back_starts_everything_again(seconds: float) -> None:
    (last,) = observations((0, IDLE, 900), (seconds, IDLE, 10))[1]
    assert (last.idle_since, last.watched_since, last.peak_mib) == (START + seconds, START + seconds, 10)


def test_a_short_pause_is_none() -> None:
    assert observations((0, IDLE, 9), (GAP_S, IDLE, 1))[1][0].idle_since == START


def test_a_reboot_starts_everything_again() -> None:
    watch = update_history(UsageHistory(), IDLE, used(IDLE, 900), START, "one boot")
    assert update_history(watch, IDLE, used(IDLE, 1), START + 30, "another").tracked[0].since == START + 30


def test_an_instance_seen_gone_in_between_is_another_one() -> None:
    (last,) = observations((0, IDLE, 900), (45, node(), 0), (90, IDLE, 10))[1]
    assert (last.idle_since, last.watched_since, last.peak_mib) == (START + 90, START + 90, 10)


def test_one_that_was_replaced_by_another_profile_is_another_one() -> None:
    assert observations((0, IDLE, 900), (45, node("2g.20gb@0"), 10))[1][0].watched_since == START + 45


@pytest.mark.parametrize("what", ["0:4", "", "#1"])
def test_what_aliquot_made_again_at_the_same_place_is_another_one(what: str) -> None:
    assert IDLE.gpus[0].instances[0].placement == "0:4"
    (last,) = observations((0, IDLE, 900), (45, IDLE, 10), made=[(PCI, what)])[1]
    assert (last.watched_since, last.peak_mib) == (START + 45, 10)


@pytest.mark.parametrize("made", [("0000:ff:00.0", ""), (PCI, "4:4"), (PCI, "#2")])
def test_what_was_made_elsewhere_changes_nothing(made: Recreation) -> None:
    assert observations((0, IDLE, 900), (45, IDLE, 10), made=[made])[1][0].watched_since == START


def test_a_cut_beside_it_changes_nothing() -> None:
    # Held instances keep their history through every repartition of the others.
    both = node("3g.40gb@0", "1g.10gb@4", held=[0])
    first, second = observations((0, both, 900), (45, HELD, 1), (90, both, 1))[1]
    assert (first.watched_since, first.peak_mib, first.idle_since) == (START, 900, None)
    assert second.watched_since == START + 90


def whole(gpu: Gpu) -> Inventory:
    return replace(NODE, gpus=(gpu,))


def test_a_whole_gpu_outside_mig_is_a_piece() -> None:
    gpu = inventory("h100-80gb-hbm3").gpus[0]
    busy = replace(gpu, holders=(Holder("process", "7"),))
    vm = replace(gpu, vgpus=(Vgpu("0000:07:00.4", 1, "x", holders=(Holder("vm", "7"),)),))
    assert [p.idle for p in update_history(UsageHistory(), whole(gpu), (), START).tracked] == [START]
    assert [p.idle for p in update_history(UsageHistory(), whole(busy), (), START).tracked] == [None]
    assert [p.idle for p in update_history(UsageHistory(), whole(vm), (), START).tracked] == [None]
    for unavailable in (replace(gpu, lost=True), replace(gpu, passthrough=True), NODE.gpus[0]):
        assert update_history(UsageHistory(), whole(unavailable), (), START).tracked == ()


def test_only_what_matters_is_written_down() -> None:
    kept = round_peaks(observations((0, HELD, 500))[0])
    assert not worth_writing(kept, observations((0, HELD, 500), (45, HELD, 510))[0]), (
        "time passes, and a peak rises a little"
    )
    assert worth_writing(kept, observations((0, HELD, 500), (45, HELD, 800))[0])
    assert worth_writing(kept, observations((0, HELD, 500), (45, IDLE, 500))[0])
    assert worth_writing(kept, observations((0, HELD, 500), (45, node(), 0))[0])
    assert worth_writing(UsageHistory(), observations((0, HELD, 500))[0])
    share = update_history(kept, HELD, used(HELD, 500, 0.9), START + 45, "boot")
    assert worth_writing(kept, share)
    assert not worth_writing(round_peaks(share), update_history(share, HELD, used(HELD, 500, 0.9), START + 90, "boot"))


def test_what_is_written_down_is_never_less() -> None:
    # A maximum stays correct after a restart.
    watch = update_history(UsageHistory(), HELD, used(HELD, 500, 0.31), START)
    assert [(p.peak_mib, p.peak_compute) for p in round_peaks(watch).tracked] == [(512, 0.35)]
    assert round_peaks(round_peaks(watch)) == round_peaks(watch)
    nothing = update_history(UsageHistory(), HELD, used(HELD, None), START)
    assert round_peaks(nothing) == nothing


STATES = st.lists(st.tuples(st.floats(1, 400), st.booleans(), st.integers(0, 5000)), min_size=1, max_size=20)


@given(STATES, st.integers(0, 20))
def test_a_lost_record_makes_it_younger_and_never_older(states: list[tuple[float, bool, int]], lost: int) -> None:
    # Compares two watchers with the same observations, one of which loses its history before one of them.
    at, one, two = START, UsageHistory(), UsageHistory()
    for n, (pause, held, mib) in enumerate(states):
        at += pause
        seen = HELD if held else IDLE
        one = update_history(one, seen, used(seen, mib), at, "boot")
        two = update_history(UsageHistory() if n == lost else two, seen, used(seen, mib), at, "boot")
        (whole_record,), (lost_record,) = one.tracked, two.tracked
        assert (whole_record.idle is None) == (lost_record.idle is None) == held
        assert (lost_record.idle or 0) >= (whole_record.idle or 0)
        assert lost_record.since >= whole_record.since
        assert (lost_record.peak_mib or 0) <= (whole_record.peak_mib or 0)


def test_it_survives_being_written_down() -> None:
    watch, _ = observations((0, HELD, 500), (45, IDLE, 500))
    assert msgspec.json.decode(msgspec.json.encode(watch), type=UsageHistory) == watch


def test_what_was_reported_of_an_instance_is_not_reported_of_another_with_its_id() -> None:
    # Ids repeat: a new instance has not been idle since the time of the old one.
    was = node("3g.40gb@0", "3g.40gb@4")
    usage = used(was, 900)
    assert usage_of_unchanged(usage, was, was) == tuple(usage)
    assert usage_of_unchanged(usage, was, node("3g.40gb@0", "3g.40gb@4", held=[1])) == tuple(usage), (
        "the holder does not matter"
    )
    assert usage_of_unchanged(usage, was, node("4g.40gb@0")) == (), "another profile"
    assert usage_of_unchanged(usage, was, node("3g.40gb@4")) == (), "another place"
    assert usage_of_unchanged(usage, was, was, changed=[PCI]) == (), "created again at the same place"
    assert usage_of_unchanged(usage, was, NODE) == ()
