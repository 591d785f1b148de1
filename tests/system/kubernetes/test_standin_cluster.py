"""The fixtures themselves, and the core of the API, on both servers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.cluster import Cluster, StandinCluster, kubectl_minor

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"a": "b"}},
    "status": {"capacity": {"cpu": "4", "nvidia.com/gpu": 8}},
}


@pytest.mark.skipif(kubectl_minor() == 0, reason="no kubectl")
def test_kubectl_reads_and_labels_a_node(cluster: Cluster) -> None:
    cluster.apply(NODE)
    cluster.kubectl("label", "node", "n1", "nvidia.com/mig.config=all-1g.10gb")
    labels = json.loads(cluster.kubectl("get", "node", "n1", "-o", "json"))["metadata"]["labels"]
    assert labels["nvidia.com/mig.config"] == "all-1g.10gb"
    assert cluster.kubectl("get", "nodes").splitlines()[1].split()[:2] == ["n1", "Unknown"]


def test_a_kubeconfig_is_whole_while_it_is_written_again(standin_cluster: StandinCluster) -> None:
    # Of two agents that started at once, one read the empty file of the other.
    path = standin_cluster.kubeconfig()
    whole = path.read_text()
    seen: set[str] = set()
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(lambda: [standin_cluster.kubeconfig() for _ in range(300)])
        while not written.done():
            seen.add(path.read_text())
    assert seen <= {whole}
    assert path.stat().st_mode & 0o777 == 0o600


def test_stale_merge_patch_is_refused(cluster: Cluster) -> None:
    cluster.apply(NODE)
    version = cluster.get("/api/v1/nodes/n1")["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version, "labels": {"x": "1"}}}
    assert cluster.request("PATCH", "/api/v1/nodes/n1", patch).status == 200
    refused = cluster.request("PATCH", "/api/v1/nodes/n1", patch)
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")


def test_watch_reports_a_change(cluster: Cluster) -> None:
    cluster.apply(NODE)
    version = cluster.get("/api/v1/nodes")["metadata"]["resourceVersion"]
    connection = cluster.connection()
    path = f"/api/v1/nodes?watch=1&resourceVersion={version}&fieldSelector=metadata.name%3Dn1"
    connection.request("GET", path, headers={"Authorization": f"Bearer {cluster.token}"})
    answer = connection.getresponse()
    cluster.must("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"x": "1"}}})
    event = json.loads(answer.readline())
    connection.close()
    assert (event["type"], event["object"]["metadata"]["labels"]["x"]) == ("MODIFIED", "1")


def test_service_account_needs_a_role(cluster: Cluster) -> None:
    token = cluster.service_account_token("gpu", "agent")
    refused = cluster.request("GET", "/api/v1/nodes", token=token)
    assert refused.status == 403
    assert refused.body["message"] == (
        'nodes is forbidden: User "system:serviceaccount:gpu:agent" cannot list resource "nodes" in API group "" '
        "at the cluster scope"
    )
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "agent"}}
    role = {**rbac, "kind": "ClusterRole", "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]}
    binding = {
        **rbac,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "agent"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "gpu", "name": "agent"}],
    }
    cluster.apply([role, binding])
    cluster.wait(lambda: cluster.request("GET", "/api/v1/nodes", token=token).status == 200, "the role to count")


def test_expired_history(cluster: Cluster) -> None:
    cluster.apply(NODE)
    version = cluster.get("/api/v1/nodes")["metadata"]["resourceVersion"]
    cluster.must("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"x": "1"}}})
    cluster.expire()
    answer = cluster.request("GET", f"/api/v1/nodes?watch=1&resourceVersion={version}&timeoutSeconds=5")
    status = answer.body if answer.status == 410 else answer.body["object"]
    assert (status["code"], status["reason"]) == (410, "Expired")


@pytest.mark.parametrize("how", ["refuse", "hang"])
def test_unavailable_and_back(cluster: Cluster, how: str) -> None:
    cluster.apply(NODE)
    with cluster.unavailable(how), pytest.raises(OSError):
        cluster.request("GET", "/api/v1/nodes/n1", timeout_s=0.5)
    assert cluster.get("/api/v1/nodes/n1")["metadata"]["name"] == "n1"


def test_gone_after_a_test(cluster: Cluster) -> None:
    # The fixture starts empty, whichever test ran before.
    assert cluster.get("/api/v1/nodes")["items"] == []
