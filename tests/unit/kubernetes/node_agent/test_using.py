"""What the GPUs are used for, looked at beside the agent's own looks: it goes on, and tells nothing that is old."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.core.planner.usage_tracking import GAP_S
from aliquot.errors import HardwareError
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from aliquot.kubernetes.node_agent.usage_sampler import UsageSampler
from unit.metrics.looks import PCI, plain

NOW = (Usage(PCI, 1, "3g.20gb", 100),)


class Gpus:
    """An open node that fails while it has ``trouble``."""

    answers = True

    def __init__(self) -> None:
        self.trouble: Exception | None = None

    async def call(self, job: Callable[[Any], Any]) -> Any:
        if self.trouble is not None:
            raise self.trouble
        return plain(), NOW


class Bed:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpus, self.told, self.clock = Gpus(), list[tuple[Usage, ...]](), 1000.0
        self.using = UsageSampler(self.gpus, None, self._told)
        monkeypatch.setattr(time, "monotonic", lambda: self.clock)

    def _told(self, _: Inventory, usage: tuple[Usage, ...]) -> None:
        self.told.append(usage)

    def look(self, after_s: float = 45.0) -> None:
        self.clock += after_s
        asyncio.run(self.using.sample())


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(monkeypatch)


@pytest.mark.parametrize("trouble", [HardwareError("no answer"), ValueError("a defect")])
def test_figures_that_are_old_are_told_no_more(bed: Bed, trouble: Exception) -> None:
    """The page's own looks go on, so that nothing on it would say how old these are."""
    bed.look()
    bed.gpus.trouble = trouble
    bed.look()
    assert bed.told == [NOW], "one look that failed takes nothing back"
    bed.look(GAP_S)
    bed.look()
    assert bed.told == [NOW, ()]
    bed.gpus.trouble = None
    bed.look()
    assert bed.told == [NOW, (), NOW]


def test_kubelet_may_not_answer_either(monkeypatch: pytest.MonkeyPatch) -> None:
    async def uses() -> Sequence[PodDeviceUse]:
        raise RuntimeError("a defect")

    told = list[tuple[Usage, ...]]()
    asyncio.run(UsageSampler(Gpus(), uses, lambda _, usage: told.append(usage)).sample())
    assert told == []


def test_a_problem_is_logged_once_until_it_is_another(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    for trouble in (HardwareError("one"), HardwareError("one"), HardwareError("two"), None, HardwareError("two")):
        bed.gpus.trouble = trouble
        bed.look()
    assert [each.getMessage().rpartition(": ")[2] for each in caplog.records] == ["one", "two", "two"]
