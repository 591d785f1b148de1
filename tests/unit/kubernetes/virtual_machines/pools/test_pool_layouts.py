"""The GPU instances of pools: requested where a user prepared nothing, and given back when no vGPU needs them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from aliquot.kubernetes.kinds.harvester_names import POOL_INSTANCES_ANNOTATION
from aliquot.kubernetes.kinds.vgpu_pools import POOL_FINALIZER
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON
from unit.kubernetes.virtual_machines.pools.pool_cluster import Cluster

SMALL, BIG, WHOLE = "GRID A100X-1-5C", "GRID A100X-3-20C", "GRID A100X-20C"
GPU = "n1-000001000"


def layout(cluster: Cluster) -> JSON:
    return cluster.nodes["n1"].store.get("MigConfiguration", GPU)


def requested(cluster: Cluster) -> dict[str, int]:
    rows = layout(cluster)["spec"]["profileSpec"]
    return {row["name"]: row["requested"] for row in rows if row["requested"]}


def prepare(cluster: Cluster, **spec: object) -> None:
    """Write two small instances into the layout of n1, as a user does."""
    one = cluster.nodes["n1"]
    if not one.store.get("SRIOVGPUDevice", GPU)["spec"]["enabled"]:
        one.kubectl("SRIOVGPUDevice", GPU, enabled=True)
    rows = [{**row, "requested": 2 * (row["name"] == "MIG 1g.5gb")} for row in layout(cluster)["spec"]["profileSpec"]]
    one.kubectl("MigConfiguration", GPU, profileSpec=rows, **spec)


@pytest.mark.parametrize("type_name", [SMALL, WHOLE], ids=["mig-backed", "time-sliced"])
def test_numbers_that_a_user_prepared_are_left_and_named(tmp_path: Path, type_name: str) -> None:
    cluster = Cluster(tmp_path, n1="a100-sxm4-40gb:vfio", n2="a100-sxm4-40gb:vfio")
    prepare(cluster)
    cluster.pool("here", type_name, 1, nodeName="n1")
    cluster.pool("anywhere", type_name, 1)
    cluster.settle()
    assert requested(cluster) == {"MIG 1g.5gb": 2}
    assert not layout(cluster)["spec"]["enabled"]
    assert cluster.types() == {"n2": Counter({type_name: 1})}
    assert cluster.ready("here") == ("False", "Insufficient")
    assert cluster.message("here").endswith(
        f"fit: {GPU} has numbers in its MigConfiguration, which is disabled: enable it, or set them to 0 "
        f"| next: kubectl edit migconfiguration {GPU}"
    )


def test_instances_go_with_the_last_vgpu_and_free_the_gpu_for_others(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a100-sxm4-40gb:vfio")
    cluster.pool("small", SMALL, 3)
    cluster.settle()
    assert layout(cluster)["metadata"]["annotations"][POOL_INSTANCES_ANNOTATION] == "1g.5gb=3"
    cluster.pools["small"]["spec"]["count"] = 1
    cluster.settle()
    assert len(cluster.nodes["n1"].instances()) == 3
    cluster.pool("time-sliced", WHOLE, 1)
    cluster.settle()
    assert cluster.ready("time-sliced") == ("False", "Insufficient")
    cluster.pools["small"]["spec"]["count"] = 0
    cluster.settle()
    assert cluster.nodes["n1"].instances() == []
    assert cluster.types() == {"n1": Counter({WHOLE: 1})}


def test_a_deleted_pool_goes_after_its_instances_were_given_back(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a100-sxm4-40gb:vfio")
    cluster.pool("small", SMALL, 2)
    cluster.settle()
    cluster.delete("small")
    for _ in range(3):
        cluster.write(
            [each for each in cluster.plan() if each[0].name != GPU]
        )  # a conflict: the agent wrote its status
    assert cluster.pools["small"]["metadata"]["finalizers"] == [POOL_FINALIZER]
    cluster.settle()
    assert cluster.pools == {}
    assert cluster.nodes["n1"].instances() == []
    assert not layout(cluster)["spec"]["enabled"]
    assert requested(cluster) == {}
    assert POOL_INSTANCES_ANNOTATION not in layout(cluster)["metadata"]["annotations"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_layout_of_a_user_stays(tmp_path: Path, when: str) -> None:
    cluster = Cluster(tmp_path, n1="a100-sxm4-40gb:vfio")
    if when == "before":
        prepare(cluster, enabled=True)
    cluster.pool("small", SMALL, 3)
    cluster.settle()
    assert cluster.ready("small") == ("True", "Configured")
    if when == "after":
        rows = layout(cluster)["spec"]["profileSpec"]
        rows = [{**row, "requested": row["requested"] + (row["name"] == "MIG 2g.10gb")} for row in rows]
        cluster.nodes["n1"].kubectl("MigConfiguration", GPU, profileSpec=rows)
    made = cluster.nodes["n1"].instances()
    cluster.delete("small")
    cluster.settle()
    assert cluster.pools == {}
    assert cluster.nodes["n1"].instances() == made


def test_instances_stay_while_a_pool_lacks_vgpus_in_them(tmp_path: Path) -> None:
    # Otherwise they would be destroyed and requested in turn, as long as the driver does not offer the type.
    cluster = Cluster(tmp_path, n1="a100-sxm4-40gb:vfio")
    cluster.pool("small", SMALL, 7)
    cluster.settle()
    cluster.dead = {"n1"}
    store = cluster.nodes["n1"].store
    for name in cluster.devices("small"):
        store.patch("VGPUDevice", name, {"spec": {"enabled": False, "vGPUTypeName": ""}})
        device = store.get("VGPUDevice", name)
        ready = {"type": "Ready", "status": "True", "reason": "Disabled"}
        status = {"observedGeneration": device["metadata"]["generation"], "conditions": [ready]}
        store.objects["VGPUDevice", name] = {**device, "status": status}
    cluster.now += 60
    cluster.settle()
    assert "does not offer the type now" in cluster.message("small")
    assert layout(cluster)["spec"]["enabled"]
