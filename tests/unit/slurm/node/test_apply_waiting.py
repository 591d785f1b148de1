"""Waits of a change, with a simulated clock and a Slurm that reports what a test requires."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import NoNodeError
from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import ChangeRecord, ExpectedGres, NodeRestorePoint
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.request import SlurmChange, SlurmNodeSettings

WANTED = (Gres("gpu", "a100_1g.5gb", 7),)
RECORD = ChangeRecord(
    "r",
    SlurmChange(SlurmNodeSettings("n1")),
    "static",
    started=1000.4,
    expected=ExpectedGres(gres=WANTED),
    restore_point=NodeRestorePoint(slurmd_start=1000),
)


class Reported:
    """A cluster of one node. ``observations`` are its reports in order. The last one repeats."""

    def __init__(self, *observations: SlurmNode | None) -> None:
        self.observations = list(observations)
        self.seconds = 0.0
        self.asked = 0
        self.messages: list[str] = []
        self.orders: list[str] = []

    def node(self, name: str) -> SlurmNode:
        self.asked += 1
        found = self.observations.pop(0) if len(self.observations) > 1 else self.observations[0]
        if found is None:
            raise NoNodeError(f"no node {name}")
        return found

    def jobs(self, node: str = "") -> tuple[SlurmJob, ...]:
        return ()

    def resume(self, name: str) -> None:
        self.orders.append(f"resume {name}")

    def note(self, name: str, extra: str) -> None:
        self.orders.append(
            f"note {name} {extra}, {'/'.join(sorted(self.observations[0].states)) if self.observations[0] else ''}"
        )

    @property
    def context(self) -> SlurmChangeContext:
        def sleep(seconds: float) -> None:
            self.seconds += seconds

        made = SimpleNamespace(slurm=self, now=lambda: self.seconds, sleep=sleep, say=self.messages.append)
        return cast(SlurmChangeContext, made)


def node(start: int, gres: tuple[Gres, ...] = WANTED, *states: str) -> SlurmNode:
    return SlurmNode("n1", frozenset(states or ("IDLE", "DRAIN")), gres=gres, slurmd_start=start)


def test_the_slurmd_of_before_proves_nothing_even_in_the_same_second() -> None:
    reported = Reported(node(1000), node(1000), node(1001))
    assert waiting.wait_for_registration(RECORD, reported.context).slurmd_start == 1001


def test_what_registers_with_something_else_is_reported_in_bounded_time() -> None:
    reported = Reported(node(1001, (Gres("gpu", "a100", 2),)))
    with pytest.raises(BlockedError, match=r"gpu:a100:2 instead of gpu:a100_1g\.5gb:7"):
        waiting.wait_for_registration(RECORD, reported.context)
    assert waiting.REGISTER_S <= reported.seconds < waiting.REGISTER_S + 1


def test_an_invalid_registration_is_not_waited_for() -> None:
    reported = Reported(node(1001, WANTED, "IDLE", "INVALID_REG"))
    with pytest.raises(BlockedError, match="INVALID_REG"):
        waiting.wait_for_registration(RECORD, reported.context)
    assert reported.seconds == 0


def test_a_slurmd_that_never_comes_is_reported() -> None:
    with pytest.raises(BlockedError, match="did not register"):
        waiting.wait_for_registration(RECORD, Reported(None).context)


def test_slurmctld_is_asked_often_at_first_and_then_twice_a_second() -> None:
    # The same slurmctld replies to every node of the cluster.
    never = Reported(None)
    with pytest.raises(BlockedError):
        waiting.wait_for_registration(RECORD, never.context)
    assert never.asked < 2 * waiting.REGISTER_S + 10
    soon = Reported(None, None, None, node(1001))
    waiting.wait_for_registration(RECORD, soon.context)
    assert soon.seconds < 0.5


def test_words_of_others_stay_the_reason() -> None:
    assert waiting.reason(RECORD).startswith("aliquot: changing to")
    assert waiting.reason(replace(RECORD, undoing=True, why="x" * 400)).startswith(
        "aliquot: a change is being undone: xxx"
    )
    assert len(waiting.reason(replace(RECORD, undoing=True, why="x" * 400))) == 250
    foreign = replace(RECORD, restore_point=NodeRestorePoint(reason="new fans"))
    assert waiting.reason(foreign) == "new fans"
    assert waiting.reason(replace(foreign, drained=True)).startswith("aliquot: ")


def test_a_resumed_node_that_answers_late_is_put_before_slurm_once_more() -> None:
    # Otherwise jobs wait up to half a minute for Slurm's next scan of the queue.
    silent = node(1001, WANTED, "IDLE", "NOT_RESPONDING")
    reported = Reported(node(1001), silent, silent, replace(node(1001, WANTED, "IDLE"), extra="aliquot x"))
    waiting.resume_node(RECORD, reported.context)
    assert reported.orders == ["resume n1", "note n1 aliquot x, IDLE"]


def test_a_resumed_node_that_does_not_answer_is_not_waited_for_long() -> None:
    reported = Reported(node(1001), node(1001, WANTED, "IDLE", "NOT_RESPONDING"))
    waiting.resume_node(RECORD, reported.context)
    assert reported.orders[0] == "resume n1"
    assert waiting.SETTLE_S <= reported.seconds < waiting.SETTLE_S + 1


def test_a_node_that_takes_jobs_or_that_an_admin_has_drained_is_left_as_it_is() -> None:
    for states, reason in ((("IDLE",), ""), (("IDLE", "DRAIN"), "fan")):
        reported = Reported(replace(node(1001, WANTED, *states), reason=reason))
        waiting.resume_node(RECORD, reported.context)
        assert not reported.orders
