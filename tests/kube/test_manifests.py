"""The manifests as people apply them."""

from __future__ import annotations

import pytest

from cluster import Cluster
from kube.rights_world import DEPLOY, NS, manifests, path_of

SERVER_SIDE = ("--server-side", "--validate=strict")


@pytest.mark.parametrize("how", [(), SERVER_SIDE], ids=["client-side", "server-side"])
def test_kubectl_apply_takes_the_folder_twice(cluster: Cluster, how: tuple[str, ...]) -> None:
    first = cluster.kubectl("apply", *how, "-f", str(DEPLOY))
    assert first.count("\n") == len(manifests())
    versions = {path_of(item): cluster.get(path_of(item))["metadata"]["resourceVersion"] for item in manifests()}
    cluster.kubectl("apply", *how, "-f", str(DEPLOY))
    again = {path: cluster.get(path)["metadata"]["resourceVersion"] for path in versions}
    assert again == versions


def test_kubectl_finds_the_pods_by_their_old_names(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", str(DEPLOY))
    daemon_set = cluster.get(f"/apis/apps/v1/namespaces/{NS}/daemonsets/nvidia-mig-manager")
    template = daemon_set["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "nvidia-mig-manager-x", "namespace": NS, "labels": template["metadata"]["labels"]},
        "spec": template["spec"] | {"nodeName": "gpu-1"},
    }
    pod["spec"].pop("priorityClassName")
    cluster.apply(pod, namespace=NS)
    found = cluster.kubectl(
        "get", "pods", "-n", NS, "-l", "app=nvidia-mig-manager", "-o", "jsonpath={.items[*].spec.containers[*].name}"
    )
    assert found == "nvidia-mig-manager"


def test_kubectl_delete_takes_all_of_it_away(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", str(DEPLOY))
    cluster.kubectl("delete", "--wait=false", "-f", str(DEPLOY))
    for item in manifests():
        if item["kind"] not in ("Namespace",):
            status = cluster.request("GET", path_of(item)).status
            assert status == 404, path_of(item)
