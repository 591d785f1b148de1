"""Claims on the dashboard of a cluster: a real claim agent's slices, its pod, and the rights of the manifest."""

from __future__ import annotations

from aliquot.dashboard.change_requests import PartitionGpu, UseConfig
from aliquot.dashboard.claim_views import ClaimableProfile
from aliquot.dashboard.cluster.claims import UNPUBLISHED, ClusterClaims
from aliquot.kubernetes.client.errors import ForbiddenError
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.watch import FullList
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.manifests.rbac_dashboard import CHANGE_ROLE
from support.agents import NAMESPACE
from support.cluster import Cluster
from system.dashboard.clusterbed import Bed
from system.dashboard.test_cluster_rights import (
    admitted,
    cluster,
    make_agent,
    page,
    person,
    real_cluster,
    real_server,
    standin_cluster,
)
from system.kubernetes.test_dra_claims import API, DRIVER, HALF, Played, played

__all__ = ["cluster", "make_agent", "page", "played", "real_cluster", "real_server", "standin_cluster"]


def test_claims_and_what_is_left_follow_the_cluster(page: Bed, played: Played) -> None:
    source, node = page.source, played.agent.name
    played.start()
    page.until(lambda: source.claims(node).room, "the GPU of the node")
    assert source.claims().missing == ()
    claim = played.allocate("train", HALF)
    played.prepare(claim)
    page.until(lambda: source.claims().rows, "the claim")
    (row,) = source.claims().rows
    assert (row.namespace, row.claim, row.node, row.device, row.what) == (
        "default",
        "train",
        node,
        HALF,
        "3g.20gb at 4:4",
    )
    assert (row.product, row.problem) == ("NVIDIA A100-SXM4-40GB", "")
    blocked = ClaimableProfile("7g.40gb", 0, "claim default/train has room that it needs")
    page.until(lambda: blocked in source.claims(node).room[0].profiles, "the reason for 7g.40gb")
    assert source.claims("another").rows == ()
    played.agent.sim.inject_fault("lost", gpu=0)
    page.until(lambda: "fell off the bus" in source.claims().rows[0].problem, "the condition of the device")
    path = f"{API}/resourceslices"
    played.agent.kill()
    for each in played.slices():
        devices = [d for d in each["spec"].get("devices", ()) if d["name"] != HALF]
        played.agent.call(
            "PATCH",
            f"{path}/{each['metadata']['name']}",
            {"spec": {"devices": devices}},
            "application/merge-patch+json",
        )
    claims = f"{API}/namespaces/default/resourceclaims/train"
    played.agent.call("PATCH", f"{claims}/status", {"status": {"devices": None}}, "application/merge-patch+json")
    page.until(lambda: source.claims().rows[0].problem == UNPUBLISHED, "the device that is not published")


def test_a_node_of_the_claim_agent_is_up_to_date_until_its_pod_is_gone(
    page: Bed, played: Played, cluster: Cluster
) -> None:
    node = played.agent.name
    played.start()
    page.until(lambda: (found := page.make_observation(node)).inventory and not found.error, "the node")
    pod = f"/api/v1/namespaces/{NAMESPACE}/pods/{played.agent.deployed.name}"
    cluster.must("DELETE", pod)
    page.until(lambda: "is not available" in page.make_observation(node).error, "the missing pod")
    assert "aliquot-claims" in page.make_observation(node).next_step


def test_no_label_partitions_a_node_whose_claims_do(page: Bed, played: Played, cluster: Cluster) -> None:
    node = played.agent.name
    changer = admitted(page, cluster, person(cluster, "changer", CHANGE_ROLE))
    played.start()
    page.until(lambda: (found := page.make_observation(node)).inventory and not found.error, "the node")
    gpu = str(played.agent.sim.show()["gpus"][0]["pci"])
    for request in (PartitionGpu(node=node, gpu=gpu, mig="7g.40gb"), UseConfig(nodes=(node,), config="all-1g.5gb")):
        (obstacle,) = page.preview(request, changer).obstacles
        assert (obstacle.rule, obstacle.message) == (
            "Claims", f"the GPUs of {node} are partitioned by claims: pods request devices of {DRIVER}"
        )  # fmt: skip
        assert obstacle.next_step == f"kubectl label node {node} aliquot.dev/allocation=plugin --overwrite"


def test_it_does_not_say_that_no_claim_has_a_gpu_before_it_knows() -> None:
    slices, claims = Informer(ResourceSlice), Informer(ResourceClaim)
    shown = ClusterClaims(slices, claims)
    assert shown.view("", 1).missing == ("Claims are still being read.",)
    slices.note_failure(ForbiddenError("no right", status=403))
    (sentence,) = shown.view("", 2).missing
    assert sentence.startswith("Claims cannot be read now: no right. Next: kubectl get ")
    slices.note_failure(None)
    slices.apply(FullList(()))
    claims.apply(FullList(()))
    assert shown.view("", 3).missing == ()
