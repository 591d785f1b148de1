"""The claim agent's slices on a whole API server, in the shape that its version accepts."""

from __future__ import annotations

import asyncio

import pytest

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.dra.agent.slice_publisher import SlicePublisher
from support.cluster import Cluster
from support.standin import discovery
from unit.kubernetes.dra.agent.slices import choice
from unit.kubernetes.dra.model.nodes import NAMING

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.mark.parametrize("minor", ["34+", "36"])
def test_devices_and_counters_share_a_slice_only_before_kubernetes_1_35(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, minor: str
) -> None:
    """The test sets the stand-in's version. A real server answers with its own."""
    monkeypatch.setitem(discovery.VERSION, "minor", minor)

    async def publish() -> tuple[int, int]:
        async with Api.connect(str(cluster.kubeconfig("team", None))) as api:
            node = await api.create(Node, {"metadata": {"name": "n1"}})
            await SlicePublisher(api, "n1", NAMING, lambda: None).publish(choice(0, 1), (), node)
            return (await api.version()).release

    version = asyncio.run(publish())
    specs = [each["spec"] for each in cluster.get(SLICES)["items"]]
    together = [bool(spec.get("devices") and spec.get("sharedCounters")) for spec in specs]
    assert together == ([True] if version < (1, 35) else [False, False])
