"""``cluster``: every test that takes it runs on the stand-in and on a real kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import Cluster, RealCluster, StandinCluster, why_not_real
from cluster_real import RealServer, assets


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


@pytest.fixture(params=["standin", "real"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Either server, empty."""
    found: Cluster = request.getfixturevalue(f"{request.param}_cluster")
    return found
