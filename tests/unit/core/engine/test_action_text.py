"""What the lines of a way back say: the action, and never the reason of its plan."""

from __future__ import annotations

import pytest

from aliquot.core.engine.action_text import undone
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
)

PCI, WHY = "0000:01:00.0", "because of the plan"
UUID, FUNCTION = "aa618089-8b16-4d01-a136-25a0f3c73123", "0000:01:00.4"
SAID: dict[str, Action] = {
    "1g.5gb at 0:1 is back": Create(gpu=PCI, reason=WHY, profile="1g.5gb", profile_id=19, placement="0:1", compute=()),
    "the new 1g.5gb at 0:1 is gone again": Destroy(
        gpu=PCI, reason=WHY, instance=7, profile="1g.5gb", profile_id=19, placement="0:1"
    ),
    "compute instance 1c.3g.20gb in instance 2 is back": CreateCompute(
        gpu=PCI, reason=WHY, instance=2, profile="1c.3g.20gb", profile_id=0, placement=None
    ),
    "the new compute instance 1c.3g.20gb in instance 2 is gone again": DestroyCompute(
        gpu=PCI, reason=WHY, instance=2, compute_instance=1, profile="1c.3g.20gb"
    ),
    "reset": Reset(gpu=PCI, reason=WHY),
    "MIG mode is disabled again": SetMode(gpu=PCI, reason=WHY, mode="disabled"),
    "virtual functions are off again": SetFunctions(gpu=PCI, reason=WHY, count=0),
    "mixed-size mode is on again": SetMixedSize(gpu=PCI, reason=WHY, on=True),
    f"vGPU A2-4Q on {FUNCTION} is back ({UUID})": CreateVgpu(
        gpu=PCI, reason=WHY, function=FUNCTION, type_id=1, type="A2-4Q", uuid=UUID
    ),
    f"the new vGPU A2-4Q on {FUNCTION} is gone again": DestroyVgpu(
        gpu=PCI, reason=WHY, function=FUNCTION, type_id=1, type="A2-4Q", uuid=UUID, claim=""
    ),
    "the whole GPU with its driver again": SetPassthrough(gpu=PCI, reason=WHY, on=False),
}


@pytest.mark.parametrize(("sentence", "action"), SAID.items(), ids=lambda each: str(each)[:30])
def test_the_line_names_the_action(sentence: str, action: Action) -> None:
    assert undone(action) == f"GPU {PCI}: {sentence}"
