"""Bad input and faults on real clusters: each gives a clear error, a usable node, and no lost job."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from .applying import WORDS, Host, dynamic, idle, static
from .bed import Bed, Ran, until
from .demanded import Cluster
from .test_apply_faults import stop_controller
from .truth import Jobs, Process, instances, refusal, same_process

SEVEN = ("--gpu", "0-1", "--mig", "1g.5gb*7")
HALVES = ("--gpu", "0", "--mig", "3g.20gb*2")
SMALL = "--gres=gpu:a100_1g.5gb:1"


@pytest.fixture
def host(bed: Bed) -> Host:
    """Start an idle dynamic node with fourteen small instances."""
    made = dynamic(bed)
    made.applied(*SEVEN, "--node-conf", WORDS)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    return made


@pytest.fixture
def jobs(bed: Bed) -> Jobs:
    return Jobs(bed)


def check(host: Host, *words: str) -> Ran:
    where = ("--conf-dir", str(host.bed.etc), "--node-name", "n1", "--dev-root", "/")
    return host.run("slurm", "check", *where, "-o", "json", *words)


def errors(done: Ran) -> dict[str, dict[str, Any]]:
    """Return the errors by rule, except that of every test's cluster (jobs are not fenced)."""
    found = msgspec.json.decode(done.out, type=dict[str, Any])["findings"]
    return {f["rule"]: f for f in found if f["severity"] == "error" and f["rule"] != "OPEN_DEVICES"}


def test_a_malformed_count_that_reconfigure_accepts_silently(bed: Bed, jobs: Jobs) -> None:
    host = static(bed)
    host.applied(*SEVEN)
    conf = bed.etc / "slurm.conf"
    conf.write_text(conf.read_text().replace("a100_1g.5gb:14", "a100_1g.5gb:x14"))
    assert bed.ok("scontrol", "reconfigure") == "", "no message"
    done = check(host)
    assert done.code == 30
    wrong = errors(done)["BAD_COUNT"]
    line = next(n for n, text in enumerate(conf.read_text().splitlines(), 1) if ":x14" in text)
    assert (wrong["file"], wrong["line"]) == (str(conf), line)
    assert "'x14' is not a number" in wrong["sentence"]
    until(lambda: bed.field("n1", "Gres") == "gpu:a100_1g.5gb:1", lambda: bed.field("n1", "Gres"))
    host.applied()
    assert bed.field("n1", "Gres") == "gpu:a100_1g.5gb:14"
    assert not errors(check(host, "--live"))
    jobs.one_runs(SMALL)


def test_a_busy_node_is_refused_its_job_named_and_lives(host: Host, jobs: Jobs) -> None:
    job = jobs.running("echo $$; exec sleep 600", SMALL, "--job-name=train")
    process = Process.of(host.bed, job)
    refused = host.apply(*HALVES)
    error = refusal(refused.err)
    assert (refused.code, error["exit_code"]) == (20, 20)
    assert error["message"] == "n1 cannot be changed now: jobs are on it"
    assert error["details"][0] == f"job {job} (train of root): running"
    assert "--jobs wait --timeout 3600" in " ".join([*error["details"], error["next"]])
    assert error["next"]
    jobs.one_runs(SMALL)
    assert same_process(process)
    assert Process.of(host.bed, job) == process
    jobs.none_lost()


