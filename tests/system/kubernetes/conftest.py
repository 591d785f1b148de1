"""``cluster``: every test that takes it runs on the stand-in and on a real kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.agents import MIXED, NAMESPACE, Agent, MakeAgent
from support.cluster import Cluster, RealCluster, StandinCluster, why_not_real
from support.cluster_real import RealServer, assets
from support.devicesagent import DevicesAgent, MakeDevices, install


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """etcd and kube-apiserver for this session."""
    reason, binaries = why_not_real(), assets()
    if reason or binaries is None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("apiserver")
    server = RealServer(folder, binaries)
    try:
        RealCluster(server, folder).wait_ready()
        yield server
    finally:
        server.close()


@pytest.fixture
def standin_cluster(tmp_path: Path) -> Iterator[StandinCluster]:
    """The stand-in alone, for tests of its own switches."""
    cluster = StandinCluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def real_cluster(real_server: RealServer, tmp_path: Path) -> Iterator[RealCluster]:
    """The real server alone."""
    cluster = RealCluster(real_server, tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture(params=["standin"] if why_not_real() else ["standin", "real"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Either server, empty. Where there is no real one, the end of the run says so, once."""
    found: Cluster = request.getfixturevalue(f"{request.param}_cluster")
    return found


@pytest.fixture
def make_agent(cluster: Cluster, tmp_path: Path) -> Iterator[MakeAgent]:
    """Nodes with simulated GPUs and real agents, in either cluster, whose administrator chose the strategy mixed."""
    yield from _agents(cluster, tmp_path)


def _agents(cluster: Cluster, tmp_path: Path) -> Iterator[MakeAgent]:
    cluster.namespace(NAMESPACE)
    made: list[Agent] = []

    def make(template: str, *, labels: Mapping[str, str] | None = None, latency: str = "none") -> Agent:
        made.append(Agent(cluster, tmp_path, f"node-{len(made)}", template, labels=labels, latency=latency))
        made[-1].environment |= MIXED
        return made[-1]

    yield make
    for agent in made:
        agent.close()


@pytest.fixture
def only_standin(standin_cluster: StandinCluster, tmp_path: Path) -> Iterator[MakeAgent]:
    """``make_agent`` in the stand-in alone."""
    yield from _agents(standin_cluster, tmp_path)


@pytest.fixture
def make_devices(cluster: Cluster, tmp_path: Path) -> Iterator[MakeDevices]:
    """Nodes with simulated GPUs and real devices agents, in either cluster, which has Harvester's kinds."""
    yield from _devices(cluster, tmp_path)


def _devices(cluster: Cluster, tmp_path: Path) -> Iterator[MakeDevices]:
    install(cluster)
    made: list[DevicesAgent] = []

    def make(template: str) -> DevicesAgent:
        made.append(DevicesAgent(cluster, tmp_path, f"node-{len(made)}", template, labels={}))
        return made[-1]

    yield make
    for agent in made:
        agent.close()


@pytest.fixture
def devices_on_standin(standin_cluster: StandinCluster, tmp_path: Path) -> Iterator[MakeDevices]:
    """``make_devices`` in the stand-in alone."""
    yield from _devices(standin_cluster, tmp_path)
