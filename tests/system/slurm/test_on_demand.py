"""Layouts on demand on a real slurmctld: jobs for absent instances are served without manual steps."""

from __future__ import annotations

import signal
import sys

import yaml

from .bed import Bed, until
from .demanded import Cluster, Witness


def test_jobs_for_one_layout_and_then_another_run_with_no_hand_between(bed: Bed) -> None:
    # The original requirement: 1g.5gb, then 3g.20gb, with counts that are always correct and no running job touched.
    cluster = Cluster(bed, "n1", "n2")
    beside = cluster.submit("a100_7g.40gb:1", "sleep 600", "--nodelist=n2")
    cluster.starts(beside)
    cluster.controller()
    with Witness(cluster.hosts["n1"]) as witness:
        small = cluster.submit("a100_1g.5gb:1", "sleep 4; echo $CUDA_VISIBLE_DEVICES")
        cluster.starts(small)
        big = cluster.submit("a100_3g.20gb:2", "echo $CUDA_VISIBLE_DEVICES")
        cluster.ran(small)
        cluster.ran(big)
    assert witness.observations > 10
    assert not witness.lies
    assert any("a100_1g.5gb" in shown for shown in witness.shown), witness.shown
    assert "a100_3g.20gb" in witness.shown[-1], witness.shown
    assert bed.job(small, "Restarts") == bed.job(big, "Restarts") == "0"
    assert bed.job(small, "ExitCode") == "0:0"
    assert bed.job(small, "EndTime") <= bed.job(big, "StartTime"), "the second job had to wait for the end of the first"
    assert bed.job(beside, "JobState") == "RUNNING"
    assert bed.job(beside, "Restarts") == "0"
    assert bed.field("n2", "Gres").startswith("gpu:a100_7g.40gb:2"), "a node with a job is not changed"


def test_no_record_that_stands_for_layouts_is_ever_shown(bed: Bed) -> None:
    cluster = Cluster(bed, "n1")
    assert bed.submit("true", "--gres=gpu:a100_1g.5gb:1").code != 0
    cluster.controller()
    cluster.ran(cluster.submit("a100_1g.5gb:1", "true"))
    assert "aliquot" not in bed.ok("sinfo", "-N", "-h")
    assert "not available" in bed.submit("true", "--gres=gpu:a100_3g.20gb:5").err, "more than a node can ever have"
    bed.stop("controller")
    assert "deleted aliquot-layouts-" in cluster.once("--remove").out
    assert bed.submit("true", "--gres=gpu:a100_3g.20gb:1").code != 0, "a type without a node is refused again"


def test_two_jobs_that_want_different_layouts_at_once_both_run_by_priority(bed: Bed) -> None:
    cluster = Cluster(bed, "n1", more="PriorityType=priority/basic")
    cluster.once("--once")
    low = cluster.submit("a100_1g.5gb:14", "sleep 2", "--priority=10")
    high = cluster.submit("a100_3g.20gb:4", "sleep 2", "--priority=1000")
    cluster.controller()
    cluster.ran(low)
    cluster.ran(high)
    assert bed.job(high, "EndTime") <= bed.job(low, "StartTime")
    assert cluster.log().count(" is repartitioned for job ") == 2, "once for each: no flapping"


def test_a_layout_is_asked_for_by_its_name_and_made_once(bed: Bed) -> None:
    cluster = Cluster(bed, "n1", first="3g.20gb,2g.10gb")
    document = yaml.safe_load(cluster.settings.read_text())
    cluster.settings.write_text(yaml.safe_dump(document | {"layouts": {"small": {"2g.10gb": 2, "1g.5gb": 1}}}))
    cluster.controller()
    until(lambda: "jobs may wait" in cluster.log(), lambda: cluster.log())
    done = bed.submit("true", "--constraint=small", "--gres=gpu:a100_2g.10gb:1")
    assert done.code == 0, done
    cluster.ran(done.out)
    assert bed.field("n1", "Gres") == "gpu:a100_2g.10gb:4,gpu:a100_1g.5gb:2"
    assert "small" in bed.field("n1", "ActiveFeatures").split(",")
    assert cluster.log().count(" is repartitioned for job ") == 1, "once: no flapping"


