"""The simulator server: nodes that start and stop, and the events on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aliquot.sim import lifecycle
from aliquot.sim.client import SimClient
from laws.soak.growth import environment, soak
from support import forkserver


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Create a state directory whose server runs in a fresh interpreter."""
    monkeypatch.setattr(lifecycle, "launch", forkserver.fresh_server)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    path = str(tmp_path / "state")
    yield path
    lifecycle.stop(path)


def test_the_simulator_server(state_dir: str, tmp_path: Path) -> None:
    # Creates and removes instances, virtual functions, holders, errors, files and nodes, and reboots nodes.
    lifecycle.start(state_dir, "a100-sxm4-40gb*2", "steady", "none")
    pid = int(lifecycle._request(state_dir, {"do": "ping"})["pid"])

    def cycle(number: int) -> None:
        lifecycle.start(state_dir, "a30,a2", "brief", "none")
        with closing(SimClient(state_dir, "brief")) as brief:
            brief.show()
            brief.set_mode(0, True)
            brief.create(0, "1g.6gb")
            brief.many_files([("names", "/sys/bus/pci/devices")])
        with closing(SimClient(state_dir, "steady")) as steady:
            steady.set_mode(0, True)
            instance = steady.create(0, "3g.20gb")
            holder = steady.hold(0, instance, memory=100 + number)
            steady.inject_fault("xid", gpu=1, code=48)
            steady.inject_fault("fail", call="DeviceGetMemoryInfo", code=999, calls=1)
            steady.show()
            steady.terminate(holder)
            steady.destroy(0, instance)
            steady.inject_fault("none")
            if number % 4 == 3:
                steady.reboot()
        lifecycle.changes(state_dir, "", 0.0)
        lifecycle.stop(state_dir, "brief")

    soak(pid, tmp_path, cycle)
