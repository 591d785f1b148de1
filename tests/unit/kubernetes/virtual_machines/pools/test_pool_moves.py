"""Pools that cannot have their place now: unregistered nodes, labels that no node has, VMs in the way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION
from unit.kubernetes.virtual_machines.pools.pool_cluster import EIGHT_Q, FOUR_Q, Cluster

PCIDEVICES = {DEVICES_ANNOTATION: '{"state":"idle","reason":"PcidevicesRuns","sentence":""}'}
HALTED = """{"spec":{"runStrategy":"Halted"}}"""


def test_a_vm_that_keeps_a_pool_from_another_type_is_named_with_the_command(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev")
    cluster.pool("desk", count=2)
    cluster.settle()
    held, _ = cluster.devices("desk")
    cluster.run_vm(held)
    cluster.pools["desk"]["spec"]["vGPUTypeName"] = EIGHT_Q
    cluster.settle()
    assert cluster.ready("desk") == ("False", "Insufficient")
    assert cluster.message("desk").startswith("0 of 2 vGPUs of type NVIDIA A2-8Q fit: ")
    assert f"; vGPUs that should go are in use: {held} is in use with VM vm-{held}" in cluster.message("desk")
    assert f" | next: kubectl patch vm vm-{held} -n default --type merge -p '{HALTED}'" in cluster.message("desk")


def test_a_surplus_vgpu_that_a_vm_uses_is_named_with_the_command(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev")
    cluster.pool("desk", count=1)
    cluster.settle()
    (held,) = cluster.devices("desk")
    cluster.run_vm(held)
    cluster.pools["desk"]["spec"]["count"] = 0
    cluster.settle()
    assert cluster.ready("desk") == ("False", "Held")
    assert f" | next: kubectl patch vm vm-{held} -n default --type merge -p '{HALTED}'" in cluster.message("desk")


def test_labels_that_no_node_has_are_named(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev")
    cluster.pool("desk", count=1, nodeSelector={"zone": "a", "rack": "7"})
    cluster.settle()
    assert cluster.message("desk").endswith(
        "fit: no node has the labels rack=7,zone=a | next: kubectl get nodes --show-labels"
    )


def test_a_kubelet_that_registers_again_costs_no_vgpu(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    cluster.labels = {"n1": {"zone": "a"}, "n2": {"zone": "a"}}
    cluster.pool("desk", count=2, nodeSelector={"zone": "a"})
    cluster.settle()
    before = cluster.devices("desk")
    assert cluster.types() == {"n1": Counter({FOUR_Q: 2})}
    cluster.unregistered = {"n1"}
    cluster.settle()
    assert (cluster.types(), cluster.devices("desk")) == ({"n1": Counter({FOUR_Q: 2})}, before)
    del cluster.nodes["n1"]
    cluster.settle()
    assert cluster.types() == {"n2": Counter({FOUR_Q: 2})}


def test_a_node_of_pcidevices_gets_nothing_and_the_next_node_does(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    cluster.annotations["n1"] = PCIDEVICES
    cluster.dead = {"n1"}
    cluster.pool("node", count=1, nodeName="n1")
    cluster.pool("desk", count=2)
    cluster.settle()
    assert cluster.types() == {"n2": Counter({FOUR_Q: 2})}
    assert cluster.ready("desk") == ("True", "Configured")
    step = "kubectl label node n1 aliquot.dev/without-pcidevices=true"
    assert cluster.message("node").endswith(
        f"0 of 1 vGPUs of type {FOUR_Q} fit: pcidevices serves node n1 | next: {step}"
    )


def test_a_node_without_an_agent_of_ours_gets_nothing(tmp_path: Path) -> None:
    # The agent of pcidevices reports no observed generation: its node must not be tried until it counts as silent.
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    cluster.annotations["n1"] = {}
    cluster.dead = {"n1"}
    cluster.pool("node", count=1, nodeName="n1")
    cluster.pool("desk", count=2)
    cluster.settle()
    assert cluster.types() == {"n2": Counter({FOUR_Q: 2})}
    assert cluster.ready("desk") == ("True", "Configured")
    assert "fit: no agent of Aliquot reports on node n1 | next: kubectl get pods -A" in cluster.message("node")


def test_a_cordoned_node_keeps_its_vgpus_and_gets_more_only_if_the_pool_names_it(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    cluster.pool("desk", count=2)
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 2})}
    cluster.cordoned = {"n1", "n2"}
    cluster.pools["desk"]["spec"]["count"] = 3
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 2})}
    assert cluster.message("desk").endswith("node n1 is cordoned, node n2 is cordoned | next: kubectl uncordon n1")
    cluster.cordoned = {"n1"}
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 2}), "n2": Counter({FOUR_Q: 1})}
    cluster.pool("named", count=1, nodeName="n1")
    cluster.settle()
    assert cluster.types()["n1"] == Counter({FOUR_Q: 3})