def test_a_controller_that_is_killed_in_the_middle_is_followed_by_another(bed: Bed) -> None:
    cluster = Cluster(bed, "n1")
    cluster.controller()
    job = cluster.submit("a100_1g.5gb:7", "true")
    until(lambda: "is repartitioned for job" in cluster.log(), cluster.log)
    bed.stop("controller", signal.SIGKILL)
    cluster.controller()
    cluster.ran(job)
    assert bed.job(job, "Restarts") == "0"
    until(lambda: "DRAIN" not in bed.state("n1"), lambda: cluster.reported(job))


def test_a_change_that_was_killed_on_its_node_is_finished_by_the_controller(bed: Bed) -> None:
    cluster = Cluster(bed, "n1")
    host = cluster.hosts["n1"]
    start = host.how[host.how.index("--slurmd-start") + 1]
    once = f"{bed.folder}/killed-once"
    kill = f"[ -e {once} ] || {{ touch {once}; kill -9 $PPID; sleep 1; exit 1; }}; {start}"
    cut_off = host.apply("--gpu", "0-1", "--mig", "3g.20gb*2", "--slurmd-start", kill)
    assert cut_off.code == -signal.SIGKILL, cut_off
    assert bed.state("n1") == "", "slurmd was stopped and its record deleted"
    cluster.controller()
    until(lambda: bed.state("n1").startswith("IDLE+DYN"), lambda: cluster.reported("0"))
    assert "a change was interrupted there" in cluster.log()
    assert bed.field("n1", "Gres").startswith("gpu:a100_3g.20gb:4")


def test_placeholders_come_back_after_slurmctld_was_started_again(bed: Bed) -> None:
    cluster = Cluster(bed, "n1")
    cluster.controller()
    waiting = cluster.submit("a100_3g.20gb:4", "true", "--begin=now+1hour")
    bed.stop("slurmctld")
    until(lambda: "Slurm: " in cluster.log(), cluster.log)
    bed.controller()
    cluster.ran(cluster.submit("a100_1g.5gb:14", "true"))
    bed.ok("scontrol", "update", f"jobid={waiting}", "starttime=now")
    cluster.ran(waiting)


def test_what_stands_in_the_way_is_reported_and_nothing_is_done(bed: Bed) -> None:
    cluster = Cluster(bed, "n1", "n2")
    bed.ok("scontrol", "update", "nodename=n2", "state=drain", "reason=fan")
    busy = cluster.submit("a100_7g.40gb:1", "sleep 600")
    cluster.starts(busy)
    cluster.controller()
    job = cluster.submit("a100_1g.5gb:1", "true")
    until(lambda: f"job {job}: waits" in cluster.log(), cluster.log)
    reported = cluster.demand()
    (verdict,) = [j for j in reported["jobs"] if j["job"] == int(job)]
    assert verdict["need"] == {"a100_1g.5gb": 1}
    assert verdict["why"] == ["n1: 1 job has resources on it", "n2: another user or program drained it (fan)"]
    assert not reported["changes"]
    assert bed.job(busy, "JobState") == "RUNNING"
    assert bed.field("n2", "Gres").startswith("gpu:a100_7g.40gb:2")


def test_a_reservation_matters_if_it_begins_before_the_job_would_end(bed: Bed) -> None:
    cluster = Cluster(bed, "n1")
    begins = ("starttime=now+2hours", "duration=60", "users=root", "flags=maint")
    bed.ok("scontrol", "create", "reservation", "reservationname=later", "nodes=n1", *begins)
    cluster.once("--once")
    endless = cluster.submit("a100_1g.5gb:1", "true")
    short = cluster.submit("a100_1g.5gb:1", "true", "--time=10")
    verdicts = {str(job["job"]): job for job in cluster.demand()["jobs"]}
    assert verdicts[endless]["why"] == ["n1: a reservation of it begins before the job's time limit ends"]
    assert "reservation" not in str(verdicts[short]["why"])


