"""The sentence about a change in progress."""

from __future__ import annotations

import pytest

from aliquot.hardware.state.current_run import CurrentRun


@pytest.mark.parametrize(
    ("changing", "text"),
    [
        (CurrentRun("process 7"), "process 7 is changing this node's GPUs"),
        (
            CurrentRun("process 7", "reset on GPU 0", 2, 5),
            "process 7 is changing this node's GPUs, 2 of 5 actions done, now: reset on GPU 0",
        ),
        (CurrentRun("process 7", "", 0, 5), "process 7 is changing this node's GPUs, 0 of 5 actions done"),
    ],
    ids=["unknown", "a step", "between two steps"],
)
def test_it_reports_its_progress(changing: CurrentRun, text: str) -> None:
    assert str(changing) == text
