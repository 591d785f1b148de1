"""A cluster of dynamic hosts over simulated GPUs with a running controller, and an observer of what Slurm shows."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections import Counter
from typing import Any

import msgspec
import yaml

from .applying import Host
from .bed import Bed, Ran, until

CONF = "MaxNodeCount=20\nNodeSet=gpus Feature=mig\nPartitionName=all Nodes=gpus Default=YES\n"
WORDS = "CPUs=2 RealMemory=1000 Feature=mig"


class DynamicHost(Host):
    """A dynamic host. slurmctld treats each as a separate host."""

    def __init__(self, bed: Bed, name: str) -> None:
        super().__init__(bed, name)
        self.prefix = "".join(f"{k}={shlex.quote(v)} " for k, v in bed.dynamic_env(name).items())


class Cluster:
    """slurmctld with hosts of two A100 each, all GPUs partitioned as ``first``."""

    def __init__(self, bed: Bed, *names: str, first: str = "7g.40gb", more: str = "", returns: bool = True) -> None:
        self.bed = bed
        bed.conf(CONF, more=more, returns=returns)
        bed.controller()
        self.hosts = {name: DynamicHost(bed, name) for name in names}
        for host in self.hosts.values():
            host.applied("--gpu", "0-1", "--mig", first, "--node-conf", WORDS)
        self.settings = bed.folder / "demand.yaml"
        self.history = bed.folder / "history.json"
        self.more: dict[str, str] = {}
        self.write()

    def write(self, *, limits: dict[str, Any] | None = None, **record: Any) -> None:
        """Write the controller's settings: without delays, unless specified."""
        quick = {"idle": 0, "between": 0, "changes-per-hour": 1000} | record
        document = {
            "version": "aliquot-slurm/v1",
            "records": [
                quick | {"nodes": name, "options": ["--sim", name, *host.how[2:]]} for name, host in self.hosts.items()
            ],
            "limits": {"interval": 0.3} | (limits or {}),
            "history": str(self.history),
        }
        self.settings.write_text(yaml.safe_dump(document))

    @property
    def env(self) -> dict[str, str]:
        """Environment of the controller, which runs on none of the hosts."""
        first = next(iter(self.hosts.values()))
        return {k: v for k, v in first.env.items() if k != "ALIQUOT_SIM"} | self.more

    def controller(self, *more: str) -> None:
        """Start the controller."""
        words = ("slurm", "controller", "-f", str(self.settings), *more)
        self.bed.start("controller", sys.executable, "-m", "aliquot", *words, env=self.env)

    def once(self, *words: str, code: int = 0) -> Ran:
        """Run the controller with these arguments to its end."""
        done = self.bed.aliquot("slurm", "controller", "-f", str(self.settings), *words, env=self.env)
        assert done.code == code, done
        return done

    def log(self) -> str:
        return self.bed.log("controller") if "controller" in self.bed.daemons else ""

    def demand(self) -> dict[str, Any]:
        """Run ``aliquot slurm demand -o json``."""
        done = self.bed.aliquot("slurm", "demand", "-f", str(self.settings), "-o", "json", env=self.env)
        assert done.code == 0, done
        return msgspec.json.decode(done.out, type=dict[str, Any])

    def submit(self, kind: str, script: str, *words: str) -> str:
        """Submit a job for these instances as soon as Slurm accepts it, and return its number."""
        done: list[str] = []

        def taken() -> bool:
            ran = self.bed.submit(script, f"--gres=gpu:{kind}", *words)
            done.append(ran.out if ran.code == 0 else ran.err)
            return ran.code == 0

        until(taken, lambda: f"no job for {kind} is taken: {done[-1]}\n{self.log()[-3000:]}")
        return done[-1]

    def ran(self, job: str, seconds: float = 60.0) -> None:
        """Wait until the job has completed."""
        self._until(job, "COMPLETED", seconds)

    def starts(self, job: str, seconds: float = 60.0) -> None:
        self._until(job, "RUNNING", seconds)

    def _until(self, job: str, state: str, seconds: float) -> None:
        until(lambda: self.bed.job(job, "JobState") == state, lambda: f"job {job}: {self.reported(job)}", seconds)

    def reported(self, job: str) -> str:
        shown = self.bed.run("scontrol", "show", "job", job).out
        nodes = self.bed.run("scontrol", "--future", "show", "nodes").out
        return f"{shown}\n{nodes}\n{self.log()[-4000:]}"


class Witness:
    """Polls a host: the GRES that Slurm offers to jobs, and the instances on its GPUs. ``lies`` are the moments at
    which a node that takes jobs showed instances that differed from the real ones.
    """

    def __init__(self, host: DynamicHost) -> None:
        self.host = host
        self.observations = 0
        self.shown: list[str] = []
        self.lies: list[tuple[float, str, dict[str, int]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _watch(self) -> None:
        before = self.host.counts()
        while not self._stop.is_set():
            line = self.host.bed.run("scontrol", "-o", "show", "node", self.host.name).out
            after = self.host.counts()
            fields = dict(w.partition("=")[::2] for w in line.split() if "=" in w)
            gres, state = fields.get("Gres", ""), fields.get("State", "")
            takes = bool(state) and not {"DRAIN", "DOWN", "INVAL"} & set(state.replace("*", "").split("+"))
            if before == after and takes:
                self.observations += 1
                if gres not in self.shown[-1:]:
                    self.shown.append(gres)
                if counted(gres) != Counter(after):
                    self.lies.append((time.time(), gres, after))
            before = after


def counted(gres: str) -> Counter[str]:
    """Convert GRES such as ``gpu:a100_3g.20gb:2(S:0)`` to instances by profile."""
    found: Counter[str] = Counter()
    for entry in gres.split(","):
        if entry.startswith("gpu:a100_"):
            _, kind, count = entry.partition("(")[0].split(":")
            found[kind.removeprefix("a100_")] += int(count)
    return found
