"""``cluster`` as in the Kubernetes tests, and ``make_site``: clusters with all that VMs with GPUs need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from support.cluster import Cluster, StandinCluster, kubectl_minor
from system.harvester.site import Site
from system.kubernetes.conftest import cluster, real_cluster, real_server, standin_cluster

__all__ = ["cluster", "real_cluster", "real_server", "standin_cluster"]


class MakeSite(Protocol):
    def __call__(self, nodes: Mapping[str, str], *, webhooks: bool = True, pods: bool = True) -> Site: ...


def _sites(cluster: Cluster, folder: Path) -> Iterator[MakeSite]:
    if kubectl_minor() < 27:
        pytest.skip("no kubectl 1.27 or later")
    made: list[Site] = []

    def make(nodes: Mapping[str, str], *, webhooks: bool = True, pods: bool = True) -> Site:
        made.append(Site(cluster, folder, nodes, webhooks=webhooks, pods=pods))
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture
def make_site(cluster: Cluster, tmp_path: Path) -> Iterator[MakeSite]:
    """Build sites on both API servers."""
    yield from _sites(cluster, tmp_path)


@pytest.fixture
def site_on_standin(standin_cluster: StandinCluster, tmp_path: Path) -> Iterator[MakeSite]:
    """Build sites on the stand-in, where the driver's programs run in its pod."""
    yield from _sites(standin_cluster, tmp_path)
