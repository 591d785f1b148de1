"""Steps of the journal as values."""

from __future__ import annotations

import pytest

from aliquot.core.engine.journal_step import JournalStep, read_step


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("create gi 3g.20gb 4:4", JournalStep("create", "gi 3g.20gb 4:4", "gi", "3g.20gb", "4:4")),
        ("destroy gi 7 1g.5gb 0:1", JournalStep("destroy", "gi 7 1g.5gb 0:1", "gi", "1g.5gb", "0:1")),
        ("create ci 7/0", JournalStep("create", "ci 7/0", "ci", instance="7")),
        ("create ci 7/0 1:2", JournalStep("create", "ci 7/0 1:2", "ci", "", "1:2", "7")),
        ("destroy ci 7/1", JournalStep("destroy", "ci 7/1", "ci", instance="7")),
        (
            "create vgpu NVIDIA A2-4Q 0000:01:00.4 0b1c",
            JournalStep(
                "create", "vgpu NVIDIA A2-4Q 0000:01:00.4 0b1c", "vgpu", "NVIDIA A2-4Q", function="0000:01:00.4"
            ),
        ),
        ("mode enabled", JournalStep("mode", "enabled")),
        ("passthrough on", JournalStep("passthrough", "on")),
        ("passthrough off 0000:01:00.4", JournalStep("passthrough", "off", function="0000:01:00.4")),
        ("reset", JournalStep("reset")),
        ("create nest 4", JournalStep("create", "nest 4")),
    ],
)
def test_a_step_is_read_into_values(text: str, step: JournalStep) -> None:
    assert read_step(text) == step
