"""A configless slurmd gets the files of slurmctld when it starts, but not the one by which slurmd sorts slots."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.slurm.files.slot_board import ORDER_FILE

from .bed import Bed, until
from .slotted import SHAPE, SlotHost

GRES = "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"
LAYOUT = ("--gpu", "0-1", "--mig", "7g.40gb")


@pytest.fixture
def cache(bed: Bed) -> Path:
    """Start slurmctld with the order file, and a slurmd that has no files; return where slurmd writes them."""
    run = f"{bed.release.root.rstrip('/')}/run"
    socket = f"ln -s {bed.folder}/munge/socket {run}/munge/munge.socket.2"
    bed.ok("sh", "-ec", f"mount -t tmpfs none {run}; mkdir {run}/slurm {run}/munge; {socket}")
    bed.gpu_devices(0)
    bed.gpu_devices(1)
    nodes = f"{bed.node('n1', f'{SHAPE} Gres=gpu:a100:2')}\nPartitionName=all Nodes=ALL Default=YES"
    more = "SlurmdParameters=config_overrides\nSlurmctldParameters=enable_configless"
    bed.conf(nodes, more=more, gres=GRES)
    (bed.etc / ORDER_FILE).touch()
    bed.controller()
    server = f"127.0.0.1:{bed.ports.of('slurmctld')}"
    bed.start("n1", "sh", "-c", f"unset SLURM_CONF; exec slurmd -D -N n1 --conf-server {server}")
    until(lambda: bed.registered("n1"), lambda: bed.log("n1")[-2000:])
    return bed.folder / "spool/n1/conf-cache"


def test_the_order_file_does_not_reach_the_node_so_it_cannot_be_a_board(bed: Bed, cache: Path) -> None:
    assert sorted(path.name for path in cache.iterdir()) == ["cgroup.conf", "gres.conf", "slurm.conf"]
    host = SlotHost(bed, template="a100-sxm4-40gb*2")
    (bed.etc / "gres.conf").write_text("")
    refused = host.run("slurm", "apply", *host.how, "--slots", *LAYOUT)
    assert refused.code == 20
    assert f"no slot board: slurmd of n1 runs without files of its own ({cache})" in refused.err
    assert "next     aliquot slurm apply --node-name n1 --jobs wait" in refused.err

    # slurmd would replace what another change writes there.
    (cache / "gres.conf").write_text("")
    lost = host.run("slurm", "apply", *host.how, "--conf-dir", str(cache), *LAYOUT)
    assert lost.code == 2
    assert f"{cache} has copies of slurmctld's files: slurmd of n1 replaces them when it starts" in lost.err
    assert "next     aliquot slurm apply --node-name n1 --conf-dir DIR" in lost.err
    assert host.counts() == {}
