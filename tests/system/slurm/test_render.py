"""Output of render, read by the slurmd and slurmctld of both releases.

They read it as intended, jobs get exactly the devices of a line, and a task gets the UUID of its own MIG device.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from aliquot.core.model.claims import Claim
from aliquot.core.model.inventory import Inventory
from aliquot.slurm.files import gpu_numbering as numbering
from aliquot.slurm.files import gres_conf as gres
from aliquot.slurm.files import node_line as nodeline
from aliquot.slurm.files import slurmd_validation as validate
from aliquot.slurm.files.gpu_numbering import Numbering
from aliquot.slurm.files.gres_conf import GresForm
from aliquot.slurm.files.job_devices import GresChoice, GresDevice, OfferedDevices, offered_devices
from aliquot.slurm.gpus.gres_types import TypeStyle
from aliquot.slurm.jobs import dcgm_mapping as dcgm
from support.slurmstate import sliced

from .bed import Bed, until
from .cgroups import missing

DEPLOY = Path(__file__).resolve().parents[3] / "deploy/slurm"
PARTITION = "PartitionName=all Nodes=ALL Default=YES"
MIXED = sliced("3g.20gb@4", "1g.5gb@0", "1g.5gb+me@1", products="a100-sxm4-40gb*3", gpu=1)
"""GPU 1 is partitioned, its neighbours are whole: the numbers of GPUs, of CUDA and of Slurm all differ."""


class Node:
    """Node n1 of a bed with these GPUs, its rendered files, and the shipped TaskProlog, Prolog and Epilog."""

    def __init__(self, bed: Bed, inventory: Inventory, gres_value: str = "", *, constrain: bool = False) -> None:
        self.bed = bed
        self.offered = offered_devices(inventory)
        self.run = str(bed.folder / "numbers")
        self.jobs = str(bed.folder / "dcgm")
        numbering.write(Numbering.from_offered("n1", self.offered), self.run)
        bed.devices_of(inventory)
        value = gres_value or nodeline.gres_value(self.offered)
        bed.conf(
            f"{bed.node('n1', f'CPUs=2 RealMemory=1000 Gres={value}')}\n{PARTITION}",
            more="\n".join(f"{key}={self._script(name)}" for key, name in SCRIPTS.items()),
            gres="\n".join(gres.lines("n1", self.offered)) + "\n",
            constrain=constrain,
        )
        bed.controller()
        bed.slurmd("n1")

    def _script(self, name: str) -> str:
        """Write a shipped script with this test's paths of numbers and files."""
        own = self.bed.folder / name
        shutil.copy(DEPLOY / name, self.bed.folder / f"shipped-{name}")
        aliquot = self.bed.bin / "aliquot"
        own.write_text(
            f"#!/bin/sh\nexport ALIQUOT={aliquot} ALIQUOT_SLURM_RUN={self.run} DCGM_HPC_JOB_MAPPING_DIR={self.jobs}\n"
            f'exec {self.bed.folder}/shipped-{name} "$@"\n'
        )
        own.chmod(0o755)
        return str(own)

    def srun(self, *words: str, command: str = "echo $CUDA_VISIBLE_DEVICES") -> list[str]:
        """Run a job and return what its tasks print."""
        return sorted(self.bed.ok("timeout", "40", "srun", *words, "sh", "-c", command).split("\n"))[1:]


SCRIPTS = {"TaskProlog": "task-prolog.sh", "Prolog": "prolog.sh", "Epilog": "epilog.sh"}


def slurmd(bed: Bed) -> list[str]:
    return bed.inside(str(bed.bin / "slurmd"))


def read(bed: Bed, offered: OfferedDevices, value: str, lines: tuple[str, ...]) -> validate.ParsedFiles:
    files = {"slurm.conf": validate.minimal("n1", value), "gres.conf": "\n".join(lines) + "\n", "cgroup.conf": ""}
    return validate.parse(files, "n1", slurmd(bed))


