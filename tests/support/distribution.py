"""Distribute test files over the workers: those that wait for daemons beside those that compute.

A file stays with one worker, so its servers start once. All workers but the first take the layers that mostly wait,
from the front of the list. The first one takes the layers that keep a core busy, from the end. They meet at the files
in the middle, which are short, so the workers end at the same time without a table of how long each file takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling
from xdist.workermanage import WorkerController

from support.layers import folders, layer

FIRST = (
    "vm",
    "soak",
    "slurm",
    "kubernetes",
    "libvirt",
    "containers",
    "harvester",
    "prometheus",
    "systemd",
    "dashboard",
)
"""Layers that mostly wait."""
LAST = ("contract", "e2e", "oracle", "browser", "docs", "crash")
"""Layers that compute for long, with the longest last."""
MORE = 3
"""The number of workers beside one per core, since tests wait: a worker that waits keeps a quarter of a core busy. With
more, daemons are late.
"""
TESTS = Path(__file__).resolve().parents[1]


class Files(LoadScopeScheduling):  # type: ignore[misc]
    """Distributes whole files: the first worker takes them from the end of the list, the others from its front."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id == "gw0":
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the layers in the order in which the workers take them."""
    items.sort(key=lambda item: _rank(layer(item.path)))


def _rank(name: str) -> int:
    if name in FIRST:
        return FIRST.index(name) - len(FIRST)
    return LAST.index(name) + 1 if name in LAST else 0


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Files | None:
    """Return the distribution of a run that requests no other by ``--dist``."""
    if config.option.dist != "load":
        return None
    config.option.loadscopereorder = False
    return Files(config, log)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of workers of ``-n auto``."""
    return _cores() + MORE


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the tests of a new checkout, each file once: all workers begin with the same files at the same time."""
    distributed = not hasattr(session.config, "workerinput") and session.config.getoption("numprocesses", None)
    if distributed and not sys.dont_write_bytecode and not [*(TESTS / "unit").rglob("__pycache__")]:
        layers = folders()
        words = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
        shares = [layers[core :: _cores()] for core in range(_cores())]
        running = [subprocess.Popen([*words, *share], stdout=subprocess.DEVNULL) for share in shares if share]
        for each in running:
            each.wait()


def _cores() -> int:
    return len(os.sched_getaffinity(0))
