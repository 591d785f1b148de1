"""Journal data that the usage record remembers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aliquot.core.engine.ports import JournalEntry
from aliquot.hardware.state.journal_follower import JournalFollower, JournalUpdate
from aliquot.node.usage_tracker import RecreationJournal

PCI = "0000:07:00.0"


def made_at(second: int) -> JournalEntry:
    return JournalEntry("done", "run", gpu=PCI, step=f"create gi 1g.5gb {second % 7}:1", at=float(second))


def test_what_was_made_before_the_last_look_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    # A long-running process would otherwise remember every instance that was ever created.
    seconds: Iterator[int] = iter(range(1000))
    monkeypatch.setattr(JournalFollower, "poll", lambda _: JournalUpdate([made_at(next(seconds))], restarted=False))
    journal = RecreationJournal("")
    for second in range(1000):
        assert journal.recreated(since=float(second)) == {(PCI, f"{second % 7}:1")}
    assert len(journal._steps) == 1


@pytest.mark.parametrize("step", ["create ci 7/0", "create ci 7/0 1:2"])
def test_a_compute_instance_that_was_made_again_has_no_past(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # This includes one whose step contains its place in the GPU instance.
    made = JournalEntry("done", "run", gpu=PCI, step=step, at=1.0)
    monkeypatch.setattr(JournalFollower, "poll", lambda _: JournalUpdate([made], restarted=False))
    assert RecreationJournal("").recreated(since=0.0) == {(PCI, "#7")}
