"""A claim on the cluster: of several controllers one acts, and another one follows when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest
from msgspec.structs import replace

from aliquot.errors import LockedError
from aliquot.slurm.client.cluster_claim import LINE, RECORD, ClusterClaim, require_own
from aliquot.slurm.client.errors import NoNodeError, RefusedError
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.client.port import Slurm


class Cluster:
    """Slurm with at most the record of the claim, and hosts with clocks of their own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.record: SlurmNode | None = None
        self.refuses = False
        self.meanwhile: list[ClusterClaim] = []

    def nodes(self) -> tuple[SlurmNode, ...]:
        return () if self.record is None else (self.record,)

    def node(self, name: str) -> SlurmNode:
        if self.record is None:
            raise NoNodeError(f"{name} does not exist")
        return self.record

    def create(self, line: str) -> None:
        assert line == LINE
        if self.refuses:
            raise RefusedError("MaxNodeCount is reached")
        self.record = SlurmNode(RECORD, frozenset({"FUTURE"}))

    def describe(self, name: str, words: Mapping[str, str]) -> None:
        assert name == RECORD
        assert self.record is not None
        self.record = replace(self.record, comment=words["comment"])

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for other in self.meanwhile:
            other._write(self.record, self.now)
        self.meanwhile.clear()

    def claim(self, owner: str) -> ClusterClaim:
        slurm = cast(Slurm, self)
        return ClusterClaim(slurm, owner, 60.0, sleep=self.sleep, monotonic=lambda: self.now)


def test_one_holds_the_claim_and_renews_it_and_another_waits_for_its_end() -> None:
    cluster = Cluster()
    mine, other = cluster.claim("a:/history"), cluster.claim("b:/history")
    assert mine.hold(cluster.nodes(), cluster.now) == ""
    for _ in range(20):
        cluster.now += 15
        assert other.hold(cluster.nodes(), cluster.now) == "a:/history"
        assert mine.hold(cluster.nodes(), cluster.now) == mine.verify() == ""
    with pytest.raises(LockedError, match="a:/history is the Slurm controller of this cluster"):
        require_own(other.hold(cluster.nodes(), cluster.now))
    mine.release()
    assert other.hold(cluster.nodes(), cluster.now) == ""
    assert mine.verify() == mine.hold(cluster.nodes(), cluster.now) == "b:/history"
    mine.release()
    assert other.verify() == "", "only the owner gives a claim up"


def test_a_killed_controller_is_followed_at_once_on_its_host_and_elsewhere_after_the_lifetime() -> None:
    cluster = Cluster()
    assert cluster.claim("a:/history").hold(cluster.nodes(), cluster.now) == ""
    other = cluster.claim("b:/history")
    assert other.hold(cluster.nodes(), cluster.now) == "a:/history"
    assert cluster.claim("a:/history").hold(cluster.nodes(), cluster.now) == ""
    cluster.now += 59
    assert other.hold(cluster.nodes(), cluster.now) == "a:/history"
    cluster.now += 61
    assert other.hold(cluster.nodes(), cluster.now) == ""


@pytest.mark.parametrize("skew", [-7200.0, -30.0, 30.0, 7200.0])
def test_a_clock_that_is_wrong_does_not_make_two_controllers_act(skew: float) -> None:
    cluster = Cluster()
    mine, other = cluster.claim("a:/history"), cluster.claim("b:/history")
    for _ in range(40):
        acts = []
        for claim, now in ((mine, cluster.now), (other, cluster.now + skew)):
            if not claim.hold(cluster.nodes(), now) and not claim.verify():
                acts.append(claim)
        assert sum(not claim.verify() for claim in acts) == 1, "the one that acts reads its claim before each change"
        cluster.now += 10
    assert len(acts) == 1


def test_of_two_that_take_a_free_claim_at_once_one_has_it() -> None:
    cluster = Cluster()
    mine, other = cluster.claim("a:/history"), cluster.claim("b:/history")
    cluster.meanwhile.append(other)
    assert mine.hold(cluster.nodes(), cluster.now) == "b:/history"
    assert other.verify() == ""


def test_where_slurm_stores_no_claim_the_reason_is_known_and_the_controller_acts() -> None:
    cluster = Cluster()
    cluster.refuses = True
    claim = cluster.claim("a:/history")
    assert claim.hold(cluster.nodes(), cluster.now) == claim.verify() == ""
    assert claim.problem == "MaxNodeCount is reached"
    cluster.refuses = False
    assert claim.hold(cluster.nodes(), cluster.now) == claim.problem == ""
