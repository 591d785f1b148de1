"""The first ``aliquot slurm apply`` on a node, typed wrongly: the node keeps its jobs, and the next command works."""

from __future__ import annotations

from .applying import WORDS, Host, dynamic, idle
from .bed import Bed, until
from .test_apply import HALVES, SEVEN


def cut(bed: Bed) -> Host:
    """Return an idle dynamic node with 14 small instances."""
    host = dynamic(bed)
    host.applied(*SEVEN, "--node-conf", WORDS)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    return host


def untouched(host: Host) -> None:
    """Assert that the node is as ``cut`` left it and takes jobs."""
    assert host.counts() == {"1g.5gb": 14}
    assert host.gres() == "gpu:a100_1g.5gb:14"
    assert "DRAIN" not in host.bed.state("n1")


def short(host: Host, *words: str) -> None:
    """Change the node with a command that repeats no option of the node, which must succeed."""
    done = host.run("slurm", "apply", "--node-name", "n1", *words, timeout=90)
    assert done.code == 0, done


def test_a_stop_command_that_stops_nothing_leaves_the_node_to_its_jobs(bed: Bed) -> None:
    host = cut(bed)
    began = bed.field("n1", "SlurmdStartTime")
    refused = host.apply(*HALVES, "--slurmd-stop", "pid=$(cat /run/no-such.pid 2>/dev/null) || exit 0; kill $pid")
    assert refused.code == 20, refused
    assert "--slurmd-stop ended, but slurmd of n1 still runs" in refused.err
    assert f"{bed.folder}/run/n1.pid" in refused.err
    untouched(host)
    assert bed.field("n1", "SlurmdStartTime") == began
    short(host, *HALVES)
    assert host.gres() == "gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:7"


def test_more_memory_than_the_host_has_is_refused_before_the_drain(bed: Bed) -> None:
    host = cut(bed)
    refused = host.apply(*HALVES, "--node-conf", "CPUs=2 RealMemory=99000000 Feature=mig")
    assert refused.code == 2, refused
    assert "RealMemory=99000000" in refused.err
    assert "slurmd -C" in refused.err
    assert "draining" not in refused.err
    untouched(host)
    short(host, *HALVES)


def test_other_hardware_is_registered_even_if_the_gpus_stay(bed: Bed) -> None:
    host = cut(bed)
    assert host.applied(*SEVEN, "--node-conf", "CPUs=2 RealMemory=900 Feature=mig")["status"] == "done"
    assert bed.field("n1", "RealMemory") == "900"
    assert host.applied(*SEVEN, "--node-conf", "CPUs=2 RealMemory=900 Feature=mig")["status"] == "nothing"
