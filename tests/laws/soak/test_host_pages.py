"""Programs that watch the GPUs of a host: the metrics server, and the page over one node and over a fleet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aliquot.sim import lifecycle
from aliquot.sim.client import SimClient
from laws.soak.growth import soak
from laws.soak.program import Pages, Program

TEMPLATE = "a100-sxm4-40gb*2"
LAYOUTS = (("3g.20gb", "3g.20gb"), ("2g.10gb", "1g.5gb", "1g.5gb"), ("7g.40gb",), ("1g.5gb",) * 7)
PATHS = ("/", "/mig", "/vgpus", "/sriov", "/history", "/machines", "/metrics")
RESTART = 5
"""The node restarts in every such cycle."""


class Lab:
    """A simulated node whose instances, holders and errors differ in each cycle. ``env`` connects a program to it."""

    def __init__(self, folder: Path) -> None:
        self.state = str(folder / "state")
        self.env = {"ALIQUOT_STATE_DIR": self.state}
        lifecycle.start(self.state, TEMPLATE, "lab", "none")

    def change(self, number: int) -> str:
        """Give the GPUs other instances and another holder. Return the holder's pid."""
        if number % RESTART == RESTART - 1:
            lifecycle.stop(self.state, "lab")
            lifecycle.start(self.state, TEMPLATE, "lab", "none")
        with closing(SimClient(self.state, "lab")) as node:
            while node.set_mode(0, True):  # pending: the program has the GPU open
                time.sleep(0.002)
            for gpu in node.show()["gpus"]:
                for instance in gpu["instances"]:
                    node.release(gpu["index"], instance["id"])
                    node.destroy(gpu["index"], instance["id"])
            made = [node.create(0, profile) for profile in LAYOUTS[number % len(LAYOUTS)]]
            node.inject_fault("fail", call="DeviceGetUtilizationRates", code=999, calls=1)
            return str(node.hold(0, made[0], memory=100 + number))

    def instances(self, number: int) -> int:
        """Return the number of instances in a cycle."""
        return len(LAYOUTS[number % len(LAYOUTS)])


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    yield found
    lifecycle.stop(found.state)


def hurried(lab: Lab, folder: Path, *words: str) -> Program:
    return Program(folder / "log", *words, module="laws.soak.hurried", env=lab.env)


def test_the_metrics_server(lab: Lab, tmp_path: Path) -> None:
    words = ("metrics", "--sim", "lab", "--listen", "127.0.0.1:0", "--every", "1")
    with (
        hurried(lab, tmp_path, *words) as program,
        closing(Pages(int(program.messages(r"http://127\.0\.0\.1:(\d+)/metrics")))) as pages,
    ):

        def cycle(number: int) -> None:
            lab.change(number)
            program.until(lambda: _instances(pages) == lab.instances(number), "the new instances")
            if number % RESTART == 1:
                pages.close()

        soak(program.pid, tmp_path, cycle, pages.close)


def _instances(pages: Pages) -> int:
    return sum(line.startswith("aliquot_instance_info{") for line in pages.get("/metrics").splitlines())


@pytest.mark.parametrize("kind", ["node", "fleet"])
def test_the_page(lab: Lab, tmp_path: Path, kind: str) -> None:
    words = ("dashboard", "--listen", "127.0.0.1:0", *(("--sim", "lab") if kind == "node" else ("--fleet",)))
    with (
        hurried(lab, tmp_path, *words) as program,
        closing(Pages(int(program.messages(r"127\.0\.0\.1:(\d+)/login")))) as pages,
    ):
        pages.headers["Authorization"] = "Bearer " + program.messages(r"with the token (\S+)")

        def cycle(number: int) -> None:
            holder = lab.change(number)
            program.until(lambda: holder in pages.get("/nodes/lab"), "the new instances")
            pages.get(PATHS[number % len(PATHS)])
            if number % RESTART == 1:
                pages.close()

        soak(program.pid, tmp_path, cycle, pages.close)
