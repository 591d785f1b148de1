"""The figures of a machine without an agent: looks go on whatever one of them meets, and no old one is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aliquot.errors import HardwareError
from aliquot.metrics.host_exporter import HostExporter
from aliquot.node.connect import Connection
from support.processes import until
from unit.metrics.looks import plain


class Machine:
    """It opens, unless there is ``trouble``. Nobody tells of use there."""

    def __init__(self) -> None:
        self.trouble: Exception | None = None

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        if self.trouble is not None:
            raise self.trouble
        yield cast(Connection, SimpleNamespace(backend=SimpleNamespace(read=plain)))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    def unused(*_: Any) -> None:
        raise HardwareError("nobody tells")

    monkeypatch.setattr("aliquot.node.usage_tracker.UsageTracker", unused)
    return Machine()


@pytest.mark.parametrize(
    "trouble", [HardwareError("the driver failed"), ValueError("a defect"), OSError(5, "bad disk")]
)
def test_a_look_that_meets_what_nobody_thought_of_is_told_and_the_next_is_made(
    machine: Machine, trouble: Exception
) -> None:
    said: list[str] = []
    host = HostExporter("n", "n", machine.connect, said.append)
    host.observe()
    assert b"aliquot_gpu_info{" in host.page.text()
    machine.trouble = trouble
    host.start(0.01)
    try:
        until(lambda: bool(said))
        assert re.search(rb'aliquot_look_success\{Hostname="[^"]*"\} 0.0', host.page.text())
        assert b"aliquot_gpu_info{" not in host.page.text()
        until(lambda: host.error is not None)
        machine.trouble = None
        until(lambda: b"aliquot_gpu_info{" in host.page.text())
        assert len(said) == 1, "once until it is another"
    finally:
        host.close()
