"""``aliquot slurm apply`` on real clusters of both releases: from layout to layout, without touching any job."""

from __future__ import annotations

from typing import Any

import msgspec

from .applying import WORDS, Host, dynamic, ended, idle, running, static
from .bed import Bed, until

SEVEN = ("--gpu", "0-1", "--mig", "1g.5gb*7")
HALVES = ("--gpu", "0", "--mig", "3g.20gb*2")


def error(text: str) -> dict[str, Any]:
    """Return the error document on stderr, which follows the progress lines."""
    return msgspec.json.decode(text[text.index("\n{") if not text.startswith("{") else 0 :], type=dict[str, Any])


def test_a_dynamic_node_registers_and_changes_its_layout(bed: Bed) -> None:
    host = dynamic(bed)
    host.applied(*SEVEN, "--node-conf", WORDS, "--revision", "r1")
    assert host.gres() == "gpu:a100_1g.5gb:14"
    elsewhere = bed.submit("sleep 300", "-w", "n2").out
    running(bed, elsewhere)
    outcome = host.applied(*HALVES, "--revision", "r2")
    assert outcome["status"] == "done"
    assert outcome["nodeKind"] == "dynamic"
    assert host.gres() == "gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:7"
    assert host.counts() == {"3g.20gb": 2, "1g.5gb": 7}
    assert "aliquot: r2" in bed.ok("scontrol", "-o", "show", "node", "n1")
    ended(bed, bed.submit("true", "--gres=gpu:a100_3g.20gb:1").out)
    assert bed.job(elsewhere, "JobState") == "RUNNING"
    assert bed.job(elsewhere, "Restarts") == "0"


def test_the_same_request_again_changes_nothing(bed: Bed) -> None:
    host = dynamic(bed)
    host.applied(*SEVEN, "--node-conf", WORDS)
    began = bed.field("n1", "SlurmdStartTime")
    again = host.applied(*SEVEN)
    assert again["status"] == "nothing"
    assert not again["steps"]
    assert bed.field("n1", "SlurmdStartTime") == began


def test_a_static_node_keeps_every_other_byte_of_its_files(bed: Bed) -> None:
    host = static(bed)
    conf, gres = bed.etc / "slurm.conf", bed.etc / "gres.conf"
    gres.write_text("# ours alone is below\n" + gres.read_text() + "NodeName=other Name=gpu File=/dev/null\n")
    gres.chmod(0o640)
    before = conf.read_text()
    elsewhere = bed.submit("sleep 300", "-w", "n2").out
    running(bed, elsewhere)
    host.applied(*SEVEN)
    assert host.gres() == "gpu:a100_1g.5gb:14"
    assert conf.read_text() == before.replace("Gres=gpu:a100:2", "Gres=gpu:a100_1g.5gb:14")
    text = gres.read_text()
    assert text.startswith("# ours alone is below\n# aliquot: begin n1 ")
    assert text.endswith("# aliquot: end n1\nNodeName=other Name=gpu File=/dev/null\n")
    assert gres.stat().st_mode & 0o777 == 0o640
    ended(bed, bed.submit("true", "--gres=gpu:a100_1g.5gb:1").out)
    assert bed.job(elsewhere, "JobState") == "RUNNING"


def test_without_a_request_slurm_follows_the_gpus(bed: Bed) -> None:
    host = static(bed)
    host.ok("apply", "--gpu", "0", "--mig", "3g.20gb*2")
    outcome = host.applied()
    assert outcome["status"] == "done"
    assert host.gres() == "gpu:a100_3g.20gb:2,gpu:a100:1"
    assert host.counts() == {"3g.20gb": 2}


def test_one_record_per_gpu_changes_while_jobs_run_on_the_other(bed: Bed) -> None:
    host = dynamic(bed)
    halves = {n: part(host, n) for n in (0, 1)}
    for number, each in halves.items():
        each.applied("--gpu", str(number), "--mig", "1g.5gb*7", "--node-conf", WORDS, "--capacity", str(number))
    assert [each.gres() for each in halves.values()] == ["gpu:a100_1g.5gb:7"] * 2
    job = bed.submit("sleep 300", "-w", "n1-gpu1", "--gres=gpu:a100_1g.5gb:1").out
    running(bed, job)
    halves[0].applied("--gpu", "0", "--mig", "3g.20gb*2", "--capacity", "0")
    assert halves[0].gres() == "gpu:a100_3g.20gb:2"
    assert halves[1].gres() == "gpu:a100_1g.5gb:7"
    assert (bed.etc / "gres.conf").read_text().count("# aliquot: begin") == 2
    assert bed.job(job, "JobState") == "RUNNING"
    foreign = halves[0].apply("--gpu", "1", "--mig", "7g.40gb", "--capacity", "0")
    assert foreign.code == 2
    assert "does not offer GPU" in foreign.err


def part(host: Host, number: int) -> Host:
    """Return a second Slurm node on the same host, with a separate address."""
    made = object.__new__(Host)
    made.__dict__ = dict(host.__dict__)
    made.name = f"n1-gpu{number}"
    env = host.bed.dynamic_env(made.name)
    made.prefix = " ".join(f"{key}={value}" for key, value in env.items()) + " "
    return made


def test_a_controller_reads_what_this_host_is(bed: Bed) -> None:
    host = dynamic(bed)
    host.applied(*SEVEN, "--node-conf", WORDS, "--revision", "r1")
    facts = msgspec.json.decode(host.ok("slurm", "node", "--node-name", "n1", "-o", "json"), type=dict[str, Any])
    assert facts["offers"] == "gpu:a100_1g.5gb:14"
    assert facts["last"] == "done"
    assert facts["revision"] == "r1"
    assert len(facts["inventory"]["gpus"]) == 2
    assert bed.release.name in facts["slurmd"]


def test_a_node_that_was_drained_before_stays_drained(bed: Bed) -> None:
    host = dynamic(bed)
    host.applied(*SEVEN, "--node-conf", WORDS)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    bed.ok("scontrol", "update", "nodename=n1", "state=drain", "reason=new fans")
    outcome = host.applied(*HALVES)
    assert outcome["status"] == "done"
    assert outcome["drained"]
    assert outcome["reason"] == "new fans"
    assert host.gres() == "gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:7"
    assert "DRAIN" in bed.state("n1")
