"""Reported problems with MIG under Slurm, each with a test on real clusters that it cannot happen with Aliquot."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec
import pytest

from .applying import WORDS, Host, dynamic, ended, idle, restart, static
from .bed import Bed, until
from .cgroups import missing
from .site import Site
from .test_apply import part
from .truth import Jobs, Process, Watch, instances, refusal, same_process

CAPS = "/dev/nvidia-caps/nvidia-cap"
FOUR, THREE = ("--gpu", "0", "--mig", "1g.5gb*4"), ("--gpu", "0", "--mig", "1g.5gb*3")


@pytest.fixture
def jobs(bed: Bed) -> Jobs:
    return Jobs(bed)


def one_gpu(bed: Bed) -> Host:
    """Start a registered node of slurm.conf with one A100."""
    bed.conf(f"{bed.node('n1', 'CPUs=2 RealMemory=1000 Gres=gpu:a100:1')}\nPartitionName=all Nodes=ALL Default=YES")
    restart(bed)
    bed.ok("sh", "-c", "slurmctld >/dev/null 2>&1")
    until(lambda: "UP" in bed.run("scontrol", "ping").out, "slurmctld does not answer")
    host = Host(bed, "n1", "a100-sxm4-40gb")
    host.applied()
    return host


def test_the_node_was_invalid_when_slices_fell_from_four_to_three(bed: Bed, jobs: Jobs) -> None:
    """ComputeCanada/puppet-magic_castle#361: "gres/gpu count reported lower than configured (3 < 4)"."""
    host = one_gpu(bed)
    host.applied(*FOUR)
    with Watch(host) as watch:
        host.applied(*THREE)
        jobs.one_runs("--gres=gpu:a100_1g.5gb:3")
        host.applied(*FOUR)
        jobs.one_runs("--gres=gpu:a100_1g.5gb:4")
    assert not watch.invalid
    assert not watch.lies
    # As reported: the same change without Slurm's knowledge, and only slurmd restarted. A single command repairs it.
    host.ok("sim", "destroy", "0", "7")
    gres = bed.etc / "gres.conf"
    gres.write_text("".join(line for line in gres.read_text().splitlines(True) if "nvidia-cap66" not in line))
    stop, start = (host.how[host.how.index(option) + 1] for option in ("--slurmd-stop", "--slurmd-start"))
    bed.ok("sh", "-c", f"{stop.replace('exit 0', 'break').replace('exit 1', 'true')}; {start}")
    until(lambda: "INVAL" in bed.state("n1"), lambda: bed.state("n1"))
    assert "(3 < 4)" in bed.ok("scontrol", "-o", "show", "node", "n1")
    host.applied("--force")
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    jobs.one_runs("--gres=gpu:a100_1g.5gb:3")
    jobs.none_lost()


def test_mig_mode_without_instances_was_fatal(bed: Bed, jobs: Jobs) -> None:
    """ComputeCanada/puppet-magic_castle#273, #276: slurmd's own detection ends on such a GPU."""
    host = dynamic(bed)
    outcome = host.applied("--gpu", "0", "--mig", "empty", "--node-conf", WORDS)
    assert outcome["gres"] == "gpu:a100:1", "the other GPU, which is whole"
    jobs.one_runs("--gres=gpu:a100:1")
    host.applied("--gpu", "0-1", "--mig", "empty")
    assert host.gres() == "gpu:0"
    jobs.one_runs("-w", "n1")
    host.applied("--gpu", "0-1", "--mig", "7g.40gb")
    jobs.one_runs("--gres=gpu:a100_7g.40gb:2")