def test_slurmd_reads_it_as_intended(bed: Bed) -> None:
    offered = offered_devices(MIXED)
    value = nodeline.gres_value(offered)
    for form in (GresForm(), GresForm("off"), GresForm(environment="none"), GresForm(environment="all")):
        parsed = read(bed, offered, value, gres.lines("n1", offered, form))
        assert validate.differences(offered, parsed, value) == ()
        assert not validate.out_of_order(offered, parsed)
        assert len(parsed.missing) == 9  # three GPUs, three instances: none of them has a device node here


def test_cores_are_taken(bed: Bed) -> None:
    offered = offered_devices(MIXED)
    form = GresForm(cores={MIXED.gpus[1].pci: "0"})
    value = nodeline.gres_value(offered)
    parsed = read(bed, offered, value, gres.lines("n1", offered, form))
    assert validate.differences(offered, parsed, value) == ()


@pytest.mark.parametrize(
    ("count", "words"),
    [(":x1", "x1"), (":2", "Gres= has 2"), (":0", "Gres= has 0"), ("", "")],
)
def test_a_wrong_count_is_found_that_slurmd_takes(bed: Bed, count: str, words: str) -> None:
    offered = offered_devices(MIXED)
    value = nodeline.gres_value(offered).replace("a100_3g.20gb:1", f"a100_3g.20gb{count}")
    parsed = read(bed, offered, value, gres.lines("n1", offered))
    found = validate.differences(offered, parsed, value)
    assert any(words in sentence for sentence in found) if words else not found


def test_what_slurmd_refuses_is_reported(bed: Bed) -> None:
    offered = offered_devices(MIXED)
    lines = gres.lines("n1", offered)
    value = nodeline.gres_value(offered)
    for wrong in ("NodeName=n1 Nmae=gpu", "NodeName=n1 Name=gpu Type=a100 File=/dev/null Count=3"):
        parsed = read(bed, offered, value, (*lines, wrong))
        assert validate.differences(offered, parsed, value), wrong
    swapped = (lines[0].replace("nvidia0", "nvidia2"), *lines[2:])
    found = validate.differences(offered, read(bed, offered, value, swapped), value)
    assert "slurmd reads 1 of type a100, not 2" in found


def test_a_list_in_another_order_is_seen(bed: Bed) -> None:
    offered = offered_devices(MIXED)
    value = ",".join(reversed(nodeline.gres_value(offered).split(",")))
    assert validate.out_of_order(offered, read(bed, offered, value, gres.lines("n1", offered)))


def fake(device: GresDevice) -> str:
    """Return a line of fake_gpus.conf: what a plugin would have detected."""
    return f"{device.detected}|2|0-1|(null)|{','.join(device.files)}|{device.uuid}"


@pytest.mark.parametrize("style", ["short", "full", "profile"])
def test_detection_comes_to_the_same_types(bed: Bed, style: TypeStyle) -> None:
    # The names are those that Slurm's NVML plugin would use. test_autodetect covers the plugin itself.
    node = sliced("3g.20gb@4:1c.3g.20gb", "1g.5gb@0", "1g.5gb+me@1", products="a100-sxm4-40gb*3", gpu=1)
    offered = offered_devices(node, GresChoice(style=style))
    assert gres.misread(offered) == ()
    bed.devices_of(node)
    bed.conf(bed.node("n1", f"CPUs=2 RealMemory=1000 Gres={nodeline.gres_value(offered)}"), cgroup="")
    (bed.etc / "gres.conf").write_text("\n".join(gres.lines("n1", offered, GresForm("nvml"))) + "\n")
    (bed.etc / "fake_gpus.conf").write_text("\n".join(fake(d) for d in reversed(offered.devices)) + "\n")
    parsed = validate.listed_devices(bed.run("slurmd", "-G", "-N", "n1").err)
    assert {(kind, frozenset(files)) for kind, _, files in parsed} == {
        (d.type, frozenset(d.files)) for d in offered.devices
    }


