"""Decisions of the Slurm controller about slot boards: idle slots change beside running jobs, all demand at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from aliquot.slurm.client.models import Gres, SlurmJob
from aliquot.slurm.controller.models import SlurmDecision, SlurmNodeState
from aliquot.slurm.controller.settings import BOARD_LIMITS
from support.slurmboards import NOW, board, decided, layout, want

WHOLE = "7g.40gb@0"
HALVES = "3g.20gb@0,3g.20gb@4"
PATIENCE = 600.0


def state(decision: SlurmDecision, job: int) -> str:
    return next(v.state for v in decision.verdicts if v.job == job)


def why(decision: SlurmDecision, job: int) -> str:
    verdict = next(v for v in decision.verdicts if v.job == job)
    return "\n".join([verdict.sentence, *verdict.why])


def test_one_change_serves_all_tasks_of_an_array() -> None:
    decision = decided([board(*[WHOLE] * 8)], want(1, "3g.20gb", 16))
    (repartition,) = decision.repartitions
    assert repartition.offered == {"3g.20gb": 16}
    assert repartition.copies == {1: 16}
    assert "for 16 of its tasks" in why(decision, 1)


def test_a_job_on_a_gpu_blocks_its_own_slots_only() -> None:
    decision = decided([board(*[WHOLE] * 8, used=[0])], want(1, "3g.20gb", 16))
    (repartition,) = decision.repartitions
    assert repartition.copies == {1: 14}
    assert 0 not in layout(repartition), "GPU 0 has a job"


def test_the_other_half_of_a_gpu_changes_beside_a_job() -> None:
    decision = decided([board(HALVES, used=[4])], want(1, "1g.5gb", 3))
    (repartition,) = decision.repartitions
    assert layout(repartition)[0][:1] == ["3g.20gb@4"] or "3g.20gb@4" in layout(repartition)[0]
    assert repartition.copies == {1: 3}
    assert not decided([board(HALVES, used=[4])], want(1, "7g.40gb", submitted=int(NOW))).repartitions


def test_different_jobs_are_planned_together_by_priority() -> None:
    small, big = want(1, "1g.5gb", 7, priority=10), want(2, "7g.40gb", priority=999_999, submitted=9)
    behind = want(3, "2g.10gb", 3, priority=5, reason="Priority", follows=True)
    decision = decided([board(HALVES, HALVES, HALVES)], small, big, behind)
    (repartition,) = decision.repartitions
    assert repartition.copies == {2: 1, 1: 7, 3: 3}
    one = decided([board(HALVES)], small, big).repartitions[0]
    assert one.copies == {2: 1}, "the highest priority comes first"


def test_idle_instances_are_kept_where_they_serve_and_destroyed_where_they_do_not() -> None:
    decision = decided([board(HALVES, HALVES)], want(1, "3g.20gb", 2, priority=9), want(2, "7g.40gb"))
    assert state(decision, 1) == "covered"
    (repartition,) = decision.repartitions
    assert repartition.copies == {2: 1}
    assert repartition.destroyed == 2
    assert len(layout(repartition)) == 1


def test_the_tasks_that_free_devices_suit_keep_them_while_the_others_get_a_change() -> None:
    (repartition,) = decided([board(HALVES, WHOLE)], want(1, "3g.20gb", 4)).repartitions
    assert repartition.copies == {1: 2}
    assert layout(repartition) == {1: ["3g.20gb@0", "3g.20gb@4"]}


def test_tasks_are_spread_over_boards_in_one_round() -> None:
    boards = [board(WHOLE, WHOLE, name=f"n{n}") for n in range(3)]
    decision = decided(boards, want(1, "3g.20gb", 9))
    assert sum(r.copies[1] for r in decision.repartitions) == 9
    assert len(decision.repartitions) == 3


def test_no_more_tasks_than_the_free_cpus_allow() -> None:
    (repartition,) = decided([board(WHOLE, WHOLE, used=[0], cpus=3)], want(1, "1g.5gb", 7)).repartitions
    assert repartition.copies == {1: 2}
    full = decided([board(WHOLE, WHOLE, used=[0], cpus=1)], want(1, "1g.5gb"))
    assert not full.repartitions
    assert "its CPUs or its memory are in use" in why(full, 1)


def test_no_limit_of_idle_time_applies_and_the_others_only_between_users() -> None:
    recent = board(WHOLE, idle_since=NOW, last_change=NOW - 1, recent=1000)
    assert decided([recent], want(1, "3g.20gb", user="eve")).repartitions
    both = decided([recent], want(1, "3g.20gb", user="eve"), want(2, "7g.40gb", 2, user="bob"))
    assert not both.repartitions
    assert "changed 1 s ago" in why(both, 1)


def test_a_device_whose_job_ends_in_a_moment_is_waited_for() -> None:
    allocated = (("n1", Gres("gpu", "7g.40gb", 1, (0,))),)
    ending = SlurmJob(7, "RUNNING", nodes=("n1",), allocated=allocated, latest_end=int(NOW) + 4)
    decision = decided([board(WHOLE, HALVES, used=[0], jobs=[ending])], want(1, "7g.40gb"))
    assert not decision.repartitions
    assert "jobs on n1 end within 10 s" in why(decision, 1)
    later = SlurmJob(7, "RUNNING", nodes=("n1",), allocated=allocated, latest_end=int(NOW) + 400)
    assert decided([board(WHOLE, HALVES, used=[0], jobs=[later])], want(1, "7g.40gb")).repartitions


def test_an_old_release_changes_its_boards_in_batches() -> None:
    job = want(1, "3g.20gb")
    old = board(WHOLE, name="n2", release="22.05.8", last_change=NOW - 5)
    decision = decided([board(WHOLE, release="22.05.8"), old], job)
    assert not decision.repartitions
    assert "slurmctld restarted 5 s ago" in why(decision, 1)
    assert decided([board(WHOLE), board(WHOLE, name="n2", last_change=NOW - 5)], job).repartitions
    rested = board(WHOLE, name="n2", release="22.05.8", last_change=NOW - 31)
    assert decided([board(WHOLE, release="22.05.8"), rested], want(1, "3g.20gb", 4)).repartitions


def test_a_node_in_maintenance_is_left_and_has_no_free_devices() -> None:
    states = frozenset({"IDLE", "MAINTENANCE"})
    plain = board(WHOLE)
    assert plain.node is not None
    kept = msgspec.structs.replace(plain, node=msgspec.structs.replace(plain.node, states=states))
    decision = decided([kept], want(1, "7g.40gb"), want(2, "3g.20gb"))
    assert not decision.repartitions
    assert "n1: a reservation for maintenance keeps jobs from it" in why(decision, 1)
    assert state(decision, 2) == "waits"


def test_mig_mode_stays_while_a_board_has_jobs() -> None:
    kind = next(kind for kind, profile in board(WHOLE).names.items() if profile == "whole")
    whole = want(1, kind)
    assert decided([board(WHOLE, WHOLE)], whole).repartitions
    assert not decided([board(WHOLE, WHOLE, used=[0])], whole).repartitions


def test_the_parts_of_one_job_are_served_together_or_not_at_all() -> None:
    pair = [board(WHOLE, HALVES), board(WHOLE, name="n2")]
    decision = decided(pair, want(1, "3g.20gb", 6, spread=True))
    made = sum((Counter(r.offered) for r in decision.repartitions), Counter[str]())
    assert made["3g.20gb"] >= 4
    assert not decided(pair, want(1, "3g.20gb", 7, spread=True)).repartitions
    assert decided(pair, want(1, "3g.20gb", 7)).repartitions, "of an array, some tasks may run before others"


def test_a_job_with_the_pads_blocks_what_they_stand_for() -> None:
    assert "unused capabilities" in why(decided([board(WHOLE, used=[7])], want(1, "3g.20gb")), 1)
    inside = decided([board("3g.20gb@0", WHOLE, used=[5])], want(1, "1g.5gb"))
    assert list(layout(inside.repartitions[0])) == [1], "a job has the pad of slot 5"


def running(job: int, kind: str, slots: Sequence[int], ends_in: float) -> SlurmJob:
    allocated = (("n1", Gres("gpu", kind, len(slots), tuple(slots))),)
    return SlurmJob(job, "RUNNING", nodes=("n1",), allocated=allocated, latest_end=int(NOW + ends_in))


def mixed_board() -> SlurmNodeState:
    """Build two GPUs of halves: a half of GPU 0 has a job of an hour, one of GPU 1 has a job of ten minutes."""
    jobs = [running(8, "3g.20gb", [0], 3600), running(9, "3g.20gb", [7], 600)]
    return patient(board(HALVES, HALVES, used=[0, 7], jobs=jobs))


def patient(state: SlurmNodeState) -> SlurmNodeState:
    limits = msgspec.structs.replace(BOARD_LIMITS, patience_s=PATIENCE)
    return msgspec.structs.replace(state, host=msgspec.structs.replace(state.host, limits=limits))


def test_a_gpu_is_kept_for_a_job_that_has_waited_long_where_it_fits_first() -> None:
    patience = int(NOW - PATIENCE)
    whole = want(1, "7g.40gb", submitted=patience, priority=5)
    small = want(2, "1g.5gb", 7, submitted=patience)
    (repartition,) = decided([mixed_board()], whole, small).repartitions
    assert layout(repartition)[1] == ["3g.20gb@0"], "what is idle beside the job becomes pads"
    assert repartition.copies == {2: 3}, "GPU 0 still serves the others"
    later = msgspec.structs.replace(whole, submitted=patience + 1)
    (early,) = decided([mixed_board()], later, small).repartitions
    assert early.copies == {2: 6}, "it has not waited long enough"


def test_a_kept_gpu_has_no_free_or_coming_devices_for_others() -> None:
    whole = want(1, "7g.40gb", submitted=int(NOW - PATIENCE), priority=5)
    half = want(2, "3g.20gb", 2, submitted=int(NOW - PATIENCE))
    decision = decided([mixed_board()], whole, half)
    assert state(decision, 1) == "drained"
    assert "gets no new instances" in why(decision, 1)
    assert [list(layout(each)) for each in decision.repartitions] == [[1]]
    assert state(decision, 2) == "waits", "one of its tasks has the half of GPU 0, the other one waits"


def test_no_gpu_is_kept_at_the_cost_of_a_job_before() -> None:
    before = want(1, "2g.10gb", 2, submitted=int(NOW - 10), priority=9)
    whole = want(2, "7g.40gb", submitted=int(NOW - PATIENCE), priority=5)
    one = patient(board(HALVES, used=[0], jobs=[running(8, "3g.20gb", [0], 3600)]))
    decision = decided([one], msgspec.structs.replace(before, copies=1), whole)
    assert state(decision, 1) == "cut"
    assert state(decision, 2) == "waits"


def test_no_gpu_is_kept_for_what_never_fits() -> None:
    wide = want(1, "7g.40gb", count=3, submitted=int(NOW - PATIENCE))
    assert state(decided([mixed_board()], wide), 1) == "waits"
