"""What the agent does before a rest, for kubelet."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aliquot.kubernetes.gpu.config_label import Trouble
from aliquot.kubernetes.label_agent.agent.executor import Actor
from aliquot.kubernetes.label_agent.agent.observation import Memory
from aliquot.kubernetes.label_agent.agent.steps import Rest


class Publisher:
    """Notes what is withheld from kubelet."""

    problem = ""

    def __init__(self) -> None:
        self.withheld: list[str] = []

    async def withhold_all(self) -> None:
        self.withheld.append("all")


@pytest.mark.parametrize(("reason", "withheld"), [("DriverHangs", []), ("NoDriver", ["all"])])
def test_a_driver_that_hangs_takes_nothing_from_kubelet(reason: str, withheld: list[str]) -> None:
    publisher = Publisher()
    actor = Actor(*cast(Any, (None, None, None, publisher, None, None, None)))
    seen = cast(Any, SimpleNamespace(inventory=None, trouble=Trouble(reason, "why")))
    asyncio.run(actor.act(Rest(1.0, "failed"), seen, Memory()))
    assert publisher.withheld == withheld
