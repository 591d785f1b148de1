"""Lock of a role: the second of two agents waits, names the first, and takes over from it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from aliquot.foundation.logfmt import agent_log
from aliquot.kubernetes.node_agent import role_lock
from aliquot.kubernetes.node_agent.role_lock import RoleLock


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_lock, "POLL_S", 0.01)


def test_the_second_waits_and_takes_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        first, second = (RoleLock("label agent", str(tmp_path), f"gpu/agent-{n}") for n in (1, 2))
        stopping = asyncio.Event()
        assert first.waiting
        assert await first.take(stopping)
        assert first.waiting == ""
        taking = asyncio.create_task(second.take(stopping))
        await asyncio.sleep(0.1)
        assert not taking.done()
        assert "of pod gpu/agent-1 is the label agent of this node" in second.waiting
        first.close()
        assert await taking
        assert second.waiting == ""
        mine, theirs = second.owner("boot"), first.owner("boot")
        assert mine.agent != theirs.agent
        assert mine.may_undo(theirs)
        assert "pod gpu/agent-2" in mine.name
        second.close()

    with caplog.at_level(logging.INFO, logger=agent_log.name):
        monkeypatch.setattr(agent_log, "propagate", True)
        asyncio.run(play())
    messages = [record.getMessage() for record in caplog.records]
    assert len([text for text in messages if "changes and publishes nothing" in text]) == 1, "logged once"


def test_two_roles_do_not_exclude_each_other(tmp_path: Path) -> None:
    async def play() -> None:
        stopping = asyncio.Event()
        for role in ("label agent", "VM agent"):
            assert await RoleLock(role, str(tmp_path), "").take(stopping)

    asyncio.run(play())


def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    async def play() -> None:
        stopping = asyncio.Event()
        first, second = (RoleLock("label agent", str(tmp_path), "") for _ in range(2))
        assert await first.take(stopping)
        taking = asyncio.create_task(second.take(stopping))
        await asyncio.sleep(0.05)
        stopping.set()
        assert not await taking

    asyncio.run(play())


def test_a_folder_that_cannot_be_written_is_waited_for(tmp_path: Path) -> None:
    async def play() -> None:
        folder = tmp_path / "run"
        folder.write_text("a file")
        lock = RoleLock("label agent", str(folder), "")
        taking = asyncio.create_task(lock.take(asyncio.Event()))
        await asyncio.sleep(0.05)
        assert str(folder) in lock.waiting
        assert "next:" in lock.waiting
        folder.unlink()
        assert await taking

    asyncio.run(play())


def test_a_lock_file_that_was_made_again_is_another_lock(tmp_path: Path) -> None:
    # Its first holder may still run: nothing of it is undone.

    async def play() -> None:
        first, second = (RoleLock("label agent", str(tmp_path), "") for _ in range(2))
        assert await first.take(asyncio.Event())
        (tmp_path / "label-agent.lock").unlink()
        assert await second.take(asyncio.Event())
        assert not second.owner("boot").may_undo(first.owner("boot"))

    asyncio.run(play())
