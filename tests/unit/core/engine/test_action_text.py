"""Texts of actions: each has a sentence for its progress and one for the rollback."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from aliquot.core.engine.action_text import ExecutedAction, HolderWait, describe, progress_line, undone
from aliquot.core.model.actions import (
    Action,
    Create,
    CreateCompute,
    CreateVgpu,
    Destroy,
    DestroyCompute,
    DestroyVgpu,
    Reset,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
    SetScheduler,
)
from aliquot.core.model.inventory import Holder
from aliquot.core.model.structured_text import GpuName, parts_of

GPU, WHY, VF = "0000:07:00.0", "requested", "0000:07:00.4"
MADE: dict[str, Any] = {"gpu": GPU, "reason": WHY}
ACTIONS: list[tuple[Action, str, str]] = [
    (
        Destroy(**MADE, instance=3, profile="1g.5gb", profile_id=19, placement="4:1"),
        "destroyed 1g.5gb at 4:1 (instance 3)",
        "the new 1g.5gb at 4:1 is gone again",
    ),
    (
        Create(**MADE, profile="1g.5gb", profile_id=19, placement="4:1", compute=()),
        "created 1g.5gb at 4:1",
        "1g.5gb at 4:1 is back",
    ),
    (
        DestroyCompute(**MADE, instance=3, compute_instance=1, profile="1c.3g.20gb"),
        "destroyed compute instance 1c.3g.20gb in instance 3",
        "the new compute instance 1c.3g.20gb in instance 3 is gone again",
    ),
    (
        CreateCompute(**MADE, instance=3, profile="1c.3g.20gb", profile_id=0),
        "created compute instance 1c.3g.20gb in instance 3",
        "compute instance 1c.3g.20gb in instance 3 is back",
    ),
    (SetMode(**MADE, mode="enabled"), "MIG mode set to enabled", "MIG mode is enabled again"),
    (Reset(**MADE), "reset", "reset"),
    (SetFunctions(**MADE, count=16), "virtual functions on (16)", "virtual functions are on (16) again"),
    (SetFunctions(**MADE, count=0), "virtual functions off", "virtual functions are off again"),
    (
        SetScheduler(**MADE, scheduler="equal-share,2ms"),
        "scheduler set to equal-share,2ms",
        "the scheduler is equal-share,2ms again",
    ),
    (SetMixedSize(**MADE, on=True), "mixed-size mode on", "mixed-size mode is on again"),
    (SetMixedSize(**MADE, on=False), "mixed-size mode off", "mixed-size mode is off again"),
    (
        CreateVgpu(**MADE, function=VF, type_id=563, type="A100-4C", uuid="u-1"),
        f"created vGPU A100-4C on {VF} (u-1)",
        f"vGPU A100-4C on {VF} is back (u-1)",
    ),
    (
        DestroyVgpu(**MADE, function=VF, type_id=563, type="A100-4C"),
        f"destroyed vGPU A100-4C on {VF}",
        f"the new vGPU A100-4C on {VF} is gone again",
    ),
    (
        SetPassthrough(**MADE, on=True),
        "the whole GPU bound to vfio-pci",
        "the whole GPU bound to vfio-pci again",
    ),
    (
        SetPassthrough(**MADE, on=False, function=VF),
        f"virtual function {VF} returned to its driver",
        f"virtual function {VF} with its driver again",
    ),
]


@pytest.mark.parametrize(("action", "done", "back"), ACTIONS, ids=lambda each: type(each).__name__)
def test_an_action_is_described(action: Action, done: str, back: str) -> None:
    assert describe(action) == f"GPU {GPU}: {done}"
    assert undone(action) == f"GPU {GPU}: {back}"


def test_no_action_is_left_out() -> None:
    assert {type(action) for action, _, _ in ACTIONS} == set(get_args(Action))


def test_a_line_of_progress_has_its_values() -> None:
    line = describe(Reset(gpu="0000:41:00.0", reason=""))
    assert parts_of(line) == (GpuName("0000:41:00.0", ": "), ExecutedAction(Reset(gpu="0000:41:00.0", reason="")))
    wait = HolderWait((Holder("process", "4711", "python"), Holder("job", "8812")), 60.0)
    assert progress_line("0000:41:00.0", wait) == (
        "GPU 0000:41:00.0: waiting for process 4711 (python), job 8812, 60 s at most"
    )