def test_tasks_get_the_uuid_of_what_they_have(bed: Bed) -> None:
    node = Node(bed, MIXED)
    by_type = {d.type: d.uuid for d in node.offered.devices}
    assert bed.field("n1", "Gres") == nodeline.gres_value(node.offered)
    for kind in ("a100_3g.20gb", "a100_1g.5gb", "a100_1g.5gb+me"):
        assert node.srun(f"--gres=gpu:{kind}:1") == [by_type[kind]]
    whole = [d.uuid for d in node.offered.devices if d.type == "a100"]
    assert node.srun("--gres=gpu:a100:2") == [",".join(whole)]
    assert node.srun(command="echo ${CUDA_VISIBLE_DEVICES-none}") == ["none"]
    assert node.srun("-n2", "--gpus-per-task=a100:1", "--gpu-bind=single:1") == sorted(whole)


def test_metrics_belong_to_the_job_while_it_runs(bed: Bed) -> None:
    node = Node(bed, MIXED)
    job = bed.submit("sleep 60", "--gres=gpu:a100_1g.5gb:1,gpu:a100:1").out
    device = next(d for d in node.offered.devices if d.type == "a100_1g.5gb")

    def files() -> set[str]:
        """Return the files that name this job. Jobs of other beds are in the same /proc."""
        return {name for name, jobs in dcgm.jobs(node.jobs).items() if job in jobs}

    until(lambda: bool(files()), lambda: bed.log("n1")[-1500:])
    assert files() < {f"1.{device.instance}", "0"}  # Slurm passes only one of the two types to the Prolog
    env = {"ALIQUOT_SLURM_RUN": node.run}

    def both() -> bool:
        assert bed.aliquot("slurm", "dcgm", "refresh", "--dir", node.jobs, env=env).code == 0
        return files() == {f"1.{device.instance}", "0"}

    until(both, lambda: f"{dcgm.jobs(node.jobs)}")
    bed.ok("scancel", job)
    until(lambda: not files(), lambda: f"{dcgm.jobs(node.jobs)}")
    assert "drain" not in bed.state("n1").lower()


OBSERVATION = """
import sys, msgspec
from aliquot.slurm.holders import jobs as jobs_here
from aliquot.core.model.inventory import Inventory
found = msgspec.json.decode(open(sys.argv[1], 'rb').read(), type=Inventory)
print(msgspec.json.encode(jobs_here.claims(found.gpus, sys.argv[2], simulated=True)).decode())
"""


def claims(node: Node) -> list[Claim]:
    """Return the claims of this bed's jobs. Read inside the bed, because jobs of other beds are in the same /proc."""
    file = node.bed.folder / "inventory.json"
    file.write_bytes(msgspec.json.encode(MIXED))
    return msgspec.json.decode(node.bed.ok(sys.executable, "-c", OBSERVATION, str(file), node.run), type=list[Claim])


def test_a_running_job_is_a_holder_here(bed: Bed) -> None:
    node = Node(bed, MIXED)
    assert claims(node) == []
    job = bed.submit("echo up; sleep 60", "--gres=gpu:a100_3g.20gb:1").out
    device = next(d for d in node.offered.devices if d.type == "a100_3g.20gb")
    out = bed.folder / "out" / job
    until(lambda: out.exists() and out.read_text() == "up\n", "the job never ran")
    expected = [(f"slurm:{job}", (device.uuid,))]
    assert [(c.holder.id, c.devices) for c in claims(node)] == expected
    os.unlink(numbering.path("n1", node.run))
    # The batch script got its UUID, which identifies the device although Slurm's ordinals do not any more.
    assert [(c.holder.id, c.devices) for c in claims(node)] == expected
    bed.ok("scancel", job)
    until(lambda: claims(node) == [], "the job never went")


