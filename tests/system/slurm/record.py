"""Recorder of Slurm's output, for the tests that run without Slurm: ``PYTHONPATH=tests python -m system.slurm.record``.

It runs a cluster of each release with jobs of every form and writes each answer to ``tests/recorded/slurm/RELEASE``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from aliquot.slurm.client.rest_transport import RestTransport

from .bed import Bed
from .release import RELEASES, Release
from .transports import Cluster

PLACE = Path(__file__).parents[2] / "recorded" / "slurm"
ASKED = {
    "nodes.txt": ("scontrol", "--all", "--future", "--detail", "show", "nodes"),
    "jobs.txt": ("scontrol", "--all", "--detail", "show", "jobs"),
    "partitions.txt": ("scontrol", "--all", "show", "partitions"),
    "config.txt": ("scontrol", "show", "config"),
    "squeue.json": ("squeue", "--all", "--json"),
}
REST = {"nodes": (("flags", "FUTURE"), ("flags", "DETAIL")), "jobs": (("flags", "DETAIL"),), "partitions": ()}


def record(release: Release) -> None:
    """Record the answers of a release and replace earlier recordings. Raises the errors of the cluster."""
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    bed = Bed(release, folder)
    try:
        cluster = Cluster(bed)
        _fill(cluster)
        place = PLACE / release.name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name, words in ASKED.items():
            answer = bed.run(*words, env={"SLURM_TIME_FORMAT": "%s"})
            _write(place / name, answer.out, folder)
        for shape in (40, 41, 42) if release.chrooted else (38,):
            for what, query in REST.items():
                wire = RestTransport(cluster.rest.url, cluster.rest.token)
                rest_answer = wire.request("record", "GET", f"/slurm/v0.0.{shape}/{what}", query if shape > 38 else ())
                _write(place / f"v0.0.{shape}-{what}.json", rest_answer.body.decode(), folder)
    finally:
        bed.close()
        shutil.rmtree(folder, ignore_errors=True)


def _fill(cluster: Cluster) -> None:
    bed = cluster.bed
    bed.ok("scontrol", "create", "NodeName=later", "CPUs=2", "Gres=gpu:a100_3g.20gb:2", "State=FUTURE")
    bed.ok("scontrol", "update", "nodename=later", "state=drain", "reason=aliquot: placeholder State=IDLE")
    bed.ok("scontrol", "update", "nodename=n1", "comment=a Reason=b", "extra=aliquot 3f2a")
    cluster.running("-w", "n1", "--gres=gpu:a100_1g.5gb:1", "--mem=10", "--job-name=a b Priority=X")
    cluster.running("-N2", "--gres=gpu:a100_1g.5gb:2", "--mem-per-cpu=10", "--constraint=mig", "--no-requeue")
    cluster.submit("--gpus=a100:1", "--mem=1G", "--begin=now+1hour", "--exclusive", "--exclude=n1")
    cluster.submit("--hold", "--array=1-3", "-n2", "--gpus-per-task=a100_1g.5gb:1", "-p", "all,clouds")
    cluster.submit("--hold", "--sockets-per-node=1", "--gpus-per-socket=1")
    bed.ok("scancel", str(cluster.submit("--hold")))


def _write(file: Path, output: str, folder: Path) -> None:
    """Write a recording without this host's folder and name."""
    host = os.uname().nodename.partition(".")[0]
    output = output.replace(str(folder).replace("/", "\\/"), "/srv/bed").replace(str(folder), "/srv/bed")
    file.write_text(
        output.replace(f"={host}", "=host")
        .replace(f'"{host}"', '"host"')
        .replace(f" at {host} ", " at host ")
        .replace(f" {host}(", " host(")
    )


if __name__ == "__main__":
    for each in RELEASES:
        record(each)
