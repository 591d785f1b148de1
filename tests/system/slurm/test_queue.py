"""Calls of ``aliquot slurm apply`` to Slurm: a node and its jobs, however many jobs wait in the queue."""

from __future__ import annotations

import time
from pathlib import Path

from .applying import WORDS, Host, dynamic, idle, static
from .bed import Bed, until
from .demanded import Cluster
from .transports import PROGRAMS

SEVEN = ("--gpu", "0-1", "--mig", "1g.5gb*7")
HALVES = ("--gpu", "0", "--mig", "3g.20gb*2")
MOST = 45
"""Bound on calls of Slurm's programs for a change of an idle node. On a slow host they are polled more often."""


def recorded(host: Host) -> Path:
    """Record the calls of Slurm's programs that ``host`` makes from now on. Returns the file, with a line for each."""
    folder = host.bed.folder / "recorded"
    folder.mkdir()
    calls = folder / "calls"
    calls.touch()
    for name in PROGRAMS:
        real = host.bed.bin / name
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\nexec {real} "$@"\n')
        (folder / name).chmod(0o755)
    host.env["PATH"] = f"{folder}:{host.bed.env['PATH']}"
    return calls


def lists_the_queue(call: str) -> bool:
    """Report whether a call requests the jobs of the whole cluster."""
    if call.startswith("squeue"):
        return "--nodelist=n1" not in call
    return "show jobs" in call


def check(host: Host) -> None:
    bed = host.bed
    assert bed.submit("true", "--hold", "--array=1-3").code == 0
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    calls = recorded(host)
    host.applied(*HALVES)
    made = calls.read_text().splitlines()
    assert [call for call in made if call.startswith("squeue")], made
    assert not [call for call in made if lists_the_queue(call)], made
    assert sum(call.startswith("squeue") for call in made) <= 2, made
    assert len(made) <= MOST, made


def test_the_queue_is_not_listed_for_a_dynamic_node(bed: Bed) -> None:
    host = dynamic(bed)
    host.applied(*SEVEN, "--node-conf", WORDS)
    check(host)


def test_the_queue_is_not_listed_for_a_node_of_slurm_conf(bed: Bed) -> None:
    host = static(bed)
    host.applied(*SEVEN)
    check(host)


DEPLOY = Path(__file__).resolve().parents[3] / "deploy/slurm"
WAKE = "/var/lib/aliquot/slurm-controller.json.wake"


def test_slurms_hooks_wake_the_controller_and_without_a_cause_it_does_not_ask(bed: Bed) -> None:
    wake = bed.folder / "history.json.wake"
    hook = bed.folder / "slurmctld-wake.sh"
    hook.write_text((DEPLOY / hook.name).read_text().replace(WAKE, str(wake)))
    hook.chmod(0o755)
    (bed.etc / "job_submit.lua").write_text((DEPLOY / "job_submit.lua").read_text().replace(WAKE, str(wake)))
    cluster = Cluster(bed, "n1", more=f"JobSubmitPlugins=lua\nEpilogSlurmctld={hook}")
    cluster.write(limits={"interval": 3})
    calls = recorded(cluster.hosts["n1"])
    cluster.controller()
    until(wake.exists, cluster.log)
    created = wake.stat().st_mtime_ns
    cluster.ran(cluster.submit("a100_7g.40gb:1", "true"))
    until(lambda: wake.stat().st_mtime_ns != created, "neither hook touched the file")
    submitted = wake.stat().st_mtime_ns
    cluster.ran(cluster.submit("a100_1g.5gb:14", "true"))
    until(lambda: wake.stat().st_mtime_ns != submitted, "neither hook touched the file")
    time.sleep(12)  # the last hook's alert, and the observation of the interval that finds nothing pending
    before = len(calls.read_text().splitlines())
    time.sleep(10)
    later = calls.read_text().splitlines()[before:]
    assert sum(call.startswith("squeue") for call in later) <= 1, later
    job = cluster.submit("a100_3g.20gb:4", "true")
    began = time.monotonic()
    until(lambda: f"is repartitioned for job {job}" in cluster.log(), cluster.log, 10)
    assert time.monotonic() - began < 8
    cluster.ran(job)