def test_the_job_of_a_node_that_is_down_waits_and_runs_when_it_is_back(bed: Bed) -> None:
    # A late answer must not bring the node back before the test checks it.
    cluster, jobs = Cluster(bed, "n1", returns=False), Jobs(bed)
    host = cluster.hosts["n1"]
    cluster.controller()
    until(lambda: "jobs may wait" in cluster.log(), cluster.log)
    os.kill(int((bed.folder / "run" / "n1.pid").read_text()), signal.SIGKILL)
    bed.ok("scontrol", "update", "nodename=n1", "state=down", "reason=power supply")
    jobs.numbers.append(cluster.submit("a100_1g.5gb:7", "true"))
    (job,) = jobs.numbers
    until(lambda: f"job {job}: waits" in cluster.log(), cluster.log)
    (reported,) = cluster.demand()["jobs"]
    assert "DOWN" in reported["why"][0], reported
    assert "(power supply)" in reported["why"][0], reported
    assert instances(host) == Counter({"7g.40gb": 2}), "a node that is down is not partitioned"
    jobs.none_lost()
    again = f"{host.prefix}slurmd -N n1 -Z --conf '{WORDS} Gres=gpu:a100_7g.40gb:2' -L {bed.logs}/n1.log"
    bed.ok("sh", "-c", again)
    until(lambda: "DOWN" in bed.state("n1") and "*" not in bed.state("n1"), lambda: bed.state("n1"))
    assert instances(host) == Counter({"7g.40gb": 2}), "nor is one that waits for its operator"
    bed.ok("scontrol", "update", "nodename=n1", "state=resume")
    cluster.ran(job)
    jobs.none_lost()


def test_slurmctld_unavailable_is_reported_soon_and_the_job_that_runs_lives(host: Host, jobs: Jobs) -> None:
    bed = host.bed
    job = jobs.running("echo $$; exec sleep 600", SMALL)
    process = Process.of(bed, job)
    stop_controller(bed)
    refused = host.apply(*HALVES, timeout=45)
    error = refusal(refused.err)
    assert (refused.code, error["code"]) == (20, "SLURM_AWAY")
    assert error["next"]
    assert instances(host) == Counter({"1g.5gb": 14})
    assert same_process(process)
    bed.ok("sh", "-c", "slurmctld >/dev/null 2>&1")
    until(lambda: bed.registered("n1"), lambda: bed.state("n1"))
    jobs.one_runs(SMALL)
    assert Process.of(bed, job) == process
    jobs.none_lost()


def test_a_profile_that_no_gpu_has(bed: Bed) -> None:
    # Requested in apply, by a job that Slurm itself refuses, and by a job that Slurm accepts for another kind of node.
    cluster, jobs = Cluster(bed, "n1"), Jobs(bed)
    host = cluster.hosts["n1"]
    for desired_gpu, says in (("9g.90gb", "9g.90gb"), ("4g.20gb*2", "4g.20gb")):
        refused = host.apply("--gpu", "0", "--mig", desired_gpu)
        error = refusal(refused.err)
        assert refused.code in (2, 20)
        assert says in " ".join([error["message"], *error["details"]]), error
        assert error["next"]
    cluster.controller()
    until(lambda: "jobs may wait" in cluster.log(), cluster.log)
    assert "not available" in jobs.refused("--gres=gpu:a100_9g.90gb:1")
    bed.ok("scontrol", "create", "NodeName=far", *WORDS.split(), "Gres=gpu:h100_1g.10gb:7", "State=FUTURE")
    job = jobs.submit("true", "--gres=gpu:h100_1g.10gb:1")
    until(lambda: f"job {job}: " in cluster.log(), cluster.log)
    (reported,) = cluster.demand()["jobs"]
    assert reported["state"] == "waits"
    assert reported["sentence"].startswith("no GPU of the managed nodes supports h100_1g.10gb; they support a100")
    jobs.numbers.append(served := cluster.submit("a100_1g.5gb:1", "true"))
    cluster.ran(served)
    assert bed.job(job, "JobState") == "PENDING"
    jobs.none_lost()


def test_controller_and_its_change_killed_in_the_middle(bed: Bed) -> None:
    # The controller's host loses power: the controller and its running change end at once, at any point.
    cluster, jobs = Cluster(bed, "n1"), Jobs(bed)
    cluster.controller()
    jobs.numbers.append(cluster.submit("a100_3g.20gb:4", "true"))
    until(lambda: instances(cluster.hosts["n1"])["3g.20gb"] > 0, cluster.log)
    bed.stop("controller", signal.SIGKILL)
    for pid in changes(bed):
        os.kill(pid, signal.SIGKILL)
    assert "INVAL" not in bed.state("n1")
    cluster.controller()
    cluster.ran(jobs.numbers[0])
    assert "INVAL" not in bed.state("n1")
    jobs.none_lost()
    until(lambda: idle(bed, "n1"), lambda: cluster.reported(jobs.numbers[0]))
    assert instances(cluster.hosts["n1"]) == Counter({"3g.20gb": 4})


