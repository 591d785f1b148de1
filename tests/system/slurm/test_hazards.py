"""Settings that others made on a node, or make while it changes, on real clusters of both releases."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from support.terminal import Played

from .applying import WORDS, Host, dynamic, idle, running
from .bed import Bed, Ran, until
from .test_apply import HALVES, SEVEN


def cut(bed: Bed) -> Host:
    host = dynamic(bed)
    host.applied(*SEVEN, "--node-conf", WORDS)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    return host


def report(bed: Bed, *words: str) -> None:
    bed.ok("scontrol", "update", *words)


def changed_while(host: Host, hand: Callable[[], object]) -> Ran:
    """Run a change that waits for a job, and call ``hand`` meanwhile."""
    bed = host.bed
    job = bed.submit("sleep 300", "-w", "n1").out
    running(bed, job)
    with ThreadPoolExecutor(1) as threads:
        change = threads.submit(host.apply, *HALVES, "--jobs", "wait", "--timeout", "60")
        until(lambda: "DRAIN" in bed.state("n1"), lambda: bed.state("n1"))
        hand()
        bed.ok("scancel", job)
        return change.result()


def test_what_an_operator_gave_a_node_outlives_its_change(bed: Bed) -> None:
    host = cut(bed)
    report(bed, "nodename=n1", "availablefeatures=mig,rack7", "activefeatures=mig,rack7")
    report(bed, "nodename=n1", "weight=7", "comment=ours to keep", "extra=row 3")
    bed.ok("scontrol", "create", "partitionname=memory", "nodes=n1")
    wanted = bed.submit("true", "-w", "n1", "--gres=gpu:a100_1g.5gb:1", "--begin=now+600").out
    outcome = host.applied(*HALVES)
    assert [note for note in outcome["notes"] if "can open" not in note] == [], "only the fence is missing"
    after = bed.ok("scontrol", "-o", "show", "node", "n1")
    for each in (
        "AvailableFeatures=mig,rack7",
        "Weight=7",
        "Comment=ours to keep",
        "Extra=row 3",
        "Partitions=all,memory",
    ):
        assert each in after, each
    assert bed.job(wanted, "JobState") == "PENDING"
    assert "changing" not in after


def test_who_drains_the_node_while_it_changes_keeps_it(bed: Bed) -> None:
    host = cut(bed)
    done = changed_while(host, lambda: report(bed, "nodename=n1", "state=drain", "reason=new fans"))
    assert done.code == 0, done
    assert '"reason": "new fans"' in done.out
    assert host.counts() == {"3g.20gb": 2, "1g.5gb": 7}
    assert "DRAIN" in bed.state("n1")
    assert host.applied(*SEVEN)["reason"] == "new fans"


def test_a_reservation_is_not_lost(bed: Bed) -> None:
    host = cut(bed)
    words = ("starttime=now+3600", "duration=60", "users=root", "nodes=n1")
    bed.ok("scontrol", "create", "reservation", "reservationname=friday", *words)
    refused = host.apply(*HALVES)
    assert refused.code == 20, refused
    assert "friday" in refused.err
    assert "DRAIN" not in bed.state("n1")
    assert host.counts() == {"1g.5gb": 14}
    bed.ok("scontrol", "delete", "reservationname=friday")
    late = ("create", "reservation", "reservationname=late", "flags=ignore_jobs", *words)
    undone = changed_while(host, lambda: bed.ok("scontrol", *late))
    assert '"status": "undone"' in undone.out, undone
    assert host.gres() == "gpu:a100_1g.5gb:14"
    assert "Nodes=n1" in bed.ok("scontrol", "-o", "show", "reservation", "late")


def test_gres_that_are_no_gpus_stay(bed: Bed) -> None:
    host = dynamic(bed)
    conf = bed.etc / "slurm.conf"
    conf.write_text(conf.read_text().replace("GresTypes=gpu", "GresTypes=gpu,bandwidth"))
    bed.ok(str(bed.etc / "restart-slurmctld"))
    until(lambda: "UP" in bed.run("scontrol", "ping").out, "slurmctld does not answer")
    host.applied(*SEVEN, "--node-conf", f"{WORDS} Gres=bandwidth:40")
    assert host.gres() == "gpu:a100_1g.5gb:14,bandwidth:40"
    host.applied(*HALVES)
    assert host.gres() == "gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:7,bandwidth:40"


def test_a_simulated_host_has_its_device_nodes_where_its_lines_say(bed: Bed) -> None:
    host = cut(bed)
    words = list(host.how)
    at = words.index("--dev-root")
    del words[at : at + 2]
    made = host.run("slurm", "apply", *words, "--dev-root", str(bed.folder / "machine"), *HALVES)
    assert made.code == 0, made
    assert f"{bed.folder}/machine/dev/nvidia0" in (bed.etc / "gres.conf").read_text()
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))


def answered(host: Host, answer: str) -> int:
    """Run the change at a terminal and return its exit code."""
    shell, environment = shlex.join(host.bed.inside()), {**host.bed.env, **host.env}
    asked = Played("slurm", "apply", *host.how, *HALVES, shell=shell, environment=environment)
    try:
        assert "gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:7" in asked.shows("Apply this plan? [y/N]").text.replace("\n", "")
        asked.type(f"{answer}\n")
        return asked.ended()
    finally:
        asked.close()


def test_a_dry_run_touches_nothing_and_is_true(bed: Bed) -> None:
    host = cut(bed)
    began, conf = bed.field("n1", "SlurmdStartTime"), (bed.etc / "gres.conf").read_text()
    answer = host.apply(*HALVES, "--dry-run")
    assert answer.code == 0, answer
    assert '"status": "would"' in answer.out
    assert "gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:7" in answer.out
    assert (bed.field("n1", "SlurmdStartTime"), (bed.etc / "gres.conf").read_text()) == (began, conf)
    assert host.counts() == {"1g.5gb": 14}
    assert "DRAIN" not in bed.state("n1")
    added = {
        line[1:] for line in host.ok("slurm", "apply", *host.how, *HALVES, "--dry-run").splitlines() if line[:1] == "+"
    }
    assert answered(host, "n") == 10
    assert host.counts() == {"1g.5gb": 14}
    assert "DRAIN" not in bed.state("n1")
    assert answered(host, "y") == 0
    after = (bed.etc / "gres.conf").read_text().splitlines()
    assert {line for line in added if line.startswith("NodeName")} == set(after) - set(conf.splitlines()) - {
        line for line in after if line.startswith("#")
    }
