"""Slurm's own behaviour with changes of GPUs on both releases, on which Aliquot's steps and their order rely."""

from __future__ import annotations

import pytest

from .bed import Bed, until

CAPS = "/dev/nvidia-caps/nvidia-cap"
CUT = [f"NodeName=n1 Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia0,{CAPS}{m},{CAPS}{m + 1}\n" for m in (66, 75, 84)]
RECORD = "CPUs=2 RealMemory=1000 Feature=mig Gres=gpu:1g.5gb:"
LOWER = "gres/gpu count reported lower than configured"
UNAVAILABLE = "Requested node configuration is not available"


def write(bed: Bed, gres: str, slices: int = 3) -> None:
    node = bed.node("n1", f"CPUs=2 RealMemory=1000 Gres={gres}")
    bed.conf(f"{node}\nPartitionName=all Nodes=ALL Default=YES", gres="".join(CUT[:slices]))


def rebuild(bed: Bed) -> None:
    """Restart both daemons and wait until slurmd has registered."""
    for name in ("n1", "slurmctld"):
        if name in bed.daemons:
            bed.stop(name)
    bed.controller()
    bed.start("n1", "slurmd", "-D", "-N", "n1")
    until(lambda: "INVAL" in bed.state("n1") or bed.registered("n1"), lambda: bed.log("n1"))


def reason(bed: Bed) -> str:
    return bed.ok("scontrol", "-o", "show", "node", "n1").partition("Reason=")[2]


@pytest.fixture
def static(bed: Bed) -> Bed:
    """Start a node with three instances in slurm.conf."""
    bed.gpu_devices(0, 66, 67, 75, 76, 84, 85)
    write(bed, "gpu:1g.5gb:3")
    rebuild(bed)
    return bed


@pytest.fixture
def dynamic(bed: Bed) -> Bed:
    """Start a node with three instances that registers itself."""
    bed.gpu_devices(0, 66, 67, 75, 76, 84, 85)
    bed.conf("MaxNodeCount=4\nNodeSet=gpus Feature=mig\nPartitionName=all Nodes=gpus Default=YES", gres="".join(CUT))
    bed.controller()
    bed.dynamic("n1", f"{RECORD}3")
    return bed


def running(bed: Bed, *words: str) -> str:
    job = bed.submit("sleep 300", "--gres=gpu:1g.5gb:1", *words).out
    until(lambda: bed.job(job, "JobState") == "RUNNING", lambda: bed.job(job, "Reason"))
    return job


def test_scontrol_update_gres_is_no_substitute_for_the_files(static: Bed) -> None:
    # A different total is refused, zero is accepted, and neither survives a restart of slurmctld.
    other = static.run("scontrol", "update", "nodename=n1", "gres=gpu:1g.5gb:2")
    assert other.code
    assert "Invalid generic resource" in other.err
    static.ok("scontrol", "update", "nodename=n1", "gres=gpu:2g.10gb:3")
    assert static.field("n1", "Gres") == "gpu:1g.5gb:3", "accepted without effect"
    static.ok("scontrol", "update", "nodename=n1", "gres=gpu:0")
    assert static.field("n1", "Gres") == "gpu:0"
    assert UNAVAILABLE in static.submit("true", "--gres=gpu:1g.5gb:1").err
    rebuild(static)
    assert static.field("n1", "Gres") == "gpu:1g.5gb:3"


def test_a_superset_of_types_is_invalid_until_a_good_registration_and_count_zero_is_no_type(static: Bed) -> None:
    # This is why a node cannot list every layout that it might have.
    write(static, "gpu:1g.5gb:3,gpu:3g.20gb:6")
    rebuild(static)
    assert "INVALID_REG" in static.state("n1")
    assert f"{LOWER} (3 < 9)" in reason(static)
    write(static, "gpu:1g.5gb:3,gpu:3g.20gb:0")
    rebuild(static)
    assert "INVAL" not in static.state("n1")
    assert static.field("n1", "Gres") == "gpu:1g.5gb:3"
    assert UNAVAILABLE in static.submit("true", "--gres=gpu:3g.20gb:1").err


def test_a_change_without_a_drain_requeues_the_job_on_the_node(static: Bed) -> None:
    # Therefore the drain must never be left out.
    job = running(static, "--requeue")
    write(static, "gpu:1g.5gb:2", 2)
    static.ok("scontrol", "reconfigure")
    if static.release.name == "22.05":
        rebuild(static)
    until(lambda: static.job(job, "Restarts") == "1", lambda: static.job(job, "JobState"))
    until(lambda: static.job(job, "JobState") == "PENDING", lambda: static.job(job, "JobState"))


def test_a_prolog_that_fails_drains_and_holds_and_an_epilog_that_fails_drains(bed: Bed) -> None:
    # This is why Aliquot has no check in a Prolog, and why ``slurm dcgm`` and ``task-prolog`` never fail.
    for kind, state in (("Prolog", "PENDING"), ("Epilog", "COMPLETED")):
        program = bed.folder / kind
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
        bed.conf(f"{bed.node('n1')}\nPartitionName=all Nodes=ALL Default=YES", more=f"{kind}={program}")
        rebuild(bed)
        bed.run("scontrol", "update", "nodename=n1", "state=resume")
        job = bed.submit("true").out
        until(lambda kind=kind: f"{kind} error" in reason(bed), lambda: reason(bed))  # type: ignore[misc]
        until(lambda job=job, state=state: bed.job(job, "JobState") == state, lambda: bed.log("n1"))  # type: ignore[misc]
        assert "DRAIN" in bed.state("n1")
        assert bed.job(job, "Restarts") == str(int(kind == "Prolog"))


def test_a_dynamic_node_outlives_slurmctld_and_is_not_deleted_under_a_job(dynamic: Bed) -> None:
    # A node that is not deleted first keeps its record and becomes invalid, but its job runs on.
    job = running(dynamic)
    assert "Requested nodes are busy" in dynamic.run("scontrol", "delete", "nodename=n1").err
    dynamic.stop("slurmctld")
    dynamic.controller()
    until(lambda: dynamic.registered("n1"), lambda: dynamic.state("n1"))
    assert dynamic.field("n1", "Gres") == "gpu:1g.5gb:3"
    (dynamic.etc / "gres.conf").write_text("".join(CUT[:2]))
    dynamic.stop("n1")
    words = ("slurmd", "-D", "-N", "n1", "-Z", "--conf", f"{RECORD}2")
    dynamic.start("n1", *words, env=dynamic.dynamic_env("n1"))
    until(lambda: "INVALID_REG" in dynamic.state("n1"), lambda: dynamic.log("n1"))
    assert f"{LOWER} (2 < 3)" in reason(dynamic)
    assert (dynamic.job(job, "JobState"), dynamic.job(job, "Restarts")) == ("RUNNING", "0")


def test_a_record_that_is_deleted_takes_its_words_along_and_what_no_node_has_is_rejected(dynamic: Bed) -> None:
    # This is why Aliquot sets reasons again, and why it has records that stand for layouts: otherwise demand would be
    # invisible.
    dynamic.ok("scontrol", "update", "nodename=n1", "state=drain", "reason=fan")
    dynamic.stop("n1")
    dynamic.ok("scontrol", "delete", "nodename=n1")
    dynamic.dynamic("n1", f"{RECORD}3")
    assert not reason(dynamic)
    assert "DRAIN" not in dynamic.state("n1")
    assert "Invalid feature specification" in dynamic.submit("true", "-C", "mig_2x3g").err
    assert UNAVAILABLE in dynamic.submit("true", "--gres=gpu:3g.20gb:1").err
