"""A real Slurm over simulated GPUs, one node of which is changed in two ways: by Aliquot, and by hand.

By hand means what an administrator's script would do. A process that already runs makes the same GPU calls at once,
and knows files and commands before the clock starts. It checks nothing and records nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from benchmarks.bench_node import Layout, Node

from system.slurm import applying
from system.slurm.applying import Host
from system.slurm.bed import Bed, until
from system.slurm.release import NEW, Release

LAYOUTS: dict[str, Layout] = {
    "1g.5gb*7": [("1g.5gb", n) for n in range(7)],
    "3g.20gb*2": [("3g.20gb", 0), ("3g.20gb", 4)],
}
"""The two layouts of GPU 0, as requests and with their placements."""
DYNAMIC, STATIC = KINDS = ("dynamic", "static")
DEFAULTS = "SchedulerParameters=default_queue_depth=100"
"""Slurm's default intervals between two scheduling cycles; beds for tests have shorter ones."""


@contextmanager
def bed(release: Release) -> Iterator[Bed]:
    """Make a host for one cluster, without starting Slurm."""
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    made = Bed(release, folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


class Took(msgspec.Struct, frozen=True):
    """Durations in seconds: of the whole change, and of the time in which the node took no jobs.

    The second runs from the order to drain to the end of the order to resume. If nothing must be resumed, it runs
    until Slurm has the node idle.
    """

    whole: float
    drained: float


class Saved(msgspec.Struct, frozen=True):
    """The Slurm configuration of a layout: the files' texts, and the value of ``Gres=``."""

    files: dict[Path, str]
    gres: str
    minors: frozenset[int]


class Changed:
    """A host of two A100 with its Slurm node. GPU 0 alternates between the two layouts.

    ``now`` is the current layout. ``more`` are lines of slurm.conf.
    """

    now: str

    def __init__(self, place: Bed, kind: str, more: str = "") -> None:
        self.bed = place
        self.kind = kind
        words = ["--gpu", "0-1", "--mig", "1g.5gb*7"]
        if kind == DYNAMIC:
            self.host: Host = applying.dynamic(place, more=more)
            words += ["--node-conf", applying.WORDS]
        else:
            self.host = applying.static(place, more=more)
        self.host.applied(*words)
        self.node = Node(str(self.host.state), self.host.name)
        first, second = LAYOUTS
        self._saved = {first: self._save()}
        self.ours(second)
        self._saved[second] = self._save()

    def ours(self, layout: str) -> Took:
        """Run ``aliquot slurm apply``. The times are those of its own lines."""
        words = ["slurm", "apply", *self.host.how, "--gpu", "0", "--mig", layout]
        answer: dict[str, float] = {}
        begin = self._begin()
        with subprocess.Popen(
            self.bed.inside(sys.executable, "-m", "aliquot", *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self.bed.env | self.host.env,
        ) as command:
            assert command.stderr is not None
            for line in command.stderr:
                answer.setdefault(line.strip(), time.perf_counter())
        end = time.perf_counter()
        assert command.returncode == 0, answer
        self.now = layout
        name = self.host.name
        return Took(end - begin, answer[f"{name} takes jobs again"] - answer[f"draining {name}"])

    def by_hand(self, layout: str) -> Took:
        """Change the node by hand: drain, wait for jobs, destroy and create, files, daemons, resume."""
        saved, name = self._saved[layout], self.host.name
        made = self.node.plan({self.node.pcis[0]: LAYOUTS[layout]})
        begin = self._begin()
        self.bed.ok("scontrol", "update", f"nodename={name}", "state=drain", "reason=layout")
        until(lambda: not self.bed.ok("squeue", "-h", "-w", name), "jobs do not end")
        for act in self._actions(saved, lambda: self.node.loop(made)):
            act()
        until(
            lambda: self.bed.field(name, "Gres").partition("(")[0] == saved.gres, lambda: self.bed.field(name, "Gres")
        )
        if self.kind == STATIC:
            until(self._resumed, lambda: self.bed.state(name))
        until(lambda: applying.idle(self.bed, name), lambda: self.bed.state(name))
        end = time.perf_counter()
        assert self._minors() == saved.minors, "the files do not speak of these instances"
        self.now = layout
        return Took(end - begin, end - begin)

    def close(self) -> None:
        self.node.close()

    def _actions(self, saved: Saved, cut: Callable[[], None]) -> Sequence[Callable[[], object]]:
        """Return the steps that this kind of node needs on this release, in order."""
        name = self.host.name

        def files() -> None:
            for path, text in saved.files.items():
                path.write_text(text)

        def forget() -> object:
            return self.bed.ok("scontrol", "delete", f"nodename={name}")

        if self.kind == DYNAMIC:
            return self._stop, cut, files, forget, lambda: self._start(f"{applying.WORDS} Gres={saved.gres}")
        if self.bed.release is NEW:
            return cut, files, lambda: self.bed.ok("scontrol", "reconfigure")
        restart = self._option("--slurmctld-restart")
        return self._stop, cut, files, lambda: self.bed.ok("sh", "-c", restart), self._start

    def _resumed(self) -> bool:
        """Resume the node. Slurm refuses this shortly after a registration, and may lose its answer while it starts."""
        done = self.bed.run("scontrol", "update", f"nodename={self.host.name}", "state=resume")
        return done.code == 0 or applying.idle(self.bed, self.host.name)

    def _stop(self) -> None:
        self.bed.ok("sh", "-c", self._option("--slurmd-stop"))

    def _start(self, conf: str = "") -> None:
        # Not through a pipe, because slurmd would keep it open.
        done = subprocess.run(
            self.bed.inside("sh", "-c", self._option("--slurmd-start")),
            env=self.bed.env | {"ALIQUOT_SLURMD_CONF": conf},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert done.returncode == 0

    def _option(self, name: str) -> str:
        words = self.host.how
        return words[words.index(name) + 1]

    def _begin(self) -> float:
        """Wait for the idle node, and one second more: Slurm distinguishes two starts of slurmd by the second."""
        until(lambda: applying.idle(self.bed, self.host.name), lambda: self.bed.state(self.host.name))
        time.sleep(1.1)
        return time.perf_counter()

    def _save(self) -> Saved:
        files = {self.bed.etc / "gres.conf": (self.bed.etc / "gres.conf").read_text()}
        if self.kind == STATIC:
            files[self.bed.etc / "slurm.conf"] = (self.bed.etc / "slurm.conf").read_text()
        return Saved(files, self.host.gres().partition("(")[0], self._minors())

    def _minors(self) -> frozenset[int]:
        """Return the capabilities that the lines of gres.conf name."""
        every = [i for gpu in self.node.read().gpus for i in gpu.instances]
        return frozenset(
            minor for i in every for minor in (i.capability_minor, *(c.capability_minor for c in i.compute_instances))
        )
