"""The source for a cluster fulfils the contract of sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.dashboard.change_requests import PartitionGpu, UseConfig
from aliquot.dashboard.cluster.connect import open_cluster
from support.agents import Agent, MakeAgent
from support.cluster import StandinCluster
from system.dashboard.clusterbed import NS
from system.dashboard.source_contract import Bed, Loop, SourceContract
from system.kubernetes.conftest import _agents, standin_cluster

__all__ = ["standin_cluster"]


class ClusterBed(Bed):
    """A cluster with one node of two GPUs, whose agent reads them every five seconds."""

    def __init__(self, loop: Loop, agent: Agent) -> None:
        super().__init__(loop)
        self.agent = agent
        self.node = agent.name
        self.gpu = str(agent.sim.show()["gpus"][0]["pci"])
        self.good = UseConfig(nodes=(self.node,), config="all-1g.5gb")
        self.other = UseConfig(nodes=(self.node,), config="all-balanced")
        self.impossible = PartitionGpu(node=self.node, gpu=self.gpu, mig="4g.20gb*2")
        config = str(agent.cluster.kubeconfig(NS))
        self.source, _ = loop.call(lambda: open_cluster(config, namespace=NS, own_credentials=True))

    def disturb(self) -> None:
        """Change MIG mode manually on a node without a requested config."""
        self.agent.sim.set_mode(1, True)

    def changes(self) -> int:
        return len(self.agent.writes())


@pytest.fixture
def make_agent(standin_cluster: StandinCluster, tmp_path: Path) -> Iterator[MakeAgent]:
    yield from _agents(standin_cluster, tmp_path)


@pytest.fixture
def bed(make_agent: MakeAgent) -> Iterator[ClusterBed]:
    agent = make_agent("a100-sxm4-40gb*2")
    agent.settings("times: {check-seconds: 5}")
    agent.start()
    loop = Loop()
    made = ClusterBed(loop, agent)
    loop.start(made.source.run())
    made.wait(
        lambda: made.node in made.source.fleet.by_name and made.make_observation().inventory is not None, "the node"
    )
    yield made
    loop.close(made.source.aclose)


class TestCluster(SourceContract):
    """Contract tests for the cluster source."""
