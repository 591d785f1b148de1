"""Decisions from an outdated observation: a user's action, or a timer, came in between."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller import drains
from aliquot.slurm.controller.history import HOUR_S, SlurmHistory
from aliquot.slurm.controller.log_once import LogOnce
from aliquot.slurm.controller.models import WAITING, NodeDrain, SlurmDecision

NOW = 1_000_000.0


class Reported:
    """The current Slurm state, with a record of the commands that it receives."""

    def __init__(self, *states: str, reason: str = "") -> None:
        self.now = SlurmNode("n1", frozenset(states or ("IDLE",)), reason=reason)
        self.actions: list[str] = []

    def node(self, name: str) -> SlurmNode:
        return replace(self.now, name=name)

    def drain(self, name: str, reason: str) -> None:
        self.actions.append(f"drain {name}")

    def resume(self, name: str) -> None:
        self.actions.append(f"resume {name}")


def acted(reported: Reported, decision: SlurmDecision) -> list[str]:
    drains.apply_drains(decision, cast(Slurm, reported), LogOnce(lambda _: None), lambda _: None)
    return reported.actions


def test_who_drained_a_record_since_the_look_keeps_it() -> None:
    drain = SlurmDecision(drains=(NodeDrain("n1", 7),))
    assert acted(Reported(), drain) == ["drain n1"]
    assert acted(Reported("IDLE", "DRAIN", reason=f"{WAITING}6"), drain) == ["drain n1"]
    assert acted(Reported("IDLE", "DRAIN", reason=f"{WAITING}7"), drain) == []
    assert acted(Reported("IDLE", "DRAIN", reason="new fans"), drain) == []
    resume = SlurmDecision(resume=("n1",))
    assert acted(Reported("IDLE", "DRAIN", reason=f"{WAITING}7"), resume) == ["resume n1"]
    assert acted(Reported("IDLE", "DRAIN", reason="new fans"), resume) == []


def test_a_clock_that_was_wrong_for_a_moment_stops_nothing_for_long() -> None:
    ahead = NOW + 30 * 24 * HOUR_S
    wrong = SlurmHistory().with_change(ahead, "n1", (7,)).with_failure(ahead, "n1", "no")
    wrong = replace(wrong, promised={7: ahead}, stuck={8: ahead}, idle={"n1": ahead})
    right = wrong.with_observation(NOW, ["n1"], {7, 8})
    assert right.last_change_time("n1") == NOW
    assert right.failures["n1"].retry_at <= NOW + 30
    assert (right.promised, right.stuck, right.idle) == ({7: NOW}, {8: NOW}, {"n1": NOW})
    assert right.with_observation(NOW + 3 * HOUR_S, [], ()).recent(NOW + 3 * HOUR_S) == 0


def test_a_job_that_does_not_start_again_and_again_is_stuck_again_each_time() -> None:
    history = SlurmHistory().with_decision(NOW, [7], 30)
    history = history.with_decision(NOW + 31, [7], 30)
    assert history.stuck == {7: NOW + 31}
    assert history.with_decision(NOW + 40, [7], 30).stuck == {7: NOW + 31}
    history = history.with_decision(NOW + 500, [], 30).with_decision(NOW + 600, [7], 30)
    assert history.with_decision(NOW + 640, [7], 30).stuck == {7: NOW + 600}
