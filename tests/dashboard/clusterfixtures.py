"""What tests of a cluster's page begin with; they import these by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import MakeAgent
from cluster import Cluster
from dashboard.clusterbed import Bed, bed
from kube.conftest import _agents, cluster, real_cluster, real_server, standin_cluster

__all__ = ["cluster", "make_agent", "page", "real_cluster", "real_server", "standin_cluster"]


@pytest.fixture
def make_agent(cluster: Cluster, tmp_path: Path) -> Iterator[MakeAgent]:
    yield from _agents(cluster, tmp_path)


@pytest.fixture
def page(cluster: Cluster) -> Iterator[Bed]:
    """The administrator's, at home."""
    with bed(cluster) as made:
        yield made
