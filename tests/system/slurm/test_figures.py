"""Prometheus metrics of the Slurm controller, while a real slurmctld serves jobs for absent instances."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request

import yaml

from .bed import Bed, until
from .demanded import Cluster


class Page:
    """The metrics page that the controller's log names."""

    def __init__(self, cluster: Cluster) -> None:
        until(lambda: "Prometheus metrics on " in cluster.log(), lambda: cluster.log())
        found = re.search(r"Prometheus metrics on (\S+)", cluster.log())
        assert found
        self.url = found.group(1)

    def text(self) -> str:
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            return str(answer.read().decode())

    def value(self, sample: str) -> float | None:
        found = re.search(rf"^{re.escape(sample)} (\S+)$", self.text(), re.M)
        return float(found.group(1)) if found else None


def test_what_the_page_says_is_what_happened(bed: Bed) -> None:
    cluster = Cluster(bed, "n1")
    document = yaml.safe_load(cluster.settings.read_text())
    cluster.settings.write_text(yaml.safe_dump(document | {"listen": "127.0.0.1:0"}))
    cluster.controller()
    page = Page(cluster)
    until(lambda: page.value("aliquot_slurm_up") == 1.0, page.text)
    assert page.value('aliquot_slurm_records{state="idle"}') == 1
    assert page.value('aliquot_slurm_free_devices{type="a100_7g.40gb"}') == 2
    assert page.value('aliquot_slurm_changes_total{node="n1",outcome="done"}') == 0
    job = cluster.submit("a100_3g.20gb:1", "sleep 60")
    cluster.starts(job)
    until(lambda: page.value("aliquot_slurm_start_seconds_count") == 1, page.text)
    until(lambda: page.value('aliquot_slurm_changes_total{node="n1",outcome="done"}') == 1, page.text)
    assert page.value("aliquot_slurm_change_seconds_count") == 1
    assert page.value("aliquot_slurm_change_started_timestamp_seconds") == 0
    until(lambda: page.value('aliquot_slurm_records{state="busy"}') == 1, page.text)
    big = cluster.submit("a100_7g.40gb:2", "true", "--exclusive")
    until(lambda: (page.value("aliquot_slurm_oldest_demand_timestamp_seconds") or 0) > 0, page.text)
    bed.ok("scancel", big)
    until(lambda: page.value("aliquot_slurm_oldest_demand_timestamp_seconds") == 0, page.text)
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "metrics"], input=page.text().encode(), capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
    bed.stop("slurmctld")
    until(lambda: page.value("aliquot_slurm_up") == 0, page.text)
    assert page.value('aliquot_slurm_records{state="busy"}') is None
