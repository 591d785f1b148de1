"""A real kube-scheduler never over-commits a fleet whose slices follow what is allocated."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aliquot.kubernetes.dra.model.naming import NVIDIA_DRIVER, DriverNaming
from support.cluster import RealCluster
from support.cluster_components import component, controller_manager, scheduler
from support.draallocator import allocated_devices
from support.draextender import extender, scheduler_settings
from support.drafleet import FleetNode, classes
from support.factory import inventory
from support.selection import dice
from system.kubernetes.agent_rights import CONTROLLER, DEPLOY, NS, manifests

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

    def create(self, name: str, profile: str, cpu: str = "0") -> None:
        """Create a pod that wants an extended resource."""
        resources = {"limits": {f"nvidia.com/mig-{profile}": "1"}, "requests": {"cpu": cpu}}
        spec = {"containers": [{"name": "c", "image": "none", "resources": resources}]}
        self.cluster.must("POST", PODS, {"metadata": {"name": name}, "spec": spec})

    def placed(self, name: str, profile: str = "", template: str = "") -> str:
        """Create a pod that fills an eighth of a node's CPUs, return its node, and publish what is left."""
        if template:
            container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "8"}}}
            spec = {"containers": [container], "resourceClaims": [{"name": "g", "resourceClaimTemplateName": template}]}
            self.cluster.must("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        else:
            self.create(name, profile, "8")
        self.cluster.wait(lambda: self.cluster.get(f"{PODS}/{name}")["spec"].get("nodeName"), "the node", 30)
        self.publish(self.allocated())
        return str(self.cluster.get(f"{PODS}/{name}")["spec"]["nodeName"])


def test_the_extender_chooses_the_node_with_the_rights_of_the_manifests(real_cluster: RealCluster) -> None:
    """Alone, the scheduler prefers the emptiest node, and no 4g and 3g would be on one GPU."""
    programs = [component(name) for name in ("kube-scheduler", "kube-controller-manager")]
    if None in programs:
        pytest.skip("no kube-scheduler and kube-controller-manager beside kube-apiserver")
    real_cluster.apply([*manifests(), *manifests(DEPLOY / "optional/extender.yaml")])
    nodes = [FleetNode(f"n{n}", inventory("a100-sxm4-40gb", enabled=True), DriverNaming()) for n in range(3)]
    fleet = RealFleet(real_cluster, nodes)
    request = {"name": "gpu", "exactly": {"deviceClassName": "mig-3g.20gb.aliquot.dev"}}
    template = {"metadata": {"name": "half"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    real_cluster.must("POST", f"{RESOURCES}/namespaces/default/resourceclaimtemplates", template)
    with (
        extender(real_cluster.kubeconfig(NS, CONTROLLER)) as serving,
        scheduler(real_cluster, programs[0] or Path(), scheduler_settings(serving.server.port)),
        controller_manager(real_cluster, programs[1] or Path()),
    ):
        real_cluster.wait(lambda: serving.fleet.ready, "the extender", 30)
        found = [(fleet.placed(f"p{n}", "4g.20gb"), fleet.placed(f"q{n}", template="half")) for n in range(3)]
    assert [first == second for first, second in found] == [True] * 3
    assert len(set(found)) == 3


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
