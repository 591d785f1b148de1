"""Metrics of a host without an agent: polls continue after any error, and old values are not reported."""

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
from unit.metrics.snapshots import plain


class Machine:
    """A host that opens, unless there is ``failure``. It reports no usage."""

    def __init__(self) -> None:
        self.failure: Exception | None = None

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        if self.failure is not None:
            raise self.failure
        yield cast(Connection, SimpleNamespace(backend=SimpleNamespace(read=plain, vgpu_usage=tuple)))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    def unused(*_: Any) -> None:
        raise HardwareError("nobody tells")

    monkeypatch.setattr("aliquot.node.usage_tracker.UsageTracker", unused)
    return Machine()


@pytest.mark.parametrize(
    "failure", [HardwareError("the driver failed"), ValueError("a defect"), OSError(5, "bad disk")]
)
def test_an_observation_with_an_unexpected_error_is_reported_and_the_next_is_made(
    machine: Machine, failure: Exception
) -> None:
    messages: list[str] = []
    host = HostExporter("n", "n", machine.connect, messages.append)
    host.observe()
    assert b"aliquot_gpu_info{" in host.page.text()
    machine.failure = failure
    host.start(0.01)
    try:
        until(lambda: bool(messages))
        assert re.search(rb'aliquot_look_success\{Hostname="[^"]*"\} 0.0', host.page.text())
        assert b"aliquot_gpu_info{" not in host.page.text()
        until(lambda: host.error is not None)
        machine.failure = None
        until(lambda: b"aliquot_gpu_info{" in host.page.text())
        assert len(messages) == 1, "once, until the error changes"
    finally:
        host.close()
