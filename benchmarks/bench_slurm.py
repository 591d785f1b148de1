"""A real Slurm over simulated GPUs for a while, and one node of it changed in two ways: by us, and by hand.

By hand is what an administrator's script would do: the same GPU calls, made at once by a process that runs already,
and files and words that are known before the clock starts. It looks at nothing and keeps nothing.
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
"""The two layouts of GPU 0, as wishes and with their places."""
DYNAMIC, STATIC = KINDS = ("dynamic", "static")
DEFAULTS = "SchedulerParameters=default_queue_depth=100"
"""Slurm's own times between two looks at the queue; beds for tests have quicker ones."""


@contextmanager
def bed(release: Release) -> Iterator[Bed]:
    """A machine for one cluster; nothing of Slurm runs yet."""
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    made = Bed(release, folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


class Took(msgspec.Struct, frozen=True):
    """Seconds: the whole, and those in which the node took no jobs, from the order to drain to the end of the order to
    resume (or, where nothing must be resumed, until Slurm has the node idle).
    """

    whole: float
    drained: float


class Saved(msgspec.Struct, frozen=True):
    """What a layout means for Slurm: the files' texts, and the value of ``Gres=``."""

    files: dict[Path, str]
    gres: str
    minors: frozenset[int]


class Changed:
    """A host of two A100 with its Slurm node, of which GPU 0 goes to and fro between the two layouts. ``now`` is the
    one that it has. ``more`` are lines of slurm.conf.
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
        """``aliquot slurm apply``, as it is typed. The moments are those of its own words."""
        words = ["slurm", "apply", *self.host.how, "--gpu", "0", "--mig", layout]
        said: dict[str, float] = {}
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
                said.setdefault(line.strip(), time.perf_counter())
        end = time.perf_counter()
        assert command.returncode == 0, said
        self.now = layout
        name = self.host.name
        return Took(end - begin, said[f"{name} takes jobs again"] - said[f"draining {name}"])

    def by_hand(self, layout: str) -> Took:
        """The recipe: drain, wait for jobs, destroy and create, files, daemons, resume."""
        saved, name = self._saved[layout], self.host.name
        made = self.node.plan({self.node.pcis[0]: LAYOUTS[layout]})
        begin = self._begin()
        self.bed.ok("scontrol", "update", f"nodename={name}", "state=drain", "reason=layout")
        until(lambda: not self.bed.ok("squeue", "-h", "-w", name), "jobs do not end")
        for act in self._acts(saved, lambda: self.node.loop(made)):
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

    def _acts(self, saved: Saved, cut: Callable[[], None]) -> Sequence[Callable[[], object]]:
        """What this kind of node needs on this release, in order."""
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
        """Slurm refuses it for moments after a registration, and may do it and lose its answer while it starts."""
        done = self.bed.run("scontrol", "update", f"nodename={self.host.name}", "state=resume")
        return done.code == 0 or applying.idle(self.bed, self.host.name)

    def _stop(self) -> None:
        self.bed.ok("sh", "-c", self._option("--slurmd-stop"))

    def _start(self, conf: str = "") -> None:
        # Not through a pipe: slurmd would keep it open.
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
        """Changes are seconds apart, as they are in life: Slurm tells two starts of slurmd apart by the second."""
        until(lambda: applying.idle(self.bed, self.host.name), lambda: self.bed.state(self.host.name))
        time.sleep(1.1)
        return time.perf_counter()

    def _save(self) -> Saved:
        files = {self.bed.etc / "gres.conf": (self.bed.etc / "gres.conf").read_text()}
        if self.kind == STATIC:
            files[self.bed.etc / "slurm.conf"] = (self.bed.etc / "slurm.conf").read_text()
        return Saved(files, self.host.gres().partition("(")[0], self._minors())

    def _minors(self) -> frozenset[int]:
        """The capabilities that the lines of gres.conf name."""
        every = [i for gpu in self.node.read().gpus for i in gpu.instances]
        return frozenset(
            minor for i in every for minor in (i.capability_minor, *(c.capability_minor for c in i.compute_instances))
        )
