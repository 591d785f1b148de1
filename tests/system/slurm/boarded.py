"""A cluster whose node n1 is a slot board, with a running controller that serves jobs by changing idle slots."""

from __future__ import annotations

import sys
from typing import Any

import yaml

from .applying import idle
from .bed import Bed, Ran, until
from .slotted import SlotHost, adopted, slot_host

FUTURE = "NodeName=layouts CPUs=16 RealMemory=1000 State=FUTURE Gres="
KINDS = {"1g.5gb": 7, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}


def placeholder(gpus: int) -> str:
    """Return the line of slurm.conf because of which jobs may wait for any type, also after slurmctld restarted."""
    return FUTURE + ",".join(f"gpu:a100_{kind}:{n * gpus}" for kind, n in KINDS.items())


class BoardCluster:
    """slurmctld, a node n1 with GPUs as 7g.40gb, and the controller's settings. The node is a slot board, or without
    ``board`` becomes one with the next change.
    """

    def __init__(self, bed: Bed, *, gpus: int = 2, more: str = "", board: bool = True, **record: Any) -> None:
        self.bed = bed
        self.host: SlotHost
        if board:
            self.host = adopted(bed, gpus=gpus, nodes=placeholder(gpus), more=more)
        else:
            self.host = slot_host(bed, gpus=gpus, nodes=placeholder(gpus), more=more)
            self.host.applied("--gpu", f"0-{gpus - 1}", "--mig", "7g.40gb")
            until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
        self.settings = bed.folder / "boards.yaml"
        words = [word for word in self.host.how if word not in ("--node-name", self.host.name)]
        entry = {"nodes": "n1", "slots": True, "options": ["--sim", "n1", *words]}
        document = {
            "version": "aliquot-slurm/v1",
            "records": [entry | record],
            "limits": {"interval": 1},
            "history": str(bed.folder / "history.json"),
        }
        self.settings.write_text(yaml.safe_dump(document))

    @property
    def env(self) -> dict[str, str]:
        return {key: value for key, value in self.host.env.items() if key != "ALIQUOT_SIM"}

    def controller(self) -> None:
        words = ("slurm", "controller", "-f", str(self.settings))
        self.bed.start("controller", sys.executable, "-m", "aliquot", *words, env=self.env)

    def once(self, *words: str) -> Ran:
        return self.bed.aliquot("slurm", "controller", "-f", str(self.settings), *words, env=self.env)

    def log(self) -> str:
        return self.bed.log("controller") if "controller" in self.bed.daemons else ""

    def changes(self) -> int:
        """Return how many changes the controller has started."""
        return self.log().count(" is repartitioned for ")

    def demand(self) -> str:
        done = self.bed.aliquot("slurm", "demand", "-f", str(self.settings), env=self.env)
        assert done.code == 0, done
        return done.out

    def submit(self, kind: str, *words: str, script: str = "sleep 600") -> str:
        done = self.bed.submit(script, "--mem=1", f"--gres=gpu:a100_{kind}", *words)
        assert done.code == 0, done
        return done.out

    def runs(self, job: str, tasks: int = 1, seconds: float = 60.0) -> None:
        """Wait until as many tasks of a job run."""
        until(lambda: self.running(job) == tasks, lambda: self.reported(), seconds)

    def running(self, job: str) -> int:
        return self.bed.run("squeue", "-h", "-r", "-j", job, "-o", "%T").out.split().count("RUNNING")

    def reported(self) -> str:
        queue = self.bed.run("squeue", "-r").out
        node = self.bed.run("scontrol", "-d", "show", "node", self.host.name).out
        return f"{queue}\n{node}\n{self.log()[-6000:]}"
