"""``aliquot usage``: text for users, JSON for programs, and refusals."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from aliquot.cli.commands import usage
from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.usage_tracking import TrackedDevice, UsageHistory
from aliquot.node.connection import Connection
from aliquot.node.usage_tracker import ALIVE, FILE, UsageRecord

from .conftest import Run, Sim


def test_what_a_person_sees(mixed: Sim, run: Run) -> None:
    run("sim", "mode", "0", "on")
    made = run("sim", "create", "0", "2g.12gb", "-o", "json").document["instance"]
    run("sim", "hold", "0", str(made), "--memory", "3000")
    seen = run("usage")
    assert seen.code == 0
    assert "2g.12gb" in seen.out
    assert "2.9 of" in seen.out
    assert "not measured" in seen.out, "Ampere"
    assert "held" in seen.out
    assert "idle times and peaks are unknown" in seen.err
    assert "--dcgm" in seen.err


def record(mixed: Sim, instance: int, now: float, *, peak: int, hours: float, alive: bool = True) -> None:
    """Write the record of an agent that watched for ``hours`` and first found the instance idle an hour ago."""
    found = mixed.node.show()
    gpu = found["gpus"][0]
    cut = next(i for i in gpu["instances"] if i["id"] == instance)
    uuids = tuple(c["uuid"] for c in cut["compute_instances"])
    where = (gpu["pci"], gpu["uuid"], now - hours * 3600, instance, cut["profile"], cut["placement"], uuids)
    device = TrackedDevice(*where, idle=now - 3600, peak_mib=peak)
    watch = UsageHistory(found["boot_id"], now - 3600, (device,))
    assert UsageRecord(mixed.node.directory, mixed.node.directory).write(watch)
    sign = os.path.join(mixed.node.directory, ALIVE)
    if alive:
        with open(sign, "w"):
            os.utime(sign, (now - 30, now - 30))


def test_what_an_agent_has_seen(mixed: Sim, run: Run) -> None:
    run("sim", "mode", "0", "on")
    made = run("sim", "create", "0", "2g.12gb", "-o", "json").document["instance"]
    record(mixed, made, time.time(), peak=3000, hours=26)
    seen = run("usage", "0")
    assert "idle for 1 h" in seen.out
    assert "at most 2.9 GiB in 26 h" in seen.out
    assert f"instance {made} (2g.12gb): used at most 2.9 of" in seen.out
    assert "1g.6gb" in seen.out
    assert "idle times and peaks are unknown" not in seen.err
    document = run("usage", "0", "-o", "json").document
    assert (document["kind"], document["hints"][0]["profile"]) == ("Usage", "1g.6gb")
    assert not os.path.exists(os.path.join(mixed.node.directory, FILE + ".tmp"))


def test_what_a_dead_agent_has_seen_is_not_reported(mixed: Sim, run: Run) -> None:
    run("sim", "mode", "0", "on")
    made = run("sim", "create", "0", "2g.12gb", "-o", "json").document["instance"]
    record(mixed, made, time.time(), peak=3000, hours=26, alive=False)
    seen = run("usage", "0")
    assert "26 h" not in seen.out
    assert "idle times and peaks are unknown" in seen.err


def test_it_can_watch_for_a_while(mixed: Sim, run: Run) -> None:
    before = len(mixed.node.calls())
    seen = run("usage", "--watch-for", "0.5", "-o", "json").document
    assert len(mixed.node.calls()) > before
    assert {u["instance"] for u in seen["usage"]} == {None}
    assert mixed.node.show()["sessions"] == []
    assert not os.path.exists(os.path.join(mixed.node.directory, FILE)), "it does not act as a watcher"


@pytest.mark.parametrize("words", [(), ("0",)])
def test_after_a_while_of_watching_figures_stand_with_the_instances_of_that_moment(
    words: tuple[str, ...], mixed: Sim, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed.node.set_mode(0, True)
    mixed.node.create(0, "2g.12gb", 0)

    def observe(connection: Connection, _: float) -> Iterator[Inventory]:
        yield connection.backend.read()
        mixed.node.create(0, "1g.6gb", 2)
        yield connection.backend.read()

    monkeypatch.setattr(usage, "_samples", observe)
    seen = run("usage", *words, "--watch-for", "1")
    assert "2g.12gb at 0:2" in seen.out
    assert "1g.6gb at 2:1" in seen.out, "it was called a whole GPU"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--watch-for", "0"), 2),
        (("--watch-for", "nan"), 2),
        (("--watch-for", "-3"), 2),
        (("--dcgm", "file:///etc/passwd"), 2),
        (("77",), 20),
    ],
)
def test_what_it_refuses(words: tuple[str, ...], code: int, mixed: Sim, run: Run) -> None:
    assert run("usage", *words).code == code


def test_an_exporter_that_is_unavailable_hinders_nothing(mixed: Sim, run: Run) -> None:
    run("sim", "mode", "0", "on")
    run("sim", "create", "0", "2g.12gb")
    seen = run("usage", "--dcgm", "http://127.0.0.1:1/metrics")
    assert seen.code == 0
    assert "no shares from http://127.0.0.1:1/metrics" in seen.err


@pytest.mark.parametrize("words", [("--busy", "2"), ("--busy", "nan"), ("--memory", "-1"), ("--memory", "99999999")])
def test_what_a_simulated_process_cannot_use(words: tuple[str, ...], mixed: Sim, run: Run) -> None:
    assert run("sim", "hold", "0", *words).code == 2
    assert mixed.node.show()["gpus"][0]["processes"] == []
