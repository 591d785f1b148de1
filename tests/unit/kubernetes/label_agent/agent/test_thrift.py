"""Cost of observations: one follows each step, and nothing is computed again without a change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest

from aliquot.kubernetes.client.objects import Node, ObjectMeta
from aliquot.kubernetes.client.watch import ObjectChanged
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.label_agent.agent import progress
from aliquot.kubernetes.label_agent.agent.memo import Memoized
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory
from aliquot.kubernetes.label_agent.agent.progress import Progress
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker
from support.agent_observations import node
from unit.kubernetes.label_agent.agent.test_loop import Still, observer


def wishing(config: str) -> Node:
    return Node(metadata=ObjectMeta(name="gpu-1", uid="u", labels={names.CONFIG_LABEL: config}))


def test_a_plan_is_made_once_for_the_same_gpus_and_the_same_request(tmp_path: Path) -> None:
    seen = observer(tmp_path, wishing("all-1g.5gb"))
    made: list[str] = []

    @contextmanager
    def planning() -> Iterator[None]:
        made.append("plan")
        yield

    seen.planning = planning

    async def observe() -> None:
        first = await seen.observe(AgentMemory())
        assert first.plan is not None
        assert first.plan.actions
        assert (await seen.observe(AgentMemory())).plan == first.plan
        assert made == ["plan"]
        seen._informer.nodes.apply(ObjectChanged(wishing("all-disabled")))
        other = await seen.observe(AgentMemory())
        assert other.plan != first.plan
        assert made == ["plan"] * 2
        await seen.observe(AgentMemory(no_reset=other.digest))
        assert made == ["plan"] * 3, "under another policy"
        seen._hardware = cast(GpuWorker, Still(node("a100-sxm4-40gb*3")))
        await seen.observe(AgentMemory())
        assert made == ["plan"] * 4, "of other GPUs"

    asyncio.run(observe())


def test_gpus_with_a_table_of_their_driver_are_looked_at_like_others(tmp_path: Path) -> None:
    # Such a table has no hash: cached data is found by equality.
    inventory = node()
    table = msgspec.structs.replace(inventory.family(inventory.gpus[0]), source="driver")
    own = msgspec.structs.replace(inventory, tables=(table,))
    seen = observer(tmp_path, wishing("all-1g.5gb"))
    seen._hardware = cast(GpuWorker, Still(own))
    first, again = (asyncio.run(seen.observe(AgentMemory())) for _ in range(2))
    assert first.failure is None
    assert first.plan is not None
    assert again.plan is first.plan
    assert seen.sources(first.settings, own)[-1].text


def test_the_last_answers_are_kept() -> None:
    asked: list[dict[str, int]] = []

    def ask(about: dict[str, int]) -> int:
        asked.append(about)
        if not about:
            raise ValueError
        return len(asked)

    kept = Memoized(ask, 2)
    assert [kept({"a": n}) for n in (1, 2, 1, 2, 3, 3, 1)] == [1, 2, 1, 2, 3, 3, 4]
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^$"):
            kept({})
    assert asked[-2:] == [{}, {}]


class StubNodeInformer:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[str] = []

    async def change(self, change: object) -> None:
        patch = change(None)  # type: ignore[operator]
        self.written.append(patch.annotations[names.MESSAGE_ANNOTATION])


def test_progress_is_written_now_and_then_from_whatever_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    informer = StubNodeInformer()

    async def applying(every_s: float) -> None:
        monkeypatch.setattr(progress, "EVERY_S", every_s)
        shown = Progress(cast(NodeInformer, informer), AgentStatus("pending", "Changing", "to create"), 3)
        for n in range(3):
            await asyncio.to_thread(shown.report, f"act {n}")
            await asyncio.sleep(0)
            await shown.close()

    asyncio.run(applying(60.0))
    assert informer.written == []
    asyncio.run(applying(0.0))
    assert informer.written == ["to create (1/3)", "to create (2/3)", "to create (3/3)"]


def test_every_act_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def applying() -> None:
        shown = Progress(cast(NodeInformer, StubNodeInformer()), AgentStatus("pending", "Changing", "to create"), 3)
        shown.report("created 1g.5gb")
        await shown.close()

    with caplog.at_level("INFO"):
        asyncio.run(applying())
    assert "created 1g.5gb" in caplog.text


def test_a_patch_is_begun_only_once_the_next_one_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two threads may request it at the same moment.
    informer = StubNodeInformer()
    monkeypatch.setattr(progress, "EVERY_S", 0.2)

    async def applying() -> None:
        shown = Progress(cast(NodeInformer, informer), AgentStatus("pending", "Changing", "to create"), 3)
        shown._begin()
        await shown.close()
        assert informer.written == []
        await asyncio.sleep(0.25)
        shown._begin()
        shown._begin()
        await shown.close()

    asyncio.run(applying())
    assert informer.written == ["to create (0/3)"]
