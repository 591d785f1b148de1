"""Slurm nodes over simulated GPUs, for tests of ``aliquot slurm apply``. Each simulated node is a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .bed import Bed, Ran, until

DYNAMIC_CONF = "MaxNodeCount=20\nNodeSet=gpus Feature=mig"
PARTITION = "PartitionName=all Nodes=gpus,n2 Default=YES"
WORDS = "CPUs=2 RealMemory=1000 Feature=mig"


class Host:
    """A host: a simulated node with two A100, named as its Slurm node, and the commands that run its slurmd."""

    def __init__(
        self, bed: Bed, name: str = "n1", template: str = "a100-sxm4-40gb*2", *, latency: str = "none"
    ) -> None:
        self.bed = bed
        self.name = name
        self.state = bed.folder / "aliquot"
        self.env = {
            "ALIQUOT_STATE_DIR": str(self.state),
            "ALIQUOT_SLURM_RUN": str(bed.folder / "numbers"),
            "ALIQUOT_SIM": name,
            "ALIQUOT_BACKEND": "direct",
        }
        self.prefix = ""
        """Environment variables in front of slurmd when it is started."""
        self.ok("sim", "start", template, "--name", name, "--latency", latency)

    def run(self, *words: str, env: Mapping[str, str] | None = None, timeout: float = 60, stdin: str = "") -> Ran:
        """Run the command line on this host."""
        return self.bed.aliquot(*words, env=self.env | dict(env or {}), timeout=timeout, stdin=stdin)

    def ok(self, *words: str) -> str:
        done = self.run(*words)
        assert done.code == 0, (words, done)
        return done.out

    @property
    def how(self) -> list[str]:
        """Options of ``slurm apply`` that describe how this host runs slurmd."""
        words = ["--node-name", self.name, "--slurmd-start", self.start, "--slurmd-stop", self.stop, "--dev-root", "/"]
        return [*words, "--slurmctld-restart", f"{self.bed.etc}/restart-slurmctld"]

    @property
    def stop(self) -> str:
        """The shell command that stops slurmd."""
        pid = f"{self.bed.folder}/run/{self.name}.pid"
        return (
            f"[ -e {pid} ] || exit 0; read p < {pid}; kill $p 2>/dev/null; "
            f"for n in $(seq 500); do [ -e {pid} ] || exit 0; sleep 0.02; done; exit 1"
        )

    @property
    def start(self) -> str:
        """The shell command that starts slurmd."""
        return (
            'if [ -n "$ALIQUOT_SLURMD_CONF" ]; then set -- -Z --conf "$ALIQUOT_SLURMD_CONF"; fi; '
            f'{self.prefix}slurmd -N {self.name} -L {self.bed.logs}/{self.name}.log "$@"'
        )

    def apply(self, *words: str, timeout: float = 90, stdin: str = "") -> Ran:
        """Run ``slurm apply -o json``."""
        return self.run("slurm", "apply", *self.how, "-o", "json", *words, timeout=timeout, stdin=stdin)

    def applied(self, *words: str) -> dict[str, Any]:
        """Run ``apply``, which must succeed, and return its outcome."""
        done = self.apply(*words)
        assert done.code == 0, (words, done, self.log()[-3000:])
        return msgspec.json.decode(done.out, type=dict[str, Any])

    def log(self) -> str:
        try:
            return self.bed.log(self.name)
        except OSError:
            return ""

    def counts(self) -> dict[str, int]:
        """Count the instances on the GPUs by profile."""
        shown = msgspec.json.decode(self.ok("show", "-o", "json"), type=dict[str, Any])
        found: dict[str, int] = {}
        for gpu in shown["gpus"]:
            for each in gpu.get("instances", []):
                found[each["profile"]] = found.get(each["profile"], 0) + 1
        return found

    def gres(self) -> str:
        """Return the GRES that Slurm shows for the node."""
        return self.bed.field(self.name, "Gres")


def dynamic(bed: Bed, name: str = "n1", template: str = "a100-sxm4-40gb*2", *, more: str = "") -> Host:
    """Start a cluster with slurmctld, a node n2 without GPUs, and a host whose slurmd does not run yet. ``more`` are
    additional lines of slurm.conf.
    """
    bed.conf(f"{DYNAMIC_CONF}\n{more}\n{bed.node('n2', 'CPUs=1 RealMemory=1000')}\n{PARTITION}")
    _controller(bed)
    bed.slurmd("n2")
    return Host(bed, name, template)


def static(bed: Bed, name: str = "n1", *, nodes: str = "", more: str = "") -> Host:
    """Start the same cluster with a line in slurm.conf: the node is registered with two whole GPUs."""
    line = nodes or bed.node(name, "CPUs=2 RealMemory=1000 Gres=gpu:a100:2")
    bed.conf(f"{more}\n{line}\n{bed.node('n2', 'CPUs=1 RealMemory=1000')}\nPartitionName=all Nodes=ALL Default=YES")
    _controller(bed)
    bed.slurmd("n2")
    host = Host(bed, name)
    host.applied()
    until(lambda: idle(bed, name), lambda: bed.state(name))
    return host


def _controller(bed: Bed) -> None:
    restart(bed)
    bed.ok("sh", "-c", "slurmctld >/dev/null 2>&1")
    until(lambda: "UP" in bed.run("scontrol", "ping").out, "slurmctld does not answer")


def restart(bed: Bed, options: str = "$ALIQUOT_SLURMCTLD_OPTIONS") -> None:
    """Write a script that restarts slurmctld as an administrator would, with options for this start alone."""
    pid = f"{bed.folder}/run/slurmctld.pid"
    script = bed.etc / "restart-slurmctld"
    script.write_text(
        f"#!/bin/sh\nread p < {pid}\nkill $p\nwhile [ -e {pid} ]; do sleep 0.02; done\n"
        f"exec slurmctld {options} >/dev/null 2>&1\n"
    )
    script.chmod(0o755)


def idle(bed: Bed, name: str) -> bool:
    return bed.state(name).startswith("IDLE") and "DRAIN" not in bed.state(name)


def running(bed: Bed, job: str) -> None:
    until(lambda: bed.job(job, "JobState") == "RUNNING", lambda: f"job {job}: {bed.job(job, 'JobState')}")


def ended(bed: Bed, job: str) -> None:
    until(lambda: bed.job(job, "JobState") == "COMPLETED", lambda: f"job {job}: {bed.job(job, 'JobState')}")
