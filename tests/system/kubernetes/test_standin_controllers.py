"""The simulated controllers, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from support.cluster import Cluster
from support.controllers import settle

PODS = "/api/v1/namespaces/default/pods"
SETS = "/apis/apps/v1/namespaces/default/daemonsets"


def daemon_set(**selector: str) -> dict[str, Any]:
    spec = {"nodeSelector": selector, "containers": [{"name": "main", "image": "plugin:1"}]}
    template = {"metadata": {"labels": {"app": "plugin"}}, "spec": spec}
    body = {"selector": {"matchLabels": {"app": "plugin"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "plugin"}, "spec": body}


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def where(cluster: Cluster) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in cluster.get(PODS)["items"])


def test_daemon_sets_follow_node_labels(cluster: Cluster) -> None:
    cluster.apply([node("n1", deploy="true"), node("n2", deploy="true"), node("n3"), daemon_set(deploy="true")])
    settle(cluster)
    assert where(cluster) == ["n1", "n2"]
    assert cluster.get(f"{SETS}/plugin")["status"]["numberReady"] == 2
    cluster.must("PATCH", "/api/v1/nodes/n2", {"metadata": {"labels": {"deploy": "paused-for-mig-change"}}})
    settle(cluster)
    assert where(cluster) == ["n1"]


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_pods_go_with_their_owner(cluster: Cluster, policy: str) -> None:
    cluster.apply([node("n1"), daemon_set()])
    settle(cluster)
    cluster.must("DELETE", f"{SETS}/plugin", {"propagationPolicy": policy})
    settle(cluster)
    assert where(cluster) == []
    assert cluster.get(SETS)["items"] == []


def test_budget_lets_one_pod_go_at_a_time(cluster: Cluster) -> None:
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "plugin"}}}
    cluster.apply([node("n1"), node("n2"), daemon_set(), {**budget, "spec": spec}])
    settle(cluster)
    first, second = (pod["metadata"]["name"] for pod in cluster.get(PODS)["items"])

    def evict(name: str) -> int:
        return cluster.request("POST", f"{PODS}/{name}/eviction", {"metadata": {"name": name}}).status

    assert (evict(first), evict(second)) == (201, 429)
    settle(cluster)
    assert evict(second) == 201
