"""The one line about a plan names what was requested."""

from __future__ import annotations

import pytest

import support.vgpufactory as factory
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.planner.plan import plan
from aliquot.core.rendering.plan_summary import plan_text
from unit.core.planner.sharing import A2, BARE, done, replace


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (replace(BARE, vgpus=factory.vgpus(A2, {"4Q": 2})), "nothing to do: 2 vGPUs are as requested"),
        (replace(BARE, functions=True), "nothing to do: the virtual functions are as requested"),
        (replace(BARE, passthrough=False), "nothing to do: passthrough is as requested"),
    ],
    ids=["vgpus", "functions", "passthrough"],
)
def test_nothing_to_do(wanted: DesiredGpu, text: str) -> None:
    of = factory.gpu(A2)
    first = plan(factory.node(of), Desired((replace(BARE, vgpus=factory.vgpus(A2, {"4Q": 2})),)))
    assert plan_text(plan(factory.node(done(of, first)), Desired((wanted,)))) == text
