"""Weights and reports with real accounting: slurmdbd of each release over a real MariaDB."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from .accounting import Accounting, missing
from .bed import Bed, until
from .release import OLD

SMALL, BIG = "a100_1g.5gb", "a100_3g.20gb"
CAPS = "/dev/nvidia-caps/nvidia-cap"
RECORDS = ((SMALL, 66), (SMALL, 75), (BIG, 84))
PARTITION = 'PartitionName=main Nodes=n1 Default=YES TRESBillingWeights="CPU=1.0"'

pytestmark = pytest.mark.long(
    about=[
        *("src/aliquot/slurm/types/billing", "src/aliquot/cli/slurm/weights"),
        *("src/aliquot/slurm/report/accounting", "src/aliquot/cli/slurm/report"),
        *("tests/system/slurm/accounting", "tests/system/slurm/test_accounting"),
    ]
)


def cluster(bed: Bed, more: str) -> None:
    """Write the files of a cluster of one node with MIG devices, and start its daemons."""
    bed.gpu_devices(0, *(cap + k for _, cap in RECORDS for k in (0, 1)))
    gres = [
        f"NodeName=n1 Name=gpu Type={kind} MultipleFiles=/dev/nvidia0,{CAPS}{cap},{CAPS}{cap + 1}"
        for kind, cap in RECORDS
    ]
    node = bed.node("n1", f"CPUs=16 RealMemory=1000 Gres=gpu:{SMALL}:2,gpu:{BIG}:1")
    bed.conf(f"{node}\n{PARTITION}", more=f"SlurmdParameters=config_overrides\n{more}", gres="\n".join(gres) + "\n")
    bed.controller()
    bed.slurmd("n1")


@pytest.fixture
def accounting(bed: Bed) -> Accounting:
    if missing(bed.release):
        pytest.skip(missing(bed.release))
    return Accounting(bed)


def rewrite(bed: Bed, *lines: str) -> None:
    """Put lines into slurm.conf in place of those that begin with the same key and name."""
    conf = bed.etc / "slurm.conf"
    text = [each for each in conf.read_text().splitlines() if not each.startswith(tuple(x.split()[0] for x in lines))]
    conf.write_text("\n".join([*text, *lines, ""]))


def test_weights_are_what_slurm_bills(accounting: Accounting) -> None:
    bed = accounting.bed
    cluster(bed, accounting.lines())
    done = bed.aliquot("slurm", "weights", "-o", "json")
    assert done.code == 0, done
    document = json.loads(done.out)
    tres = f"AccountingStorageTRES={document['accounting_storage_tres']}"
    (partition,) = document["partitions"]

    # slurmctld reads a weight only of TRES that it lists.
    bed.stop("n1")
    bed.stop("slurmctld")
    rewrite(bed, partition["line"])
    daemon = bed.start("slurmctld", "slurmctld", "-D")
    until(lambda: daemon.poll() is not None, "slurmctld takes weights of TRES that it does not list")
    rewrite(bed, tres)
    bed.controller()
    bed.slurmd("n1")
    jobs = {
        bed.submit("true", f"--gres=gpu:{SMALL}:1").out: 1 + 14,
        bed.submit("true", f"--gres=gpu:{SMALL}:2").out: 1 + 28,
        bed.submit("true", "-n2", f"--gpus-per-task={SMALL}:1").out: 2 + 28,
        bed.submit("true", f"--gres=gpu:{BIG}:1").out: 1 + 50,
        bed.submit("true").out: 1,
    }
    until(lambda: billed(bed, jobs) == jobs, lambda: f"{billed(bed, jobs)}, not {jobs}")

    again = bed.aliquot("slurm", "weights", "--whole", "8")
    assert again.code == 0, again
    command = next(line.partition(": ")[2] for line in again.out.splitlines() if "without a restart" in line)
    bed.ok(*command.split())
    more = {bed.submit("true", f"--gres=gpu:{BIG}:1").out: 1 + 4}
    until(lambda: billed(bed, more) == more, lambda: f"{billed(bed, more)}, not {more}")


def billed(bed: Bed, jobs: dict[str, int]) -> dict[str, int]:
    """Return what accounting bills for jobs that have ended."""
    rows = bed.ok("sacct", "-X", "-n", "-P", f"--jobs={','.join(jobs)}", "--format=JobIDRaw,AllocTRES").splitlines()
    found = {}
    for number, _, tres in (row.partition("|") for row in rows):
        values = dict(each.split("=") for each in tres.split(",") if each)
        found[number] = int(values.get("billing", 0))
    return found


def report(bed: Bed, *words: str) -> dict[str, Any]:
    """Return the rows of a report by type, each with only the numbers that are not a matter of time."""
    done = bed.aliquot("slurm", "report", "--since", "1h", *words, "-o", "json")
    assert done.code == 0, done
    keys = ("jobs", "waiting", "ended", "timed_out", "failed")
    return {each["type"]: {key: each[key] for key in keys} for each in json.loads(done.out)["types"]}


def test_a_report_has_each_run_of_each_job_under_the_type_that_it_got(accounting: Accounting) -> None:
    bed = accounting.bed
    cluster(bed, accounting.lines("gres/gpu", f"gres/gpu:{SMALL}", f"gres/gpu:{BIG}"))
    bed.submit("exit 1", f"--gres=gpu:{SMALL}:2", "--array=0-1")
    bed.submit("true")
    long = bed.submit("sleep 900", f"--gres=gpu:{BIG}:1").out
    until(lambda: bed.job(long, "JobState") == "RUNNING", "the job does not start")
    bed.submit("true", "--gres=gpu:1", "--time=5")  # gets a small one
    bed.submit("true", f"--gpus={BIG}:1")
    wanted: dict[str, Any] = {
        BIG: {"jobs": 1, "waiting": 1, "ended": 0, "timed_out": None, "failed": None},
        SMALL: {"jobs": 3, "waiting": 0, "ended": 3, "timed_out": 0.0, "failed": 0.6667},
    }
    until(lambda: report(bed) == wanted, lambda: f"{report(bed)}")
    assert list(report(bed)) == [BIG, SMALL]

    bed.ok("scontrol", "requeue", long)
    until(lambda: report(bed)[BIG]["jobs"] == 2, lambda: f"{report(bed)}")  # the run that ended, and the other job
    assert report(bed, "--user=root", "--partition=main") == report(bed)
    assert report(bed, "--account=nope") == {}
    if bed.release == OLD:  # an unprivileged user cannot enter the root of the other one
        unprivileged = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "aliquot")
        assert BIG in bed.ok(*unprivileged, "slurm", "report")

    done = bed.aliquot("slurm", "report", "--user=nope,root")
    assert (done.code, done.out) == (20, "")
    assert "blocked[NO_SUCH_USER]: no user nope" in done.err
    done = bed.aliquot("slurm", "report", "--partition=nope")
    assert (done.code, done.out) == (20, "")
    assert "blocked[NO_PARTITION]" in done.err
    bed.stop("slurmdbd")
    done = bed.aliquot("slurm", "report")
    assert (done.code, done.out) == (20, "")
    assert "blocked[SLURMDBD_AWAY]" in done.err
    assert "Connection refused" in done.err


def test_the_gpu_memory_that_slurm_measured_is_in_the_report(accounting: Accounting) -> None:
    bed = accounting.bed
    if bed.release == OLD:
        return  # it does not measure it
    cluster(bed, accounting.lines("gres/gpu", f"gres/gpu:{BIG}"))
    bed.submit("true", f"--gres=gpu:{BIG}:1")
    until(lambda: report(bed).get(BIG, {}).get("ended") == 1, lambda: f"{report(bed)}")
    bed.stop("slurmctld")
    conf = bed.etc / "slurm.conf"
    conf.write_text(conf.read_text().replace("jobacct_gather/none", "jobacct_gather/linux"))
    bed.controller()
    # No GPU of this host has memory that slurmd could measure. slurmdbd stores bytes by the TRES's number.
    accounting.change(
        "set @memory = (select id from tres_table where type = 'gres' and name = 'gpumem');\n"
        "update bed_step_table set tres_usage_in_tot = concat('1=5,', @memory, '=5368709121');\n"
    )
    done = bed.aliquot("slurm", "report", "-o", "json")
    document = json.loads(done.out)
    assert (document["measured_by"], document["types"][0]["use"]["memory_mib"]) == ("slurm", 5121)


def test_accounting_that_does_not_count_gpus_is_refused(accounting: Accounting) -> None:
    bed = accounting.bed
    cluster(bed, accounting.lines())
    done = bed.aliquot("slurm", "report")
    assert (done.code, done.out) == (20, "")
    assert "blocked[NO_ACCOUNTING]" in done.err
    assert "AccountingStorageTRES has no gres/gpu" in done.err


def test_without_slurmdbd_the_verb_says_what_is_needed(bed: Bed) -> None:
    cluster(bed, "")
    for verb in ("weights", "report"):
        done = bed.aliquot("slurm", verb)
        assert (done.code, done.out) == (20, ""), verb
        assert "blocked[NO_ACCOUNTING]" in done.err
        assert "accounting_storage/slurmdbd is needed" in done.err
