"""Kills before and after each write while claims come and go: the next agent answers kubelet's repeated calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from aliquot.kubernetes.dra.plugin.claim_service import PreparedClaim
from unit.kubernetes.dra.agent.bench import Bench, claim, counted_saves, holders

WARM, BIG, BESIDE = (
    claim("a", "gpu-0-mig-1g.5gb-4"),
    claim("b", "gpu-0-mig-3g.20gb-4"),
    claim("c", "gpu-0-mig-2g.10gb-0"),
)


async def _until_done(bench: Bench) -> int:
    """Act as kubelet: one claim comes and goes, then two others need its room. Return the number of kills."""
    kills = 0

    async def next_agent() -> None:
        nonlocal kills
        kills += 1
        bench.restart()

    calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: bench.prepare(WARM),
        lambda: bench.unprepare(WARM),
        lambda: bench.prepare(BIG, BESIDE),
    ]
    for call in calls:
        answers = await bench.until_answered(call, next_agent)
        assert all(isinstance(each, PreparedClaim) for each in answers or ())
    return kills


def test_killed_at_every_write_and_asked_again(tmp_path: Path) -> None:
    number, kills = 0, 1
    while kills:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        bench = Bench(folder)
        bench.gpus.kill_at = number
        with counted_saves(bench.gpus):
            kills = asyncio.run(_until_done(bench))
        asyncio.run(bench.preparer.restore())
        assert bench.gpus.instances() == ["2g.10gb@0", "3g.20gb@4"]
        assert holders(bench.gpus.instance("3g.20gb@4")) == ["claim team/b"]
        assert holders(bench.gpus.instance("2g.10gb@0")) == ["claim team/c"]
        records = bench.recorded()
        assert {each.name for each in records.claims} == {"b", "c"}
        assert {each.placement for each in records.created} == {"4:4", "0:2"}
    assert number > 15
