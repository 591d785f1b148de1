"""Weights with real accounting: slurmdbd of each release over a real MariaDB."""

from __future__ import annotations

import json

import pytest

from .accounting import Accounting, missing
from .bed import Bed, until

SMALL, BIG = "a100_1g.5gb", "a100_3g.20gb"
CAPS = "/dev/nvidia-caps/nvidia-cap"
RECORDS = ((SMALL, 66), (SMALL, 75), (BIG, 84))
PARTITION = 'PartitionName=main Nodes=n1 Default=YES TRESBillingWeights="CPU=1.0"'

pytestmark = pytest.mark.long(
    about=[
        *("src/aliquot/slurm/types/billing", "src/aliquot/cli/slurm/weights"),
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


def test_without_slurmdbd_the_verb_says_what_is_needed(bed: Bed) -> None:
    cluster(bed, "")
    for verb in ("weights",):
        done = bed.aliquot("slurm", verb)
        assert (done.code, done.out) == (20, ""), verb
        assert "blocked[NO_ACCOUNTING]" in done.err
        assert "accounting_storage/slurmdbd is needed" in done.err