def test_files_with_gpu_instances_alone_left_the_gpu_and_its_neighbours_open(bed: Bed) -> None:
    """NVIDIA/slurm-mig-discovery writes only the GPU instance's capability, so every job may open the GPU and compute
    instances.

    Found by the name of the project. With the lines of ``render`` the same job opens only its own devices.
    """
    if missing():
        pytest.skip(missing())
    site = Site(bed)
    try:
        site.cut(0, "1g.5gb", "1g.5gb")
        gis = sorted(i.capability_minor for i in site.read().gpus[0].instances)
        node = f"{bed.node('n1', 'CPUs=2 RealMemory=1000 Gres=gpu:1g.5gb:2')}\nPartitionName=all Nodes=ALL Default=YES"
        bed.conf(node, gres="".join(f"NodeName=n1 Name=gpu Type=1g.5gb File={CAPS}{m}\n" for m in gis), constrain=True)
        bed.controller()
        bed.slurmd("n1")
        opened = site.opened("--gres=gpu:1g.5gb:1")
        mine, other = gis if opened[f"{CAPS}{gis[0]}"] == "ENXIO" else gis[::-1]
        assert opened[f"{CAPS}{other}"] == "EPERM", "this device is fenced"
        assert opened["/dev/nvidia1"] == opened[f"{CAPS}{other + 1}"] == "ENXIO", "and these are not"
        reported = bed.aliquot("slurm", "check", "--conf-dir", str(bed.etc), "--files-only", "-o", "json")
        found = {f["rule"] for f in msgspec.json.decode(reported.out)["findings"] if f["severity"] == "error"}
        assert "LONE_CAPABILITY" in found
        assert mine != other
    finally:
        site.close()


def test_slurmd_did_not_start_where_a_device_node_was_missing(bed: Bed, jobs: Jobs) -> None:
    """BiBiServ/bibigrid#705, "can't stat gres.conf file". The kernel creates no device nodes by itself, but ``apply``
    does.
    """
    host = dynamic(bed)
    host.applied(*THREE, "--node-conf", WORDS)
    nodes = set(re.findall(rf"{CAPS}\d+", (bed.etc / "gres.conf").read_text()))
    assert len(nodes) == 6
    for path in nodes:
        bed.ok("test", "-c", path)
    gone = min(nodes)
    bed.ok("rm", gone)
    assert bed.run("slurmd", "-G", "-N", "n1").code != 0
    where = ("--conf-dir", str(bed.etc), "--node-name", "n1", "--dev-root", "/")
    reported = msgspec.json.decode(host.run("slurm", "check", *where, "-o", "json").out)["findings"]
    assert [gone in f["sentence"] for f in reported if f["rule"] == "FILE_MISSING"] == [True]
    host.applied("--gpu", "0", "--mig", "1g.5gb*3,2g.10gb")
    jobs.one_runs("--gres=gpu:a100_1g.5gb:3")


def test_one_slice_could_not_be_changed_without_touching_the_rest(bed: Bed, jobs: Jobs) -> None:
    """mig-parted#119, HAMi#948: a job keeps the other GPU's instance, and remaining instances keep their UUIDs."""
    host = dynamic(bed)
    halves = {n: part(host, n) for n in (0, 1)}
    for number, each in halves.items():
        each.applied(
            "--gpu", str(number), "--mig", "3g.20gb,1g.5gb,1g.5gb", "--node-conf", WORDS, "--capacity", str(number)
        )
    job = jobs.running("echo $$; exec sleep 600", "-w", "n1-gpu1", "--gres=gpu:a100_3g.20gb:1")
    process, before = Process.of(bed, job), uuids(host)
    halves[0].applied("--gpu", "0", "--mig", "3g.20gb,1g.5gb", "--capacity", "0")
    after = uuids(host)
    assert len(before - after) == 1, "only one instance was destroyed"
    assert not after - before
    calls = [c for c in writes_of(host) if "Destroy" in c["call"] and c["rc"] == 0]
    assert {c["gpu"] for c in calls} == {"0000:01:00.0"}
    assert same_process(process)
    assert Process.of(bed, job) == process
    ended(bed, bed.submit("true", "-w", "n1-gpu0", "--gres=gpu:a100_3g.20gb:1").out)
    jobs.none_lost()


def uuids(host: Host) -> set[str]:
    shown = msgspec.json.decode(host.ok("show", "-o", "json"))
    return {c["uuid"] for g in shown["gpus"] for i in g["instances"] for c in i["compute_instances"]}


