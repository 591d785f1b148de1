"""A cluster with every kind of node, and each transport to it: the suite of the port runs over all of them."""

from __future__ import annotations

from pathlib import Path

from aliquot.slurm.client.command_client import ScontrolClient
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.client.rest_client import SlurmRestClient
from aliquot.slurm.client.rest_transport import RestTransport

from .bed import Bed, until

PROGRAMS = ("scontrol", "squeue", "sinfo")
TRANSPORTS = ("json", "text", "rest", "socket")
REASON = "aliquot: repartition a=b State=IDLE 'q' [x@y]"
_SHAPE = "CPUs=16 RealMemory=8000"
_NODES = """
MaxNodeCount=20
NodeSet=gpus Feature=mig
PartitionName=all Nodes=gpus,n1 Default=YES
PartitionName=clouds Nodes=cl1
PartitionName=off Nodes=ALL State=DOWN Hidden=YES
"""
_MORE = """
PrivateData=cloud
SlurmdParameters=config_overrides
SuspendTime=600
SuspendTimeout=1
SuspendProgram=/bin/true
ResumeProgram=/bin/true
"""


def _gres(name: str) -> str:
    caps = "/dev/nvidia-caps/nvidia-cap"
    small = [
        f"NodeName={name} Name=gpu Type=a100_1g.5gb MultipleFiles=/dev/nvidia0,{caps}{c},{caps}{c + 1}"
        for c in range(66, 129, 9)
    ]
    return "\n".join([*small, f"NodeName={name} Name=gpu Type=a100 File=/dev/nvidia1", ""])


class Cluster:
    """A cluster. ``n1`` is static, ``dyn1`` dynamic, ``later`` a FUTURE record, ``cl1`` a CLOUD record that is down."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        caps = [c + k for c in range(66, 129, 9) for k in (0, 1)]
        bed.gpu_devices(0, *caps)
        bed.gpu_devices(1)
        n1 = bed.node("n1", f"{_SHAPE} Gres=gpu:a100_1g.5gb:7,gpu:a100:1 Feature=st,mig")
        cl1 = bed.node("cl1", "CPUs=2 RealMemory=500 State=CLOUD Gres=gpu:a100_3g.20gb:2 Feature=cloudy")
        bed.conf(f"{n1}\n{cl1}\n{_NODES}", more=_MORE, gres=_gres("n1") + _gres("dyn1"))
        bed.controller()
        bed.slurmd("n1")
        bed.dynamic("dyn1", f"{_SHAPE} Gres=gpu:a100_1g.5gb:7,gpu:a100:1 Feature=mig")
        self.rest = bed.rest()
        self.bin = outside(bed)

    def ask(self, way: str) -> Slurm:
        """Return the client of one of ``TRANSPORTS``. PATH must begin with ``bin``."""
        conf = str(self.bed.etc / "slurm.conf")
        commands = ScontrolClient(conf, json=way != "text")
        if way in ("json", "text"):
            return commands
        place = self.rest.url if way == "rest" else f"unix:{self.rest.socket}"
        return SlurmRestClient(RestTransport(place, self.rest.token), commands)

    def submit(self, *words: str, script: str = "sleep 600") -> int:
        """Submit a job that keeps running and return its number."""
        done = self.bed.submit(script, *words)
        assert done.code == 0, done
        return int(done.out)

    def running(self, *words: str) -> int:
        job = self.submit(*words)
        until(lambda: self.bed.job(str(job), "JobState") == "RUNNING", f"job {job} never ran")
        return job

    def cancel(self, *jobs: int) -> None:
        self.bed.ok("scancel", *(str(j) for j in jobs))
        here = {"RUNNING", "COMPLETING", "PENDING"}
        until(lambda: not here & {self.bed.job(str(j), "JobState") for j in jobs}, "a job does not end")


def outside(bed: Bed) -> Path:
    """Create a folder of programs that run inside the machine, for code of Aliquot that runs outside."""
    folder = bed.folder / "outside"
    folder.mkdir(exist_ok=True)
    for name in PROGRAMS:
        inner = " ".join(bed.inside(str(bed.bin / name)))
        (folder / name).write_text(f'#!/bin/sh\nexec {inner} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def unprivileged(bed: Bed) -> Path:
    """Create a folder of Slurm's programs that run in the machine as a user who is not an operator."""
    folder = bed.folder / "unprivileged"
    folder.mkdir(exist_ok=True)
    drop = (
        f"chroot --userspec=65534:65534 {bed.release.root}"
        if bed.release.chrooted
        else "setpriv --reuid=65534 --regid=65534 --clear-groups"
    )
    for name in (*PROGRAMS, "sbatch", "sacct"):
        (folder / name).write_text(f'#!/bin/sh\nexec {drop} /usr/bin/{name} "$@"\n')
        (folder / name).chmod(0o755)
    return folder
