"""Layouts on demand if a host has a CLOUD record per layout, and power saving switches them."""

from __future__ import annotations

import sys

import yaml

from .bed import Bed, until
from .test_cloud import ONES, THREES, A, B, Cloud


def test_of_a_host_with_one_cloud_record_per_layout_the_one_that_jobs_ask_for_is_opened(bed: Bed) -> None:
    cloud = Cloud(bed)
    settings = bed.folder / "demand.yaml"
    records = {"way": "cloud", "host": "n1", "nodes": [THREES, ONES], "idle": 0, "between": 0}
    document = {"version": "aliquot-slurm/v1", "records": [records], "limits": {"interval": 0.3}}
    settings.write_text(yaml.safe_dump(document | {"history": str(bed.folder / "history.json")}))
    words = ("slurm", "controller", "-f", str(settings))
    bed.start("controller", sys.executable, "-m", "aliquot", *words, env=cloud.host.env)
    until(lambda: cloud.breaches() == 0, lambda: bed.log("controller"))
    jobs = [bed.submit("sleep 1", f"--gres={kind}:1") for kind in (A, B)]
    for job in jobs:
        cloud.completed(job)
        assert bed.job(job.out, "Restarts") == "0"
    assert cloud.breaches() == 0
    assert bed.log("controller").count("is opened for job") in (1, 2)
