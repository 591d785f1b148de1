"""``aliquot slurm types`` on real clusters: each release, each transport, with the rights of an ordinary user."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.slurm.client.port import Slurm
from aliquot.slurm.types.offers import ClusterView, TypeOffer, offered_types
from aliquot.slurm.types.on_demand import on_demand_types

from .bed import Bed, Ran, until
from .transports import Cluster, unprivileged

SMALL, BIG, WHOLE = "a100_1g.5gb", "a100_3g.20gb", "a100"
PLACEHOLDER = "aliquot-layouts-0123abcd-0"


@pytest.fixture
def busy(cluster: Cluster) -> Iterator[Cluster]:
    """Yield a cluster with running jobs, with and without a time limit, and with a placeholder of the controller."""
    ready = f"NodeName={PLACEHOLDER} CPUs=16 RealMemory=8000 Gres=gpu:{BIG}:4 Feature=mig State=FUTURE"
    cluster.bed.ok("scontrol", "create", *ready.split())
    cluster.bed.ok("scontrol", "update", f"nodename={PLACEHOLDER}", "state=drain", "reason=aliquot: placeholder")
    jobs = [
        cluster.running("-w", "n1", f"--gres=gpu:{SMALL}:2", "--mem=10", "--time=10"),
        cluster.running("-w", "dyn1", f"--gres=gpu:{SMALL}:1,gpu:{WHOLE}:1", "--mem=10"),
    ]
    yield cluster
    cluster.cancel(*jobs)
    cluster.bed.ok("scontrol", "delete", f"nodename={PLACEHOLDER}")


def offers(slurm: Slurm) -> dict[str, TypeOffer]:
    view = ClusterView(slurm.nodes(), slurm.jobs(holding=True), slurm.partitions(), time.time())
    return {each.type: each for each in offered_types(view, on_demand_types(view.nodes, None))}


def test_every_transport_offers_the_same(busy: Cluster, slurm: Slurm) -> None:
    found = offers(slurm)
    assert list(found) == [WHOLE, BIG, SMALL]
    small, big, whole = found[SMALL], found[BIG], found[WHOLE]
    assert (small.total, small.free, small.later) == (14, 11, 1)
    assert [each.count for each in small.soon] == [2]
    assert 0 < small.soon[0].at - time.time() <= 600
    assert (whole.total, whole.free, whole.soon, whole.later) == (2, 1, (), 1)
    # cl1 is powered down and would start; the placeholder promises more of its type on nodes of its partitions
    assert (big.total, big.free, big.on_demand) == (2, 2, 4)
    assert [(p.name, p.up, p.total, p.on_demand) for p in big.partitions] == [
        ("clouds", True, 2, 0),
        ("all", True, 0, 4),
        ("off", False, 2, 4),
    ]
    assert small.facts.memory_mib == 4864


def as_user(bed: Bed, *words: str, env: dict[str, str] | None = None) -> Ran:
    """Run ``aliquot slurm`` with Slurm's programs in the name of a user without rights."""
    return bed.aliquot("slurm", *words, env={"PATH": f"{unprivileged(bed)}:{bed.env['PATH']}", **(env or {})})


def test_an_ordinary_user_needs_no_rights(busy: Cluster) -> None:
    by_root = busy.bed.aliquot("slurm", "types", "-o", "json")
    assert by_root.code == 0, by_root
    rest = {"ALIQUOT_SLURM": busy.rest.url, "SLURM_JWT": busy.bed.token("nobody")}
    for env in ({}, rest):
        by_user = as_user(busy.bed, "types", "-o", "json", env=env)
        assert by_user.code == 0, by_user
        assert visible(by_user) == visible(by_root), env


def visible(done: Ran) -> list[dict[str, Any]]:
    """Return the types without the hidden partition, which slurmrestd shows only to operators."""
    found: list[dict[str, Any]] = json.loads(done.out)["types"]
    return [{**each, "partitions": [p for p in each["partitions"] if p["name"] != "off"]} for each in found]


def test_the_example_is_accepted_by_slurm_and_runs(busy: Cluster) -> None:
    done = as_user(busy.bed, "types", "1G.5gb", "-o", "json")
    (offer,) = json.loads(done.out)["types"]
    assert offer["request"] == f"--gres=gpu:{SMALL}:1"
    words = [word for word in shlex.split(offer["example"]) if word not in ("sbatch", "job.sh")]
    job = busy.running(*words, "--mem=10")
    busy.cancel(job)


def test_a_near_miss_is_answered_with_the_request_to_type(busy: Cluster) -> None:
    done = as_user(busy.bed, "types", "3g.40gb")
    assert (done.code, done.out) == (20, "")
    assert "no type 3g.40gb can be requested here" in done.err
    first = next(line.split() for line in done.err.splitlines() if "near " in line)
    assert first[:2] == ["near", f"--gres=gpu:{BIG}:1"]
    assert busy.bed.submit("true", "--gres=gpu:a100_3g.40gb:1").code != 0, "Slurm itself only refuses it"


def test_without_slurmctld_it_says_so(cluster: Cluster) -> None:
    cluster.bed.stop("slurmctld")
    try:
        done = as_user(cluster.bed, "types")
        assert (done.code, done.out) == (20, "")
        assert "slurmctld does not answer" in done.err
    finally:
        cluster.bed.controller()
        until(lambda: all(cluster.bed.registered(n) for n in ("n1", "dyn1")), "the nodes do not come back")
