"""Slurm nodes with slot boards over simulated GPUs, and their jobs, for tests of ``aliquot slurm apply --slots``."""

from __future__ import annotations

import json
import sys
from typing import Any

from aliquot.slurm.conf.hosts import expand

from .applying import Host, idle, restart, running
from .bed import Bed, Ran, until
from .site import PROBE

SHAPE = "CPUs=16 RealMemory=1000"
CAPS = "/dev/nvidia-caps/nvidia-cap"


class SlotHost(Host):
    """A host whose node n1 is a slot board. Its slurmd and slurmctld run as daemons of the machine."""

    def slots(self, *words: str) -> dict[str, Any]:
        """Run ``apply --slots``, which must succeed, and return its outcome."""
        return self.applied("--slots", *words)

    def tried(self, *words: str) -> Ran:
        return self.apply("--slots", *words)

    def lines(self) -> list[str]:
        """Return the node's lines in gres.conf by slot."""
        text = (self.bed.etc / "gres.conf").read_text()
        return [line for line in text.splitlines() if line.startswith(f"NodeName={self.name} ")]

    def types(self) -> dict[int, str]:
        """Return the types of the slots that are not pads."""
        found = {n: line.partition("Type=")[2].split()[0] for n, line in enumerate(self.lines())}
        return {slot: kind.removeprefix("a100_") for slot, kind in found.items() if kind != "pad"}

    def files(self, slot: int) -> set[str]:
        """Return the device files of a slot without its marker."""
        words = self.lines()[slot].partition("Files=")[2].split()[0]
        return {file for file in expand(words) if "/aliquot/" not in file}

    def used(self) -> set[int]:
        """Return the slots that jobs have, as Slurm shows them."""
        shown = self.bed.ok("scontrol", "-d", "show", "node", self.name).partition("GresUsed=")[2].splitlines()[0]
        found: set[int] = set()
        for part in shown.split("IDX:")[1:]:
            for word in part.partition(")")[0].split(","):
                low, _, high = word.partition("-")
                found |= set(range(int(low), int(high or low) + 1)) if low.isdigit() else set()
        return found


def slot_host(bed: Bed, *, gpus: int = 2, constrain: bool = False, more: str = "", nodes: str = "") -> SlotHost:
    """Start a cluster whose node n1 has whole GPUs and a line in slurm.conf, and register it."""
    shape = f"{SHAPE} Gres=gpu:a100:{gpus}"
    lines = f"{bed.node('n1', shape)}\n{bed.node('n2', 'CPUs=2 RealMemory=1000')}\n{nodes}"
    partition = "" if "PartitionName=" in more else "PartitionName=all Nodes=ALL Default=YES OverSubscribe=YES"
    settings = f"SlurmdParameters=config_overrides\n{more}"
    bed.conf(f"{lines}\n{partition}", more=settings, constrain=constrain)
    restart(bed)
    bed.ok("sh", "-c", "slurmctld >/dev/null 2>&1")
    until(lambda: "UP" in bed.run("scontrol", "ping").out, "slurmctld does not answer")
    bed.slurmd("n2")
    (bed.folder / "probe.py").write_text(PROBE)
    return SlotHost(bed, template=f"a100-sxm4-40gb*{gpus}")


def adopted(bed: Bed, *words: str, **more: Any) -> SlotHost:
    """Start a cluster whose node n1 is a slot board. ``words`` request its layout; default: 7g.40gb on each GPU."""
    host = slot_host(bed, **more)
    host.slots(*(words or ("--gpu", f"0-{more.get('gpus', 2) - 1}", "--mig", "7g.40gb")))
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    return host


def runs(bed: Bed, kind: str, *words: str, script: str = "sleep 600") -> str:
    """Submit a job for an A100 profile on n1, and return its number once it runs."""
    done = bed.submit(script, "-w", "n1", f"--gres=gpu:a100_{kind}:1", *words)
    assert done.code == 0, done
    running(bed, done.out)
    return done.out


def probe(bed: Bed) -> str:
    """Return a command for a job that prints what it can open."""
    return f"outside {sys.executable} {bed.folder}/probe.py"


def openable(text: str) -> set[str]:
    """Return the files in the output of ``probe`` that the job may open."""
    found: dict[str, str] = json.loads(text)
    return {path for path, answer in found.items() if answer != "EPERM"} - {"/dev/nvidiactl"}


def looks(bed: Bed, job: str) -> list[set[str]]:
    """Return what a job could open at each ``probe`` so far. Messages of srun and unfinished lines are left out."""
    path = bed.folder / "out" / job
    text = path.read_text() if path.exists() else ""
    return [openable(line) for line in text.splitlines(keepends=True) if line[0] == "{" and line.endswith("\n")]
