"""Measure what each test costs: CPU seconds of the test and of every process that it starts, daemons included.

Each worker has a control group of its own (``cpuacct``, cgroup v1, root): the kernel counts there what its processes
use, daemons included. Elsewhere the figures are those of the worker and of the children that it has waited for, so a
server counts for the test that stops it.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.layers import TESTS, layer

GROUPS = Path("/sys/fs/cgroup/cpuacct")
SLOWEST = 50
"""How many of the most expensive tests that take ``WORTH_S`` are listed."""
WORTH_S = 0.5


class Cost(NamedTuple):
    """Seconds of wall time and of CPU."""

    wall: float = 0.0
    cpu: float = 0.0

    def plus(self, wall: float, cpu: float) -> Cost:
        return Cost(self.wall + wall, self.cpu + cpu)


class Meter:
    """The CPU seconds of this process and of all that it starts."""

    def __init__(self, name: str) -> None:
        self._group: Path | None = None
        with contextlib.suppress(OSError):
            # The pids of two runs may be the same: each has a PID namespace of its own.
            group = Path(tempfile.mkdtemp(prefix=f"aliquot-{name}-", dir=_own_group()))
            (group / "cgroup.procs").write_text(str(os.getpid()))
            self._group = group

    def seconds(self) -> float:
        if self._group is not None:
            return int((self._group / "cpuacct.usage").read_text()) / 1e9
        return sum(os.times()[:4])

    def close(self) -> None:
        """Return to the parent group. Processes that still run move there as well."""
        group, self._group = self._group, None
        if group is not None:
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (group.parent / "cgroup.procs").write_text(pid)
            with contextlib.suppress(OSError):
                group.rmdir()


def _own_group() -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpuacct" in controllers.split(","):
            return GROUPS / path.lstrip("/")
    raise FileNotFoundError("no cpuacct")


class Measuring:
    """Runs in each process that runs tests: puts the CPU seconds of each phase into its report."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._meter = Meter(getattr(config, "workerinput", {}).get("workerid", "main"))
        self._began = time.monotonic()
        self._collection = Cost()
        self._last = self._first = self._meter.seconds()

    def _lap(self) -> float:
        now = self._meter.seconds()
        spent, self._last = now - self._last, now
        return spent

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Iterator[None]:
        result = yield
        self._collection = Cost(time.monotonic() - self._began, self._lap())
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        report.__dict__["cpu"] = self._lap()
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        figures = {
            "collection": list(self._collection),
            "total": self._meter.seconds() - self._first,
        }
        self._meter.close()
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["measured"] = figures
        else:
            self._config.stash[WORKERS].append(figures)


WORKERS = pytest.StashKey[list[dict[str, Any]]]()


class Table:
    """Runs in the process that shows the results: what each layer and the most expensive tests cost."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = time.monotonic()
        self._tests: dict[str, Cost] = defaultdict(Cost)
        config.stash[WORKERS] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid] = self._tests[report.nodeid].plus(report.duration, getattr(report, "cpu", 0.0))

    def pytest_testnodedown(self, node: Any) -> None:
        figures = getattr(node, "workeroutput", {}).get("measured")
        if figures:
            self._config.stash[WORKERS].append(figures)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        wall, workers = time.monotonic() - self._began, self._config.stash[WORKERS]
        if out := os.environ.get("ALIQUOT_MEASURED"):
            Path(out).write_text(json.dumps({"workers": workers, "tests": self._tests, "wall": wall}))
        slow = [name for name, cost in self._tests.items() if max(cost) >= WORTH_S]
        slow = sorted(slow, key=lambda name: -self._tests[name].cpu)[:SLOWEST]
        if slow:
            terminalreporter.section("where the time went")
            for line in (*self._layers(workers, wall), *self._rows(slow)):
                terminalreporter.write_line(line)

    def _layers(self, workers: list[dict[str, Any]], wall: float) -> Iterator[str]:
        layers: dict[str, list[Cost]] = defaultdict(list)
        for name, cost in self._tests.items():
            layers[layer(TESTS.parent / name.partition("::")[0])].append(cost)
        cpu = {each: sum(cost.cpu for cost in costs) for each, costs in layers.items()}
        yield f"{'layer':14}{'tests':>7}{'CPU s':>9}{'wall s':>9}"
        for each in sorted(layers, key=lambda each: -cpu[each]):
            spent = sum(cost.wall for cost in layers[each])
            yield f"{each:14}{len(layers[each]):7}{cpu[each]:9.1f}{spent:9.1f}"
        yield f"{'collection':14}{'':7}{sum(each['collection'][1] for each in workers):9.1f}"
        yield f"{'all':14}{len(self._tests):7}{sum(each['total'] for each in workers):9.1f}{wall:9.1f}"

    def _rows(self, names: list[str]) -> Iterator[str]:
        yield ""
        yield f"{'CPU s':>9}{'wall s':>9}  the {len(names)} most expensive tests"
        for name in names:
            yield f"{self._tests[name].cpu:9.1f}{self._tests[name].wall:9.1f}  {name}"


def pytest_configure(config: pytest.Config) -> None:
    if config.option.collectonly:
        return
    worker = hasattr(config, "workerinput")
    if not worker:
        config.pluginmanager.register(Table(config), "measuring-table")
    if worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Measuring(config), "measuring-tests")
