"""Obstacles to a change of a Slurm node: each is reported clearly, the node stays usable, and no job is lost."""

from __future__ import annotations

import os
import shlex
import signal
import sys

import pytest

from .applying import WORDS, Host, dynamic, ended, idle, running, static
from .bed import Bed, until
from .test_apply import HALVES, SEVEN
from .truth import refusal

REFUSING = ("call=DeviceCreateGpuInstanceWithPlacement", "code=999")


def cut(bed: Bed) -> Host:
    """Return an idle dynamic node with 14 small instances."""
    host = dynamic(bed)
    host.applied(*SEVEN, "--node-conf", WORDS)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    return host


def untouched(host: Host) -> None:
    """Assert that the node is as ``cut`` left it and takes jobs."""
    assert host.counts() == {"1g.5gb": 14}
    assert host.gres() == "gpu:a100_1g.5gb:14"
    assert "DRAIN" not in host.bed.state("n1")


def on_node(bed: Bed, script: str, *words: str) -> str:
    job = bed.submit(script, "-w", "n1", "--gres=gpu:a100_1g.5gb:1", *words).out
    running(bed, job)
    return job


def test_a_busy_node_is_refused_and_its_job_named(bed: Bed) -> None:
    host = cut(bed)
    job = on_node(bed, "sleep 300", "--job-name=training")
    refused = host.apply(*HALVES)
    assert refused.code == 20
    assert f"job {job} (training of root): running" in refused.err
    assert "add --jobs wait --timeout" in refused.err
    untouched(host)
    other = host.run("slurm", "apply", "--node-name", "n5", *HALVES, "-o", "json")
    again = shlex.join(["aliquot", "slurm", "apply", "--node-name", "n5", *HALVES, "-o", "json", "--node-name", "n1"])
    assert refusal(other.err)["next"] == again
    late = host.apply(*HALVES, "--jobs", "wait", "--timeout", "1")
    assert late.code == 20
    assert f"job {job}" in late.err
    assert "give a higher --timeout" in late.err
    assert "--jobs wait" not in late.err, "it was given"
    untouched(host)
    assert bed.job(job, "JobState") == "RUNNING"


@pytest.mark.long(name="slurm apply: slurmd ends and its stop fails", about=("src/aliquot/slurm/node",))
@pytest.mark.parametrize("ends", [False, True])
def test_a_node_is_resumed_only_if_its_slurmd_answers(bed: Bed, ends: bool) -> None:
    # Covers a ``--slurmd-stop`` that fails, with and without the end of slurmd.
    host = cut(bed)
    kill = f"kill -KILL $(cat {bed.folder}/run/n1.pid); " if ends else ""
    failed = host.apply(*HALVES, "--slurmd-stop", f"{kill}exit 3")
    assert failed.code == 20, failed
    assert "--slurmd-stop ended with status 3" in failed.err
    assert ("n1 takes jobs again" in failed.err) is not ends, failed.err
    if ends:
        assert "DRAIN" in bed.state("n1")
        assert "n1 stays drained: its slurmd does not answer" in failed.err
    else:
        untouched(host)


def test_a_busy_node_is_waited_for(bed: Bed) -> None:
    host = cut(bed)
    job = on_node(bed, "sleep 4")
    done = host.apply(*HALVES, "--jobs", "wait", "--timeout", "60")
    assert done.code == 0, done
    assert f"waiting for job {job}" in done.err
    assert bed.job(job, "JobState") == "COMPLETED"
    assert host.gres() == "gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:7"


def test_a_signal_stops_a_waiting_change_on_record(bed: Bed) -> None:
    host = cut(bed)
    job = on_node(bed, "sleep 300")
    words = ("slurm", "apply", *host.how, *HALVES, "--jobs", "wait", "--timeout", "60")
    change = bed.start("change", sys.executable, "-m", "aliquot", *words, env=host.env)
    until(lambda: "waiting for job" in bed.log("change"), lambda: bed.log("change"))
    change.send_signal(signal.SIGTERM)
    assert change.wait(20) == 128 + signal.SIGTERM
    assert "stopped[INTERRUPTED]: stopped by SIGTERM" in bed.log("change")
    assert "aliquot slurm apply --continue --node-name n1" in bed.log("change")
    undone = host.apply("--undo")
    assert undone.code == 0
    assert '"drained": false' in undone.out
    untouched(host)
    assert bed.job(job, "JobState") == "RUNNING"


def test_jobs_are_requeued_where_that_is_asked(bed: Bed) -> None:
    host = cut(bed)
    job = on_node(bed, "sleep 300", "--requeue")
    host.applied("--gpu", "0", "--mig", "3g.20gb*2", "--jobs", "requeue", "--timeout", "60")
    assert bed.job(job, "Restarts") == "1"
    assert bed.job(job, "JobState") in ("PENDING", "RUNNING")