def test_the_fence_and_the_numbers_agree(bed: Bed) -> None:
    if missing():
        pytest.skip(missing())
    node = Node(bed, MIXED, constrain=True)
    by_type = {d.type: d for d in node.offered.devices}
    for kind in ("a100_3g.20gb", "a100_1g.5gb"):
        device = by_type[kind]
        tries = " ".join(f for d in node.offered.devices for f in d.files[1:])
        each = "(exec 3<$f) 2>&1 | grep -q 'not permitted' || echo $f"
        opens = f"echo $CUDA_VISIBLE_DEVICES; for f in {tries}; do {each}; done"
        assert set(node.srun(f"--gres=gpu:{kind}:1", command=opens)) == {device.uuid, *device.files[1:]}


def test_gres_conf_out_of_order_does_not_tell_a_task_its_neighbours_uuid(bed: Bed) -> None:
    if missing():
        pytest.skip(missing())
    value = ",".join(reversed(nodeline.gres_value(offered_devices(MIXED)).split(",")))
    node = Node(bed, MIXED, value, constrain=True)
    by_type = {d.type: d.uuid for d in node.offered.devices}
    for kind in ("a100_3g.20gb", "a100_1g.5gb"):
        assert node.srun(f"--gres=gpu:{kind}:1") == [by_type[kind]]


def test_the_command_line_has_its_files_read_by_slurmd(bed: Bed) -> None:
    env = {"ALIQUOT_STATE_DIR": str(bed.folder / "aliquot"), "ALIQUOT_BACKEND": "direct", "ALIQUOT_SIM": "n1"}
    words = ("slurm", "render", "--node-name", "n1", "--check", "always", "-o", "json")
    assert bed.aliquot("sim", "start", "a100-sxm4-40gb*2", "--name", "n1", env=env).code == 0
    assert bed.aliquot("apply", "--gpu", "1", "--mig", "3g.20gb,1g.5gb*2", env=env).code == 0
    done = bed.aliquot(*words, env=env)
    assert done.code == 0, done
    document = msgspec.json.decode(done.out)
    assert document["checkedBySlurmd"] is True
    assert document["nodes"][0]["gres"] == "gpu:a100:1,gpu:a100_3g.20gb:1,gpu:a100_1g.5gb:2,nic:no_consume:1"
    assert "RealMemory=" in document["nodes"][0]["nodeLine"]
    old = bed.aliquot(*words, "--autodetect", "nvml", env=env)
    assert (old.code, "names MIG types" in old.err) == ((20, True) if not bed.release.chrooted else (0, False)), old
    bed.aliquot("sim", "stop", "--all", env=env)


def test_plan_and_apply_spare_what_a_job_has(bed: Bed) -> None:
    # Without any mention of Slurm on the command line and without a process on the instance, a job's device is kept.
    run = str(bed.folder / "numbers")
    env = {"ALIQUOT_STATE_DIR": str(bed.folder / "aliquot"), "ALIQUOT_BACKEND": "direct", "ALIQUOT_SIM": "n1"}
    env["ALIQUOT_SLURM_RUN"] = run
    assert bed.aliquot("sim", "start", "a100-sxm4-40gb*3", "--name", "n1", env=env).code == 0
    assert bed.aliquot("apply", "--gpu", "1", "--mig", "3g.20gb@4,1g.5gb@0,1g.5gb@1", env=env).code == 0
    found = msgspec.json.decode(bed.aliquot("show", "-o", "json", env=env).out, type=Inventory)
    Node(bed, found)
    job = bed.submit("echo up; sleep 60", "--gres=gpu:a100_3g.20gb:1").out
    out = bed.folder / "out" / job
    until(lambda: out.exists() and out.read_text() == "up\n", "the job never ran")
    request = ("--gpu", "1", "--mig", "7g.40gb")
    planned = bed.aliquot("plan", *request, env=env)
    assert (planned.code, f"job slurm:{job}" in planned.err + planned.out) == (20, True), planned
    assert bed.aliquot("apply", *request, env=env).code == 20
    beside = bed.aliquot("apply", "--gpu", "1", "--mig", "3g.20gb@4,2g.10gb@0", env=env)
    assert beside.code == 0, beside
    bed.ok("scancel", job)
    until(lambda: bed.aliquot("apply", *request, env=env).code == 0, "still held")
    bed.aliquot("sim", "stop", "--all", env=env)
