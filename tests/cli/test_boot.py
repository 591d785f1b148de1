"""``restore --boot`` while the machine is still starting: it waits for the driver, and no longer than it was told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aliquot.backends.connect import Connection
from aliquot.cli import boot, node
from aliquot.errors import NoDriverError

from .conftest import Run, Sim

LATE = "the NVIDIA driver does not answer"


class Starting:
    """A driver that answers from the n-th question on."""

    def __init__(self, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nth, self.asked, self.connected = nth, 0, node.connected
        monkeypatch.setattr(node, "connected", self.late)
        monkeypatch.setattr(boot, "POLL_S", 0.01)

    @contextmanager
    def late(self, args: Any) -> Iterator[Connection]:
        self.asked += 1
        if self.asked < self.nth:
            raise NoDriverError(LATE, next_step="look at dmesg")
        with self.connected(args) as connection:
            yield connection


def test_it_waits_for_the_driver(a100: Sim, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("apply", "--gpu", "0", "--mig", "7g.40gb").code == 0
    a100.node.reboot()
    driver = Starting(4, monkeypatch)
    found = run("restore", "--boot", "--wait", "30")
    assert found.code == 0, found
    assert driver.asked == 5, "three times in vain, once to look, once to act"
    assert found.err.count(LATE) == 1, "said once"
    monkeypatch.undo()


def test_it_does_not_wait_for_ever(a100: Sim, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("apply", "--gpu", "0", "--mig", "7g.40gb").code == 0
    Starting(10_000, monkeypatch)
    start = time.monotonic()
    found = run("restore", "--boot", "--wait", "0.2")
    assert 0.2 <= time.monotonic() - start < 5
    assert (found.code, LATE in found.err) == (20, True), found


def test_without_a_record_nobody_waits(a100: Sim, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Starting(10_000, monkeypatch)
    assert run("restore", "--boot").code == 0
    assert driver.asked == 0


def test_a_held_instance_in_the_way_is_told(a100: Sim, run: Run) -> None:
    assert run("apply", "--gpu", "0", "--mig", "7g.40gb").code == 0
    a100.node.reboot()
    a100.node.set_mode(0, True)
    a100.node.hold(0, a100.node.create(0, "1g.5gb", 0))
    found = run("restore", "--boot")
    assert (found.code, "HELD" in found.err) == (20, True), found
    assert "process" in found.err
    assert a100.writes()[-1]["call"] != "GpuInstanceDestroy"


def test_json_has_the_error_on_stderr(a100: Sim, run: Run) -> None:
    assert run("apply", "--gpu", "0", "--mig", "7g.40gb").code == 0
    a100.node.hold(0, None)
    a100.node.destroy(0, 0)
    found = run("restore", "--boot", "-o", "json")
    assert found.code == 20, found
    assert '"code": "HELD"' in found.err