def test_a_job_that_may_not_be_requeued_stops_that_before_any_is(bed: Bed) -> None:
    host = cut(bed)
    first, fixed = on_node(bed, "sleep 300", "--requeue"), on_node(bed, "sleep 300", "--no-requeue")
    refused = host.apply(*HALVES, "--jobs", "requeue")
    assert refused.code == 20
    assert f"job {fixed}" in refused.err
    assert f"job {first}" not in refused.err
    untouched(host)
    assert [bed.job(each, "JobState") for each in (first, fixed)] == ["RUNNING", "RUNNING"]


def test_a_request_that_no_gpu_can_have_touches_nothing(bed: Bed) -> None:
    host = cut(bed)
    for desired_gpu in ("4g.20gb*2", "9g.90gb"):
        refused = host.apply("--gpu", "0", "--mig", desired_gpu)
        assert refused.code in (2, 20), refused
        untouched(host)


def test_a_process_on_a_gpu_is_no_job_and_blocks_all_the_same(bed: Bed) -> None:
    host = cut(bed)
    host.ok("sim", "hold", "0", "7")
    refused = host.apply(*HALVES)
    assert refused.code == 20, refused
    untouched(host)


def test_lines_of_ours_that_an_admin_changed_are_not_overwritten(bed: Bed) -> None:
    host = cut(bed)
    gres = bed.etc / "gres.conf"
    gres.write_text(gres.read_text().replace("nvidia-cap66", "nvidia-cap64"))
    refused = host.apply(*HALVES)
    assert refused.code == 2
    assert f"{gres}:1: the managed block was edited by hand" in refused.err
    assert "nvidia-cap64" in gres.read_text()
    untouched(host)
    host.applied(*HALVES, "--force")
    assert "nvidia-cap64" not in gres.read_text()


def test_a_line_beside_ours_would_count_a_device_twice(bed: Bed) -> None:
    host = cut(bed)
    gres = bed.etc / "gres.conf"
    gres.write_text(gres.read_text() + "NodeName=n[1-3] Name=gpu File=/dev/nvidia0\n")
    refused = host.apply(*HALVES)
    assert refused.code == 2
    assert "counts twice" in refused.err
    untouched(host)


def test_a_line_for_several_nodes_is_not_changed_for_one(bed: Bed) -> None:
    ports = f"Port={bed.ports.of('n1')}"
    line = f"NodeName=n[1,3] NodeHostname={bed.host},x NodeAddr=127.0.0.1,127.0.0.2 {ports} CPUs=2 Gres=gpu:a100:2"
    bed.conf(f"{line}\nPartitionName=all Nodes=ALL Default=YES")
    bed.ok("sh", "-c", "slurmctld >/dev/null 2>&1")
    host = Host(bed, "n1")
    before = (bed.etc / "slurm.conf").read_text()
    refused = host.apply(*SEVEN)
    assert refused.code == 2
    assert "covers 2 nodes" in refused.err
    assert "NodeName=n3 " in refused.err
    assert (bed.etc / "slurm.conf").read_text() == before


def test_an_old_slurmctld_that_may_not_be_restarted_is_reported_before_anything_is_touched(bed: Bed) -> None:
    host = static(bed)
    how = host.how
    words = [
        w for n, w in enumerate(how) if w != "--slurmctld-restart" and (n == 0 or how[n - 1] != "--slurmctld-restart")
    ]
    done = host.run("slurm", "apply", *words, "--slurmctld-restart", "", "-o", "json", *SEVEN)
    if bed.release.name == "22.05":
        assert done.code == 20
        assert "only when slurmctld starts" in done.err
        assert host.gres() == "gpu:a100:2"
        assert "DRAIN" not in bed.state("n1")
    else:
        assert done.code == 0, done
        assert host.gres() == "gpu:a100_1g.5gb:14"


def test_slurmctld_unavailable_is_a_clear_answer_in_bounded_time(bed: Bed) -> None:
    host = cut(bed)
    stop_controller(bed)
    refused = host.apply(*HALVES, timeout=45)
    assert refused.code == 20
    assert "SLURM_AWAY" in refused.err
    bed.ok("sh", "-c", "slurmctld >/dev/null 2>&1")
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    untouched(host)


