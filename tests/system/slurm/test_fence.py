"""Two Slurm nodes on the same host, each with its own GPU, on real control groups.

A job of one node opens no device of the other, whatever it requests, even after the other was repartitioned. The files
are those that apply writes.
"""

from __future__ import annotations

import json
import sys

import pytest

from .applying import DYNAMIC_CONF, Host, ended, idle, restart
from .bed import Bed, until
from .cgroups import missing
from .site import PROBE
from .test_apply import part
from .test_apply_faults import REFUSING

WORDS = "CPUs=2 RealMemory=1000 Feature=mig"
GPU = ("/dev/nvidia0", "/dev/nvidia1")
ADMIN = {"/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"}
PARTITION = "PartitionName=all Nodes=gpus,n2 Default=YES"
SLICE = "--gres=gpu:a100_3g.20gb:1"


@pytest.fixture(params=["dynamic", "static"])
def halves(bed: Bed, request: pytest.FixtureRequest) -> tuple[Host, Host]:
    """Start n1-gpu0 and n1-gpu1, each partitioned into two 3g.20gb."""
    if missing():
        pytest.skip(missing())
    dynamic = request.param == "dynamic"
    names = ["n1-gpu0", "n1-gpu1"]
    shape = "CPUs=2 RealMemory=1000 Feature=mig Gres=gpu:a100:1"
    lines = [] if dynamic else [bed.node(name, shape) for name in names]
    beside = bed.node("n2", "CPUs=1 RealMemory=1000")
    kinds = DYNAMIC_CONF if dynamic else "NodeSet=gpus Feature=mig"
    bed.conf("\n".join([kinds, *lines, beside, PARTITION]), more="GresTypes=gpu,nic", constrain=True)
    restart(bed)
    bed.ok("sh", "-c", "slurmctld >/dev/null 2>&1")
    until(lambda: "UP" in bed.run("scontrol", "ping").out, "slurmctld does not answer")
    bed.slurmd("n2")
    (bed.folder / "probe.py").write_text(PROBE)
    host = Host(bed)
    made = (part(host, 0), part(host, 1))
    for number, each in enumerate(made):
        each.prefix = each.prefix if dynamic else ""  # a dynamic node needs a separate address
        words = ("--node-conf", WORDS) if dynamic else ()
        each.applied("--gpu", str(number), "--mig", "3g.20gb*2", "--capacity", str(number), *words)
    until(lambda: all(idle(bed, each.name) for each in made), lambda: bed.run("sinfo", "-NR").out)
    return made


def allowed(host: Host, *options: str) -> set[str]:
    """Return what a job on a node may open, except the device node that every client of the driver opens first."""
    job = host.bed.submit(f"outside {sys.executable} {host.bed.folder}/probe.py", "-w", host.name, *options).out
    ended(host.bed, job)
    found: dict[str, str] = json.loads((host.bed.folder / "out" / job).read_text())
    assert found.keys() >= set(GPU)
    return {path for path, answer in found.items() if answer != "EPERM"} - {"/dev/nvidiactl"}


def refused(host: Host, *options: str) -> bool:
    """Report whether Slurm has nothing of that kind on a node."""
    return "Requested node configuration is not available" in host.bed.submit("true", "-w", host.name, *options).err


def slices(host: Host) -> list[set[str]]:
    """Return the files of each MIG device of a node, as its lines in gres.conf list them."""
    text = (host.bed.etc / "gres.conf").read_text()
    mine = [line for line in text.splitlines() if line.startswith(f"NodeName={host.name} Name=gpu ")]
    return [set(line.partition("MultipleFiles=")[2].split()[0].split(",")) for line in mine]


def test_a_job_opens_its_own_slice_alone_whatever_it_asks_for(halves: tuple[Host, Host]) -> None:
    first, second = halves
    bed = first.bed
    assert allowed(second, SLICE) in slices(second)
    # The first node learned of the second before that was partitioned. Since then its GPU is fenced, so none of its
    # capabilities is of any use. The nodes of its instances are fenced once the first node's slurmd reads them.
    early = allowed(first, SLICE)
    assert GPU[1] not in early
    assert not ADMIN & early
    first.applied()
    assert allowed(first, SLICE) in slices(first)
    assert allowed(first) == set()
    assert allowed(first, "--exclusive") == set.union(*slices(first))
    assert refused(first, f"{SLICE},nic:1")
    assert refused(first, "--gres=nic:1")
    assert "nic" not in bed.field(first.name, "Gres") + bed.run("sinfo", "-o", "%G").out
    assert first.applied()["status"] == "nothing"


def test_restarts_do_not_open_a_fence(halves: tuple[Host, Host]) -> None:
    first, _ = halves
    bed = first.bed
    bed.ok(f"{bed.etc}/restart-slurmctld")
    until(lambda: "UP" in bed.run("scontrol", "ping").out, "slurmctld does not answer")
    until(lambda: idle(bed, first.name), lambda: bed.state(first.name))
    assert GPU[1] not in allowed(first, SLICE)
    if "DYNAMIC" in bed.state(first.name):
        assert refused(first, f"{SLICE},nic:1")
    else:  # the restart reads slurm.conf again
        assert "nic" in bed.field(first.name, "Gres")
        first.applied()
        assert refused(first, f"{SLICE},nic:1")
    assert GPU[1] not in allowed(first, "--exclusive")


def test_a_neighbour_that_is_cut_again_stays_out_of_reach(halves: tuple[Host, Host]) -> None:
    first, second = halves
    bed = first.bed
    job = bed.submit("sleep 300", "-w", first.name, SLICE).out
    second.applied("--gpu", "1", "--mig", "1g.5gb*7", "--capacity", "1")
    # Device nodes of destroyed instances stay in /dev and open nothing.
    there = set.union(*slices(first), *slices(second))
    assert allowed(second, "--gres=gpu:a100_1g.5gb:1") & there in slices(second)
    assert GPU[1] not in allowed(first, SLICE)
    assert bed.job(job, "JobState") == "RUNNING"
    bed.ok("scancel", job)
    first.applied("--jobs", "wait")
    assert allowed(first, SLICE) & there in slices(first)


def test_undo_brings_a_fence_back_that_no_job_is_given(halves: tuple[Host, Host]) -> None:
    first, _ = halves
    first.applied()
    first.ok("sim", "fault", "fail", *REFUSING, "calls=1")
    failed = first.apply("--gpu", "0", "--mig", "1g.5gb*7", "--capacity", "0")
    assert failed.code == 40, failed
    if "DRAIN" in first.bed.state(first.name):
        first.bed.ok("scontrol", "update", f"nodename={first.name}", "state=resume")
    until(lambda: first.bed.state(first.name).startswith("IDLE"), lambda: first.bed.state(first.name))
    assert allowed(first, SLICE) in slices(first)
    assert refused(first, f"{SLICE},nic:1")
