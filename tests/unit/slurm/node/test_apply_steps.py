"""The next step of a change, from the record and Slurm's state: without a cluster."""

from __future__ import annotations

import itertools
from typing import get_args

from msgspec.structs import replace

from aliquot.slurm.client.models import SlurmJob, SlurmNode
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node.change_record import ChangeRecord, NodeRestorePoint
from aliquot.slurm.node.next_step import SlurmNodeObservation
from aliquot.slurm.node.request import NodeKind, QuietStep, SlurmChange, SlurmNodeSettings, SlurmStep, held_by_others

CHANGE = SlurmChange(SlurmNodeSettings("n1"))
QUIET = set(get_args(QuietStep))


def record(kind: NodeKind = "dynamic", version: str = "24.11.5", **more: object) -> ChangeRecord:
    return replace(ChangeRecord("r", CHANGE, kind, version=version), **more)


def node(*states: str, reason: str = "") -> SlurmNode:
    return SlurmNode("n1", frozenset(states), reason=reason)


IDLE, DRAINED = SlurmNodeObservation(node("IDLE")), SlurmNodeObservation(node("IDLE", "DRAIN"))
JOB = SlurmJob(1, "RUNNING", nodes=("n1",))


def walked(start: ChangeRecord, seen: SlurmNodeObservation) -> list[SlurmStep]:
    """Return the steps that follow each other while Slurm reports the same state."""
    done, now = [], replace(start, phase=steps.route(start)[0])
    while now.phase:
        done.append(steps.next_step(now, lambda: seen))
        assert done[-1] == now.phase
        now = replace(now, phase=steps.following_step(now))
    return done


def test_each_kind_and_release_has_its_own_way() -> None:
    ends = ["verify", "resume"]
    assert walked(record(), DRAINED) == ["drain", "wait", "stop", "gpus", "files", "forget", "start", *ends]
    assert walked(record("static"), DRAINED) == ["drain", "wait", "gpus", "files", "tell", *ends]
    restarted = ["drain", "wait", "stop", "gpus", "files", "tell", "start", *ends]
    assert walked(record("static", restart=True), DRAINED) == restarted
    assert walked(record("static", "22.05.8"), DRAINED) == restarted
    assert walked(record("static", "23.02.7"), DRAINED) == restarted
    assert "stop" not in walked(record("static", "23.11.0"), DRAINED)


def test_the_way_back_puts_back_only_what_was_touched() -> None:
    assert walked(record(undoing=True), DRAINED) == ["explain"]
    back = walked(record(undoing=True, touched=True, restore_point=NodeRestorePoint(slurmd_start=1)), DRAINED)
    assert back == ["stop", "gpus", "files", "forget", "start", "verify", "explain"]
    never = walked(record(undoing=True, touched=True), DRAINED)
    assert never == ["stop", "gpus", "files", "forget", "explain"]


def test_nothing_that_jobs_cannot_live_through_is_done_under_them() -> None:
    for kind, back in itertools.product(get_args(NodeKind), (False, True)):
        made = record(kind, "22.05.8", undoing=back, touched=True)
        for phase in set(steps.route(made)) & QUIET:
            at = replace(made, phase=phase)
            assert steps.next_step(at, lambda: IDLE) == "drain"
            assert steps.next_step(at, lambda: SlurmNodeObservation(DRAINED.node, (JOB,))) == "wait"
            assert steps.next_step(at, lambda: SlurmNodeObservation(node("IDLE", "DRAIN", "COMPLETING"))) == "wait"
            assert steps.next_step(at, lambda: DRAINED) == phase
            assert steps.next_step(at, lambda: SlurmNodeObservation(None)) == phase
            assert steps.following_step(at) != phase


def test_a_node_that_runs_jobs_on_the_new_layout_is_left_to_them() -> None:
    for phase in ("verify", "resume"):
        assert (
            steps.next_step(record(phase=phase, touched=True), lambda: SlurmNodeObservation(node("MIXED"), (JOB,)))
            == phase
        )


def test_who_keeps_a_node_from_its_jobs() -> None:
    assert held_by_others(node("IDLE", "DRAIN", reason="new fans"))
    assert held_by_others(node("DOWN", reason="new fans"))
    assert not held_by_others(node("IDLE", reason="new fans"))
    assert not held_by_others(node("IDLE", "DRAIN", reason="aliquot: changing"))
    assert not held_by_others(node("IDLE", "DRAIN", reason="gres/gpu count reported lower than configured (3 < 5)"))
    assert not held_by_others(node("DOWN", reason="Not responding"))
    assert held_by_others(node("DOWN", reason="Node unexpectedly rebooted"))


def test_releases_are_distinguished() -> None:
    assert steps.version_of("22.05.8") < steps.RELOADS <= steps.version_of("23.11.0-0rc1")
    assert steps.version_of("24.11") >= steps.RELOADS
    assert steps.version_of("nonsense").major == 0
