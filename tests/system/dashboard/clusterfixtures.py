"""Fixtures for tests of a cluster's dashboard. Tests import them by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents import MakeAgent
from support.cluster import Cluster
from system.dashboard.clusterbed import Bed, bed
from system.kubernetes.conftest import _agents, cluster, real_cluster, real_server, standin_cluster

__all__ = ["cluster", "make_agent", "page", "real_cluster", "real_server", "standin_cluster"]


@pytest.fixture
def make_agent(cluster: Cluster, tmp_path: Path) -> Iterator[MakeAgent]:
    yield from _agents(cluster, tmp_path)


@pytest.fixture
def page(cluster: Cluster) -> Iterator[Bed]:
    """Open a source with the administrator's kubeconfig."""
    with bed(cluster) as made:
        yield made