def test_the_same_through_slurmrestd(bed: Bed) -> None:
    cluster = Cluster(bed, "n1")
    rest = bed.rest()
    cluster.more = {"ALIQUOT_SLURM": rest.url, "SLURM_JWT": rest.token}
    cluster.controller()
    for kind in ("a100_1g.5gb:7", "a100_3g.20gb:4"):
        cluster.ran(cluster.submit(kind, "true"))


def test_there_is_one_controller_and_bad_settings_are_reported_whole(bed: Bed) -> None:
    cluster = Cluster(bed, "n1")
    cluster.controller()
    until(lambda: "jobs may wait" in cluster.log(), cluster.log)
    assert "is the Slurm controller here" in cluster.once("--once", code=20).err
    bed.stop("controller")
    before = bed.ok("scontrol", "--future", "show", "nodes").count("NodeName=")
    cluster.settings.write_text("version: aliquot-slurm/v1\nrecords:\n- nodes: n1\n  idle: soon\n  keep: {9g: 1}\n")
    reported = cluster.once("--once", code=2).err
    assert f"{cluster.settings}:4:9: 'idle' takes seconds" in reported
    assert f"{cluster.settings}:5:10: no GPU of the catalog has a profile '9g'" in reported
    assert "Traceback" not in reported
    assert bed.ok("scontrol", "--future", "show", "nodes").count("NodeName=") == before


def test_of_controllers_on_two_hosts_one_acts_and_the_other_follows_when_it_ends(bed: Bed) -> None:
    cluster = Cluster(bed, "n1")
    cluster.controller()
    until(lambda: "jobs may wait" in cluster.log(), cluster.log)
    other = bed.folder / "other.yaml"
    document = yaml.safe_load(cluster.settings.read_text())
    other.write_text(yaml.safe_dump(document | {"history": str(bed.folder / "other.json")}))  # as on another host
    words = ("slurm", "controller", "-f", str(other))
    once = bed.aliquot(*words, "--once", env=cluster.env)
    assert once.code == 20, once
    assert "history.json is the Slurm controller of this cluster" in once.err
    bed.start("second", sys.executable, "-m", "aliquot", *words, env=cluster.env)
    until(lambda: "this controller waits until that one ends" in bed.log("second"), lambda: bed.log("second"))
    cluster.ran(cluster.submit("a100_1g.5gb:14", "true"))
    assert "is repartitioned" not in bed.log("second")
    bed.stop("controller")
    cluster.ran(cluster.submit("a100_3g.20gb:4", "true"))
    assert "is repartitioned for job" in bed.log("second")
    bed.stop("second")
    assert "aliquot-controller" in cluster.once("--remove").out
    assert "aliquot-controller" not in bed.ok("scontrol", "--future", "show", "nodes")


def test_a_change_that_fails_leaves_the_job_waiting_and_the_node_drained_with_the_reason(bed: Bed) -> None:
    cluster = Cluster(bed, "n1")
    host = cluster.hosts["n1"]
    host.ok("sim", "fault", "fail", "call=DeviceCreateGpuInstanceWithPlacement", "code=999", "calls=1")
    cluster.controller()
    job = cluster.submit("a100_1g.5gb:14", "true")
    until(lambda: "could not be changed" in cluster.log(), cluster.log)
    assert bed.job(job, "JobState") == "PENDING"
    assert "DRAIN" in bed.state("n1")
    assert "INVAL" not in bed.state("n1")
    assert "Reason=aliquot: " in bed.ok("scontrol", "show", "node", "n1")