def changes(bed: Bed) -> list[int]:
    """Return the processes of ``aliquot slurm apply`` in this machine."""
    found = []
    for pid in bed.inhabitants():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"slurm" in words and b"apply" in words:
            found.append(pid)
    return found


def test_gres_conf_edited_by_hand_is_found_kept_and_overwritten_when_that_is_asked(host: Host, jobs: Jobs) -> None:
    gres = host.bed.etc / "gres.conf"
    ours = gres.read_text()
    gres.write_text(ours.replace("nvidia-cap66", "nvidia-cap64"))
    assert "HAND_EDITED" in {f["rule"] for f in msgspec.json.decode(check(host).out)["findings"]}
    refused = host.apply(*HALVES)
    error = refusal(refused.err)
    assert (refused.code, error["code"]) == (2, "CONFIG")
    assert error["message"] == f"{gres}:1: the managed block was edited by hand"
    assert "nvidia-cap64" in error["details"][0]
    assert "--force" in error["next"]
    assert "nvidia-cap64" in gres.read_text()
    jobs.one_runs(SMALL)
    host.applied(*HALVES, "--force")
    assert "nvidia-cap64" not in gres.read_text()
    jobs.one_runs("--gres=gpu:a100_3g.20gb:1")
    jobs.none_lost()


def test_wrong_minors_are_reported_with_the_right_ones(bed: Bed, jobs: Jobs) -> None:
    # Covers the compute instance of another instance, and minors by the order of instances, as scripts count them.
    host = static(bed)
    host.applied(*SEVEN)
    gres = bed.etc / "gres.conf"
    right = gres.read_text()
    gres.write_text(right.replace("nvidia-cap67", "nvidia-cap76", 1))
    done = check(host)
    wrong = errors(done)["WRONG_MINOR"]
    assert (done.code, wrong["file"], wrong["line"]) == (30, str(gres), 2)
    assert "compute instance 0 of GPU instance 8 on /dev/nvidia0, which is not in GPU instance 7" in wrong["sentence"]
    gres.write_text(right.replace("nvidia-cap66", "nvidia-cap3").replace("nvidia-cap67", "nvidia-cap4"))
    found = errors(check(host))
    assert found.keys() == {"FILE_MISSING", "NO_SUCH_INSTANCE"}
    assert "GPU 0 has 7 (1g.5gb), 8 (1g.5gb)" in found["NO_SUCH_INSTANCE"]["sentence"]
    host.applied("--force")
    assert gres.read_text() == right
    assert not errors(check(host, "--live"))
    jobs.one_runs(SMALL)


def test_a_slurm_that_is_too_old_for_a_way_names_the_release_and_another_way(bed: Bed, jobs: Jobs) -> None:
    host = static(bed)
    old = bed.release.name == "22.05"
    detect = host.run("slurm", "render", "--autodetect", "nvidia", "--slurm", bed.release.name, "--node-name", "n1")
    assert detect.code != 0
    words = [w for w in host.how if w not in ("--slurmctld-restart", f"{bed.etc}/restart-slurmctld")]
    done = host.run("slurm", "apply", *words, "--slurmctld-restart", "", *SEVEN, "-o", "json")
    if old:
        error = refusal(done.err)
        assert (done.code, error["code"]) == (20, "SLURM_TOO_OLD"), error
        assert error["message"] == "Slurm 22.05.8 reads new GRES of a static node only when slurmctld starts"
        assert any("--slurmctld-restart" in line for line in error["details"])
        jobs.one_runs("--gres=gpu:a100:1")
    host.applied(*SEVEN)
    jobs.one_runs(SMALL)
