"""The manifests as people apply them."""

from __future__ import annotations

import pytest
import yaml

from aliquot.kubernetes.manifests import webhooks
from aliquot.kubernetes.manifests.values import IMAGE, Values
from support.cluster import Cluster
from support.kubevirt.definitions import definitions
from system.kubernetes.agent_rights import DEPLOY, NS, ROOT, manifests, path_of
from system.kubernetes.vm_rights import API, KUBEVIRT
from system.kubernetes.vm_rights import item as made

MACHINES = ROOT / "kubernetes-machines"

SERVER_SIDE = ("--server-side", "--validate=strict")


@pytest.mark.parametrize("how", [(), SERVER_SIDE], ids=["client-side", "server-side"])
def test_kubectl_apply_takes_the_folder_twice(cluster: Cluster, how: tuple[str, ...]) -> None:
    first = cluster.kubectl("apply", *how, "-f", str(DEPLOY))
    assert first.count("\n") == len(manifests())
    versions = {path_of(item): cluster.get(path_of(item))["metadata"]["resourceVersion"] for item in manifests()}
    cluster.kubectl("apply", *how, "-f", str(DEPLOY))
    again = {path: cluster.get(path)["metadata"]["resourceVersion"] for path in versions}
    assert again == versions


@pytest.mark.parametrize("how", [(), SERVER_SIDE], ids=["client-side", "server-side"])
def test_the_folders_for_containers_and_machines_go_together(cluster: Cluster, how: tuple[str, ...]) -> None:
    # Applied one after the other, twice, nothing is written the second time: common objects are the same.
    crds = ("apply", *how, "-f", str(ROOT / "crds"))
    folders = ("apply", *how, "-f", str(DEPLOY), "-f", str(MACHINES))
    cluster.kubectl(*crds)
    cluster.kubectl(*folders)
    items = manifests() + manifests(MACHINES)
    versions = {path_of(item): cluster.get(path_of(item))["metadata"]["resourceVersion"] for item in items}
    cluster.kubectl(*crds)
    cluster.kubectl(*folders)
    assert {path: cluster.get(path)["metadata"]["resourceVersion"] for path in versions} == versions


def test_harvesters_kinds_cannot_be_changed_while_no_webhook_answers_and_machines_can(cluster: Cluster) -> None:
    # failurePolicy Fail for requests, Ignore for running VMs. Without webhook configurations, no write waits.
    cluster.apply(definitions())
    cluster.kubectl("apply", "-f", str(ROOT / "crds"))
    cluster.kubectl("apply", "-f", str(MACHINES))
    request = made("sriovgpudevices")
    assert cluster.request("POST", f"{API}/sriovgpudevices?dryRun=All", request).status == 201
    for each in webhooks.configurations(Values()):
        cluster.apply(each)
    devices = {"gpus": [{"name": "one", "deviceName": "nvidia.com/NVIDIA_A2-4Q"}]}
    spec = {"running": False, "template": {"spec": {"domain": {"devices": devices}}}}
    machine = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm"}, "spec": spec}
    folder = f"{KUBEVIRT}/namespaces/default/virtualmachines"
    cluster.wait(
        lambda: cluster.request("POST", f"{API}/sriovgpudevices?dryRun=All", request).status == 500, "webhooks"
    )
    answer = cluster.request("POST", f"{API}/sriovgpudevices", request)
    assert answer.status == 500
    assert 'failed calling webhook "devices.aliquot.dev"' in answer.body["message"]
    assert cluster.request("POST", folder, machine).status == 201


def test_no_manifest_names_an_image_that_no_node_has() -> None:
    # The placeholder is not the name of an image: repositories are in lower case.
    images = [
        container["image"]
        for folder in ("kubernetes", "kubernetes-machines", "kubernetes-beside-operator")
        for path in sorted((ROOT / folder).rglob("*.yaml"))
        for item in yaml.safe_load_all(path.read_text())
        for container in (item or {}).get("spec", {}).get("template", {}).get("spec", {}).get("containers", ())
    ]
    assert set(images) == {IMAGE}
    assert IMAGE.lower() != IMAGE


def test_the_files_of_a_folder_can_be_joined_and_keep_the_image(cluster: Cluster) -> None:
    # As the pages do it, with sed. Applied again with another image, nothing else is written.
    joined = "".join(path.read_text() for path in sorted(DEPLOY.glob("*.yaml")))
    for tag in ("1", "2"):
        given = joined.replace(f"image: {IMAGE}", f"image: registry.example/aliquot:{tag}")
        cluster.kubectl("apply", "-f", "-", stdin=given)
        spec = cluster.get(f"/apis/apps/v1/namespaces/{NS}/deployments/aliquot-controller")["spec"]
        assert spec["template"]["spec"]["containers"][0]["image"] == f"registry.example/aliquot:{tag}"
    assert len([item for item in yaml.safe_load_all(joined) if item]) == len(manifests())


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


def test_kubectl_delete_takes_all_of_it_unavailable(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", str(DEPLOY))
    cluster.kubectl("delete", "--wait=false", "-f", str(DEPLOY))
    for item in manifests():
        if item["kind"] not in ("Namespace",):
            status = cluster.request("GET", path_of(item)).status
            assert status == 404, path_of(item)
