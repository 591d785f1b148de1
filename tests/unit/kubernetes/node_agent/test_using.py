"""Usage of the GPUs, sampled independently of the agent's observations: it continues, and reports no old values."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.core.model.vgpu_usage import VgpuUsage
from aliquot.core.planner.usage_tracking import GAP_S
from aliquot.errors import HardwareError
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from aliquot.kubernetes.node_agent.usage_sampler import UsageSampler
from unit.metrics.snapshots import PCI, plain

NOW = (Usage(PCI, 1, "3g.20gb", 100),)
VGPUS = (VgpuUsage(PCI, 1, "u", compute=0.5),)


class Gpus:
    """An open node that fails while it has ``failure``."""

    answers = True

    def __init__(self) -> None:
        self.failure: Exception | None = None

    async def call(self, job: Callable[[Any], Any], *, all_gpus: bool = False) -> Any:
        if self.failure is not None:
            raise self.failure
        return plain(), NOW, VGPUS


class Bed:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpus, self.reported, self.clock = Gpus(), list[tuple[Usage, ...]](), 1000.0
        self.vgpus = list[tuple[VgpuUsage, ...]]()
        self.using = UsageSampler(self.gpus, None, self._reported, on_vgpus=self.vgpus.append)
        monkeypatch.setattr(time, "monotonic", lambda: self.clock)

    def _reported(self, _: Inventory, usage: tuple[Usage, ...]) -> None:
        self.reported.append(usage)

    def poll(self, after_s: float = 45.0) -> None:
        self.clock += after_s
        asyncio.run(self.using.sample())


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(monkeypatch)


@pytest.mark.parametrize("failure", [HardwareError("no answer"), ValueError("a defect")])
def test_figures_that_are_old_are_reported_no_more(bed: Bed, failure: Exception) -> None:
    # The observations of the page continue, so that nothing on it would show the age of these values.
    bed.poll()
    bed.gpus.failure = failure
    bed.poll()
    assert bed.reported == [NOW], "a failed read keeps the previous values"
    bed.poll(GAP_S)
    bed.poll()
    assert bed.reported == [NOW, ()]
    assert bed.vgpus == [VGPUS, ()]
    bed.gpus.failure = None
    bed.poll()
    assert bed.reported == [NOW, (), NOW]


def test_kubelet_may_not_answer_either(monkeypatch: pytest.MonkeyPatch) -> None:
    async def uses() -> Sequence[PodDeviceUse]:
        raise RuntimeError("a defect")

    reported = list[tuple[Usage, ...]]()
    asyncio.run(UsageSampler(Gpus(), uses, lambda _, usage: reported.append(usage)).sample())
    assert reported == []


def test_a_problem_is_logged_once_until_it_is_another(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    for failure in (HardwareError("one"), HardwareError("one"), HardwareError("two"), None, HardwareError("two")):
        bed.gpus.failure = failure
        bed.poll()
    assert [each.getMessage().rpartition(": ")[2] for each in caplog.records] == ["one", "two", "two"]
