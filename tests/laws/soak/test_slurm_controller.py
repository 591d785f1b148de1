"""The Slurm controller on a real slurmctld: jobs start and end, a node is drained and repartitioned, slurmctld
restarts.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from laws.soak.growth import environment, soak
from laws.soak.program import Pages
from support.selection import draw
from system.slurm.bed import Bed, until
from system.slurm.demanded import Cluster
from system.slurm.release import RELEASES

OBSERVATION = re.compile(r"^aliquot_slurm_last_look_timestamp_seconds (\S+)$", re.M)
CUT = 48
"""Number of cycles after which a job needs another layout. A change of a node takes as long as twenty other cycles."""


@pytest.fixture
def bed() -> Iterator[Bed]:
    """Start the installed Slurm release that the commit draws."""
    here = [release for release in RELEASES if not release.missing]
    if not here:
        pytest.skip(RELEASES[0].missing)
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    made = Bed(here[draw(__name__, len(here))], folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


class Controlled:
    """A cluster of one node, and its controller in a fresh interpreter. It observes continuously, as a job is held."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.cluster = Cluster(bed, "n1")
        self.cluster.write(limits={"interval": 0.4})
        self.waiting: list[str] = []
        port = bed.ports.of("controller")
        self.cluster.more = environment(bed.folder)
        self.cluster.controller("--listen", f"127.0.0.1:{port}")
        until(lambda: f":{port}/metrics" in self.cluster.log(), self.cluster.log)
        self.pages = Pages(port)
        until(lambda: "jobs may wait" in self.cluster.log(), self.cluster.log)
        self.cluster.submit("a100_2g.10gb:6", "true", "--hold")

    def measured(self) -> float:
        found = OBSERVATION.search(self.pages.get("/metrics"))
        return float(found[1]) if found else 0.0

    def change(self, number: int) -> None:
        bed, cluster = self.bed, self.cluster
        if number % CUT == CUT - 3:
            kind = ("a100_1g.5gb:14", "a100_3g.20gb:4")[number // CUT % 2]
            cluster.ran(cluster.submit(kind, "true"))
        elif number % 4 == 0:
            self.waiting.append(cluster.submit("a100_2g.10gb:6", "true", "--begin=now+1hour"))
        elif number % 4 == 1:
            bed.ok("scancel", *self.waiting)
            self.waiting.clear()
        elif number % 4 == 2:
            bed.ok("scontrol", "update", "nodename=n1", "state=drain", "reason=fan")
        else:
            bed.ok("scontrol", "update", "nodename=n1", "state=resume")


def test_the_slurm_controller(bed: Bed) -> None:
    made = Controlled(bed)

    def cycle(number: int) -> None:
        before = made.measured()
        made.change(number)
        until(lambda: made.measured() > before, made.cluster.log)
        if number % 7 == 6:
            made.pages.close()

    with closing(made.pages):
        soak(bed.daemons["controller"].pid, bed.folder, cycle, made.pages.close)
