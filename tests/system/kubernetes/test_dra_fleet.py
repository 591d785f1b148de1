"""A real kube-scheduler never over-commits a fleet whose slices follow what is allocated."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aliquot.kubernetes.dra.model.naming import NVIDIA_DRIVER, DriverNaming
from support.cluster import RealCluster
from support.draallocator import allocated_devices
from support.drafleet import FleetNode, classes
from support.factory import inventory
from support.selection import dice

JSON = dict[str, Any]
RESOURCES = "/apis/resource.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
SIZE = {"cpu": "64", "memory": "256Gi", "pods": "110"}
PROFILES = ("1g.5gb", "1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")


class RealFleet:
    """Nodes on the real server whose slices are written again when allocations change."""

    def __init__(self, cluster: RealCluster, nodes: list[FleetNode]) -> None:
        self.cluster, self.nodes = cluster, {node.pool: node for node in nodes}
        for node in nodes:
            cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": node.name}})
            status = {"allocatable": SIZE, "capacity": SIZE, "conditions": [{"type": "Ready", "status": "True"}]}
            cluster.must("PATCH", f"/api/v1/nodes/{node.name}/status", {"status": status})
            node.publish((), datetime.now(UTC))
            for one in node.published:
                cluster.must("POST", f"{RESOURCES}/resourceslices", one)
        for one in classes(nodes).values():
            cluster.must("POST", f"{RESOURCES}/deviceclasses", one)

    def allocated(self) -> dict[str, list[str]]:
        """Return the devices that claims have, by pool."""
        found: dict[str, list[str]] = {pool: [] for pool in self.nodes}
        for _, pool, device in allocated_devices(self.cluster.get(f"{RESOURCES}/resourceclaims")["items"]):
            found[pool].append(device)
        return found

    def publish(self, allocated: dict[str, list[str]]) -> None:
        """Write the slices that differ, each in one request."""
        for pool, node in self.nodes.items():
            before = {one["metadata"]["name"]: one for one in node.published}
            node.publish(allocated[pool], datetime.now(UTC))
            for one in node.published:
                if one != before[one["metadata"]["name"]]:
                    path = f"{RESOURCES}/resourceslices/{one['metadata']['name']}"
                    self.cluster.must("PUT", path, {**self.cluster.get(path), "spec": one["spec"]})

    def create(self, name: str, profile: str) -> None:
        """Create a pod that wants an extended resource."""
        resources = {"limits": {f"nvidia.com/mig-{profile}": "1"}}
        spec = {"containers": [{"name": "c", "image": "none", "resources": resources}]}
        self.cluster.must("POST", PODS, {"metadata": {"name": name}, "spec": spec})


@pytest.mark.long(about=["src/aliquot/kubernetes/dra/model"])
def test_a_fleet_of_104_gpus_is_never_over_committed(scheduled_cluster: RealCluster) -> None:
    random = dice("real dra fleet")
    naming = DriverNaming(NVIDIA_DRIVER)
    nodes = [FleetNode(f"n{n:02}", inventory("a100-sxm4-40gb*8", enabled=True), naming) for n in range(13)]
    fleet = RealFleet(scheduled_cluster, nodes)
    most = 0
    for burst in range(16):
        for number in range(20):
            fleet.create(f"p{burst}-{number}", random.choice(PROFILES))
        scheduled_cluster.pause(0.5)
        allocated = fleet.allocated()
        assert [text for pool, node in fleet.nodes.items() for text in node.illegal(allocated[pool])] == []
        most = max(most, sum(map(len, allocated.values())))
        fleet.publish(allocated)
        pods = scheduled_cluster.get(PODS)["items"]
        for pod in random.sample(pods, len(pods) // 8):
            scheduled_cluster.must("DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
    scheduled_cluster.pause(3)
    allocated = fleet.allocated()
    assert [text for pool, node in fleet.nodes.items() for text in node.illegal(allocated[pool])] == []
    assert most >= 100
