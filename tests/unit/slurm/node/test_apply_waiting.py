"""What a change waits for, by a clock that is not the machine's and a Slurm that says what a test has it say."""

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


class Told:
    """A cluster of one node. ``looks`` are what it says, one after another, the last for ever."""

    def __init__(self, *looks: SlurmNode | None) -> None:
        self.looks = list(looks)
        self.seconds = 0.0
        self.asked = 0
        self.said: list[str] = []
        self.orders: list[str] = []

    def node(self, name: str) -> SlurmNode:
        self.asked += 1
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if found is None:
            raise NoNodeError(f"no node {name}")
        return found

    def jobs(self, node: str = "") -> tuple[SlurmJob, ...]:
        return ()

    def resume(self, name: str) -> None:
        self.orders.append(f"resume {name}")

    def note(self, name: str, extra: str) -> None:
        self.orders.append(f"note {name} {extra}, {'/'.join(sorted(self.looks[0].states)) if self.looks[0] else ''}")

    @property
    def world(self) -> SlurmChangeContext:
        def sleep(seconds: float) -> None:
            self.seconds += seconds

        made = SimpleNamespace(slurm=self, now=lambda: self.seconds, sleep=sleep, say=self.said.append)
        return cast(SlurmChangeContext, made)


def node(start: int, gres: tuple[Gres, ...] = WANTED, *states: str) -> SlurmNode:
    return SlurmNode("n1", frozenset(states or ("IDLE", "DRAIN")), gres=gres, slurmd_start=start)


def test_the_slurmd_of_before_proves_nothing_even_in_the_same_second() -> None:
    told = Told(node(1000), node(1000), node(1001))
    assert waiting.wait_for_registration(RECORD, told.world).slurmd_start == 1001


def test_what_registers_with_something_else_is_said_in_bounded_time() -> None:
    told = Told(node(1001, (Gres("gpu", "a100", 2),)))
    with pytest.raises(BlockedError, match=r"gpu:a100:2, and gpu:a100_1g\.5gb:7 was meant"):
        waiting.wait_for_registration(RECORD, told.world)
    assert waiting.REGISTER_S <= told.seconds < waiting.REGISTER_S + 1


def test_an_invalid_registration_is_not_waited_for() -> None:
    told = Told(node(1001, WANTED, "IDLE", "INVALID_REG"))
    with pytest.raises(BlockedError, match="INVALID_REG"):
        waiting.wait_for_registration(RECORD, told.world)
    assert told.seconds == 0


def test_a_slurmd_that_never_comes_is_said() -> None:
    with pytest.raises(BlockedError, match="did not register"):
        waiting.wait_for_registration(RECORD, Told(None).world)


def test_slurmctld_is_asked_often_at_first_and_then_twice_a_second() -> None:
    """The same slurmctld replies to every node of the cluster."""
    never = Told(None)
    with pytest.raises(BlockedError):
        waiting.wait_for_registration(RECORD, never.world)
    assert never.asked < 2 * waiting.REGISTER_S + 10
    soon = Told(None, None, None, node(1001))
    waiting.wait_for_registration(RECORD, soon.world)
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
    """Else what waits for it goes on waiting for Slurm's next look at the queue, up to half a minute."""
    silent = node(1001, WANTED, "IDLE", "NOT_RESPONDING")
    told = Told(node(1001), silent, silent, replace(node(1001, WANTED, "IDLE"), extra="aliquot x"))
    waiting.resume_node(RECORD, told.world)
    assert told.orders == ["resume n1", "note n1 aliquot x, IDLE"]


def test_a_resumed_node_that_does_not_answer_is_not_waited_for_long() -> None:
    told = Told(node(1001), node(1001, WANTED, "IDLE", "NOT_RESPONDING"))
    waiting.resume_node(RECORD, told.world)
    assert told.orders[0] == "resume n1"
    assert waiting.SETTLE_S <= told.seconds < waiting.SETTLE_S + 1


def test_a_node_that_takes_jobs_or_that_somebody_has_drained_is_left_as_it_is() -> None:
    for states, reason in ((("IDLE",), ""), (("IDLE", "DRAIN"), "fan")):
        told = Told(replace(node(1001, WANTED, *states), reason=reason))
        waiting.resume_node(RECORD, told.world)
        assert not told.orders
