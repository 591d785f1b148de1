"""Unreadable state files: counted by kind, with one event each."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from aliquot.foundation import state_store
from aliquot.foundation.state_store import StateFile
from aliquot.kubernetes.node_agent.state_file_report import StateFileReport
from aliquot.metrics.agent_metrics import SharedMetrics


class Value(msgspec.Struct, frozen=True):
    note: str = ""


def test_each_file_is_counted_and_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "unreadable", {})
    metrics, events = SharedMetrics("n1"), list[tuple[str, str]]()

    async def warn(reason: str, sentence: str) -> None:
        events.append((reason, sentence))

    def counted() -> dict[str, float]:
        text = metrics.page.text().decode()
        return {k: float(v) for k, v in re.findall(r'files_unreadable\{kind="(.*?)",node="n1"\} (\S+)', text)}

    report = StateFileReport([str(tmp_path)], metrics, warn)
    file = StateFile(str(tmp_path / "value.json"), "value", Value, Value())
    asyncio.run(report.check())
    assert (counted(), events) == ({}, [])
    (tmp_path / "value.json").write_bytes(b"\xff")
    file.load()
    for _ in range(2):
        asyncio.run(report.check())
    assert counted() == {"value": 1.0}
    assert [reason for reason, _ in events] == ["StateFileUnreadable"]
    assert "cannot be understood" in events[0][1]
    file.save(Value("new"))
    for _ in range(2):
        asyncio.run(report.check())
    assert counted() == {"value": 1.0}, "it was set aside and still exists"
    assert len(events) == 2
    assert "value.json.unreadable was set aside" in events[1][1]
    (tmp_path / "value.json.unreadable").unlink()
    asyncio.run(report.check())
    assert counted() == {}
    (tmp_path / "value.json").write_bytes(b"\xff")
    file.load()
    asyncio.run(report.check())
    assert len(events) == 3, "the same file is reported a second time"
