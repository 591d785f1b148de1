"""The sentence about a change under way."""

from __future__ import annotations

import pytest

from aliquot.hardware.state.current_run import CurrentRun


@pytest.mark.parametrize(
    ("changing", "text"),
    [
        (CurrentRun("process 7"), "process 7 is changing this node's GPUs"),
        (
            CurrentRun("process 7", "reset on GPU 0", 2, 5),
            "process 7 is changing this node's GPUs, 2 of 5 acts done, now: reset on GPU 0",
        ),
        (CurrentRun("process 7", "", 0, 5), "process 7 is changing this node's GPUs, 0 of 5 acts done"),
    ],
    ids=["unknown", "a step", "between two steps"],
)
def test_it_says_how_far_it_is(changing: CurrentRun, text: str) -> None:
    assert str(changing) == text