def writes_of(host: Host) -> list[dict[str, Any]]:
    calls = msgspec.json.decode(host.ok("sim", "show", "n1", "--calls", "-o", "json"))["calls"]
    return [c for c in calls if c.get("write")]


def test_after_a_reboot_the_layout_was_gone_and_slurmd_failed(bed: Bed, jobs: Jobs) -> None:
    """gpu-operator#403, device-plugin#225: instances do not survive a reboot. The test does by hand what the units do
    at boot.
    """
    host = static(bed)
    host.applied("--gpu", "0", "--mig", "3g.20gb,1g.5gb")
    stop, start = (host.how[host.how.index(option) + 1] for option in ("--slurmd-stop", "--slurmd-start"))
    bed.ok("sh", "-c", stop)
    host.ok("sim", "reboot")
    assert instances(host) == Counter()
    host.ok("restore", "--boot")
    assert instances(host) == Counter({"3g.20gb": 1, "1g.5gb": 1})
    bed.ok("sh", "-c", start)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    assert host.applied()["status"] == "nothing", "the GPUs match Slurm's files"
    assert host.gres() == "gpu:a100_3g.20gb:1,gpu:a100_1g.5gb:1,gpu:a100:1"
    jobs.one_runs("--gres=gpu:a100_3g.20gb:1")
    jobs.none_lost()


def test_a_node_with_slices_whole_gpus_and_empty_ones_beside_each_other(bed: Bed, jobs: Jobs) -> None:
    """stackhpc/ansible-slurm-appliance#656, DRA#719, nos#28: mixed nodes, with each GPU counted once."""
    host = dynamic(bed, template="a100-sxm4-40gb*4")
    host.applied("--gpu", "0", "--mig", "3g.20gb,2g.10gb,1g.5gb", "--node-conf", WORDS)
    host.applied("--gpu", "1", "--mig", "empty")
    assert host.gres() == "gpu:a100_3g.20gb:1,gpu:a100_2g.10gb:1,gpu:a100_1g.5gb:1,gpu:a100:2"
    jobs.one_runs("--gres=gpu:a100:2,gpu:a100_2g.10gb:1")


def test_a_reservation_held_the_record_and_the_change_stuck_half_way(bed: Bed, jobs: Jobs) -> None:
    """Slurm's manual: a dynamic record that a reservation holds cannot be deleted. Aliquot reports it before it changes
    anything.
    """
    host = dynamic(bed)
    host.applied(*THREE, "--node-conf", WORDS)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    words = ("nodes=n1", "starttime=now", "duration=30", "user=root")
    bed.ok("scontrol", "create", "reservation", "reservationname=course", *words)
    before, outside = len(writes_of(host)), jobs.submit("true", "--gres=gpu:a100_1g.5gb:1")
    refused = host.apply(*FOUR)
    error = refusal(refused.err)
    assert refused.code == 20
    assert "course" in " ".join([error["message"], *error["details"], error["next"]]), error
    assert len(writes_of(host)) == before
    assert "DRAIN" not in bed.state("n1")
    jobs.one_runs("--gres=gpu:a100_1g.5gb:3", "--reservation=course")
    assert bed.job(outside, "JobState") == "PENDING"
    bed.ok("scontrol", "delete", "reservation=course")
    ended(bed, outside)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    host.applied(*FOUR)
    jobs.none_lost()


def test_who_has_a_slice_was_not_reported_before_it_was_taken(bed: Bed, jobs: Jobs) -> None:
    """HAMi#1088, gpu-operator#1704: every command that plans a change reports the job that blocks it."""
    host = dynamic(bed)
    host.applied("--gpu", "0-1", "--mig", "3g.20gb*2", "--node-conf", WORDS)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    job = jobs.running("sleep 600", "--gres=gpu:a100_3g.20gb:4")
    before = len(writes_of(host))
    for verb in ("plan", "apply"):
        done = host.run(verb, "--gpu", "0", "--mig", "7g.40gb")
        assert done.code == 20, done
        assert f"job {job}" in done.out + done.err or f"slurm:{job}" in done.out + done.err, done
    assert len(writes_of(host)) == before
    jobs.none_lost()
