"""Steps of the journal as values."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.core.engine.journal_step import JournalStep, SteppedAction, read_step, step_of
from aliquot.core.model.actions import (
    Create,
    CreateCompute,
    CreateVgpu,
    Destroy,
    DestroyCompute,
    Reset,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
    SetScheduler,
)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("create gi 3g.20gb 4:4", JournalStep("create", kind="gi", name="3g.20gb", placement="4:4")),
        ("destroy gi 7 1g.5gb 0:1", JournalStep("destroy", kind="gi", instance="7", name="1g.5gb", placement="0:1")),
        ("create ci 7/0", JournalStep("create", kind="ci", instance="7", compute="0")),
        ("create ci 7/0 1:2", JournalStep("create", kind="ci", instance="7", compute="0", placement="1:2")),
        ("destroy ci 7/1", JournalStep("destroy", kind="ci", instance="7", compute="1")),
        (
            "create vgpu NVIDIA A2-4Q 0000:01:00.4 0b1c",
            JournalStep("create", kind="vgpu", name="NVIDIA A2-4Q", function="0000:01:00.4", uuid="0b1c"),
        ),
        (
            "destroy vgpu NVIDIA A2-4Q 0000:01:00.4 ",
            JournalStep("destroy", kind="vgpu", name="NVIDIA A2-4Q", function="0000:01:00.4"),
        ),
        ("mode enabled", JournalStep("mode", "enabled")),
        ("passthrough on", JournalStep("passthrough", "on")),
        ("passthrough off 0000:01:00.4", JournalStep("passthrough", "off", function="0000:01:00.4")),
        ("reset", JournalStep("reset")),
        ("create nest 4", JournalStep("create", "nest 4")),
    ],
)
def test_a_step_is_read_into_values_and_written_from_them(text: str, step: JournalStep) -> None:
    assert read_step(text) == step
    assert str(step) == text


def test_what_an_action_is_recorded_as() -> None:
    # These bytes are on the disks of nodes: an interrupted run is resumed from them.
    gpu: dict[str, Any] = {"gpu": "0000:07:00.0", "reason": ""}
    part: dict[str, Any] = {"instance": 7, "profile": "1c.3g.20gb", **gpu}
    vgpu: dict[str, Any] = {"function": "0000:07:00.4", "type": "NVIDIA A2-4Q", "type_id": 7, **gpu}
    actions: dict[str, SteppedAction] = {
        "create gi 3g.20gb 4:4": Create(profile="3g.20gb", profile_id=9, placement="4:4", compute=(), **gpu),
        "destroy gi 7 3g.20gb 4:4": Destroy(instance=7, profile="3g.20gb", profile_id=9, placement="4:4", **gpu),
        "create ci 7/0": CreateCompute(profile_id=0, **part),
        "create ci 7/0 1:2": CreateCompute(profile_id=0, placement="1:2", **part),
        "destroy ci 7/1": DestroyCompute(compute_instance=1, **part),
        "create vgpu NVIDIA A2-4Q 0000:07:00.4 0b1c": CreateVgpu(uuid="0b1c", **vgpu),
        "create vgpu NVIDIA A2-4Q 0000:07:00.4 ": CreateVgpu(uuid="", **vgpu),
        "mode enabled": SetMode(mode="enabled", **gpu),
        "functions 0": SetFunctions(count=0, **gpu),
        "mixed-size on": SetMixedSize(on=True, **gpu),
        "scheduler fixed-share,480Hz": SetScheduler(scheduler="fixed-share,480Hz", **gpu),
        "passthrough off": SetPassthrough(on=False, **gpu),
        "passthrough on 0000:07:00.4": SetPassthrough(on=True, function="0000:07:00.4", **gpu),
        "reset": Reset(**gpu),
    }
    assert [str(step_of(action)) for action in actions.values()] == list(actions)
