"""``cluster``: every test that takes it runs on the stand-in and on a real kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.agents import MIXED, NAMESPACE, Agent, MakeAgent
from support.cluster import Cluster, RealCluster, StandinCluster, why_not_real
from support.cluster_components import component, controller_manager, scheduler
from support.cluster_real import RealServer, assets
from support.deployed import AGENT
from support.devicesagent import DevicesAgent, MakeDevices, install


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Run etcd and kube-apiserver for this session."""
    reason, binaries = why_not_real(), assets()
    if reason or binaries is None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("apiserver")
    server = RealServer(folder, binaries)
    try:
        ready = RealCluster(server, folder)
        ready.wait_ready()
        ready.hang_up()
        yield server
    finally:
        server.close()


@pytest.fixture
def standin_cluster(tmp_path: Path) -> Iterator[StandinCluster]:
    """Provide only the stand-in, for tests of its own switches."""
    cluster = StandinCluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def real_cluster(real_server: RealServer, tmp_path: Path) -> Iterator[RealCluster]:
    """Provide only the real server."""
    cluster = RealCluster(real_server, tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def scheduled_cluster(real_cluster: RealCluster) -> Iterator[RealCluster]:
    """Provide the real server with kube-scheduler and the controllers of dynamic resource allocation."""
    programs = {name: component(name) for name in ("kube-scheduler", "kube-controller-manager")}
    if missing := [name for name, program in programs.items() if program is None]:
        pytest.skip(f"no {' and no '.join(missing)} beside kube-apiserver")
    with (
        scheduler(real_cluster, programs["kube-scheduler"] or Path()),
        controller_manager(real_cluster, programs["kube-controller-manager"] or Path()),
    ):
        yield real_cluster


@pytest.fixture(params=["standin"] if why_not_real() else ["standin", "real"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Provide either server, empty. If the real one is missing, the end of the run reports it once."""
    found: Cluster = request.getfixturevalue(f"{request.param}_cluster")
    return found


@pytest.fixture
def make_agent(cluster: Cluster, tmp_path: Path) -> Iterator[MakeAgent]:
    """Build nodes with simulated GPUs and real agents, in either cluster, whose administrator chose strategy mixed."""
    yield from _agents(cluster, tmp_path)


def _agents(cluster: Cluster, tmp_path: Path) -> Iterator[MakeAgent]:
    cluster.namespace(NAMESPACE)
    made: list[Agent] = []

    def make(
        template: str, *, labels: Mapping[str, str] | None = None, latency: str = "none", manifest: str = AGENT
    ) -> Agent:
        name = f"node-{len(made)}"
        made.append(Agent(cluster, tmp_path, name, template, labels=labels, latency=latency, manifest=manifest))
        made[-1].environment |= MIXED
        return made[-1]

    yield make
    for agent in made:
        agent.close()


@pytest.fixture
def only_standin(standin_cluster: StandinCluster, tmp_path: Path) -> Iterator[MakeAgent]:
    """Build ``make_agent`` only on the stand-in."""
    yield from _agents(standin_cluster, tmp_path)


@pytest.fixture
def make_devices(cluster: Cluster, tmp_path: Path) -> Iterator[MakeDevices]:
    """Build nodes with simulated GPUs and real devices agents, in either cluster, which has Harvester's kinds."""
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
    """Build ``make_devices`` only on the stand-in."""
    yield from _devices(standin_cluster, tmp_path)