def test_slurmctld_that_disappears_in_the_middle_costs_nothing(bed: Bed) -> None:
    host = cut(bed)
    hooks = bed.folder / "hooks.yaml"
    pid = f"{bed.folder}/run/slurmctld.pid"
    script = f"read p < {pid}; kill $p; while [ -e {pid} ]; do sleep 0.02; done"
    hooks.write_text(
        "version: v1\nhooks:\n  pre-apply-config:\n  - workdir: /\n    command: /bin/sh\n"
        f"    args: ['-c', 'PATH=/bin:/usr/bin; {script}']\n"
    )
    cut_off = host.apply(*HALVES, "--hooks", str(hooks), timeout=90)
    assert cut_off.code == 20, cut_off
    assert "aliquot slurm apply --continue" in cut_off.err
    bed.ok("sh", "-c", "slurmctld >/dev/null 2>&1")
    host.applied("--continue")
    assert host.gres() == "gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:7"
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_hardware_that_refuses_leaves_the_previous_layout_and_a_sentence(bed: Bed, kind: str) -> None:
    host = cut(bed) if kind == "dynamic" else static(bed)
    previous, gres, files = host.counts(), host.gres(), texts(bed)
    host.ok("sim", "fault", "fail", *REFUSING, "calls=1")
    undone = host.apply("--gpu", "0", "--mig", "3g.20gb*2")
    host.ok("sim", "fault", "none")
    assert undone.code == 40, undone
    assert '"status": "undone"' in undone.out
    assert (host.counts(), host.gres(), texts(bed)) == (previous, gres, files)
    assert "DRAIN" in bed.state("n1")
    assert "INVAL" not in bed.state("n1")
    assert "the previous layout is restored" in bed.ok("scontrol", "-o", "show", "node", "n1")
    bed.ok("scontrol", "update", "nodename=n1", "state=resume")
    kind_of_gres = gres.split(":")[1]
    ended(bed, bed.submit("true", f"--gres=gpu:{kind_of_gres}:1").out)


def test_hardware_that_goes_on_refusing_is_reported_and_undone_later(bed: Bed) -> None:
    host = cut(bed)
    host.ok("sim", "fault", "fail", *REFUSING)
    stuck = host.apply(*HALVES)
    host.ok("sim", "fault", "none")
    assert stuck.code == 40, stuck
    assert "aliquot slurm apply --undo" in stuck.err
    assert "DRAIN" in bed.state("n1")
    assert "undoing it failed" in bed.ok("scontrol", "-o", "show", "node", "n1")
    assert "open at step" in host.ok("slurm", "node", "--node-name", "n1")
    host.apply("--undo")
    assert host.counts() == {"1g.5gb": 14}
    assert host.gres() == "gpu:a100_1g.5gb:14"
    assert host.applied(*HALVES)["status"] == "done"
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))


def texts(bed: Bed) -> list[str]:
    return [(bed.etc / name).read_text() for name in ("slurm.conf", "gres.conf")]


def test_a_slurmd_that_does_not_start_is_undone(bed: Bed) -> None:
    host = cut(bed)
    once = bed.folder / "once"
    host.prefix = f"if ! [ -e {once} ]; then : > {once}; echo no slurmd today >&2; exit 3; fi; "
    undone = host.apply(*HALVES)
    assert undone.code == 20, undone
    assert '"status": "undone"' in undone.out
    assert host.counts() == {"1g.5gb": 14}
    assert host.gres() == "gpu:a100_1g.5gb:14"
    assert "DRAIN" in bed.state("n1")
    host.applied(*HALVES)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))


def test_a_slurmd_that_died_is_started_without_a_request_once_slurm_misses_it(bed: Bed) -> None:
    # Until then slurmd looks healthy, so nothing is done and nothing is lost.
    host = cut(bed)
    conf = bed.etc / "slurm.conf"
    conf.write_text(conf.read_text().replace("SlurmdTimeout=30", "SlurmdTimeout=6"))
    bed.ok("scontrol", "reconfigure")
    pid = bed.folder / "run" / "n1.pid"
    os.kill(int(pid.read_text()), signal.SIGKILL)
    pid.unlink()
    until(lambda: not bed.registered("n1"), lambda: bed.state("n1"), 90)
    assert host.applied()["status"] == "done"
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    assert host.counts() == {"1g.5gb": 14}


def test_an_invalid_node_is_cured_by_the_truth(bed: Bed) -> None:
    host = static(bed)
    host.ok("apply", "--gpu", "0", "--mig", "3g.20gb*2")
    conf = bed.etc / "slurm.conf"
    conf.write_text(conf.read_text().replace("Gres=gpu:a100:2", "Gres=gpu:a100:7"))
    bed.ok(str(bed.etc / "restart-slurmctld"))
    host.prefix = ""
    until(lambda: "INVAL" in bed.state("n1"), lambda: bed.state("n1"))
    host.applied()
    assert host.gres() == "gpu:a100_3g.20gb:2,gpu:a100:1"
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))


def stop_controller(bed: Bed) -> None:
    pid = bed.folder / "run" / "slurmctld.pid"
    os.kill(int(pid.read_text()), signal.SIGTERM)
    until(lambda: not pid.exists(), "slurmctld does not end")
