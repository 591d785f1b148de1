"""Documents for programs: our own, and Harvester's numbers for Rancher."""

from __future__ import annotations

from aliquot.kubernetes.virtual_machines.kubevirt import capacity_document as poll
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import ClusterObservation, measure
from unit.kubernetes.virtual_machines.kubevirt.machines import A2_4A, A2_4Q, instance, machine, node

NIC = "intel.com/X540_ETHERNET_CONTROLLER_VIRTUAL_FUNCTION"


def test_a_cluster_like_harvesters_own_test_has_the_same_figures() -> None:
    # harvester/harvester, pkg/api/cluster: two nodes, four VMs. It also counts VMs that are not started.
    c20, c10 = "nvidia.com/GRID_A100-20C", "nvidia.com/GRID_A100-10C"
    nodes = (node("n1", {c20: 2, NIC: 16}), node("n2", {c10: 4, NIC: 16}))
    machines = (machine("vm1", NIC), machine("vm2", NIC), machine("vm3", c20), machine("vm4", c10))
    found = poll.remaining_by_resource(nodes, measure(ClusterObservation(nodes, vms=machines)))
    assert found == {NIC: "30", c10: "3", c20: "1"}


def test_seed_003_allocatable_of_a_node_comes_through() -> None:
    # Withdrawn types read 0, and amounts keep their units.
    amounts = {
        "cpu": "24",
        "devices.kubevirt.io/kvm": "1k",
        "ephemeral-storage": "149527126718",
        "memory": "131858088Ki",
        A2_4A: "2",
        "nvidia.com/NVIDIA_A2-4C": "0",
        A2_4Q: "2",
        "pods": "200",
    }
    nodes = (node("harvester-kgd9c", amounts),)  # type: ignore[arg-type]
    assert poll.remaining_by_resource(nodes, measure(ClusterObservation(nodes))) == dict(sorted(amounts.items()))


def test_sums_over_nodes_never_fall_below_zero() -> None:
    nodes = (node("n1", {NIC: 1, A2_4Q: 0}), node("n2", {NIC: 0}))
    machines = tuple(machine(f"vm{n}", NIC, A2_4Q) for n in range(3))
    assert poll.remaining_by_resource(nodes, measure(ClusterObservation(nodes, vms=machines))) == {NIC: "0", A2_4Q: "0"}


def test_a_stopped_machine_keeps_nothing_from_rancher() -> None:
    nodes = (node("n1", {A2_4Q: 1}),)
    assert poll.remaining_by_resource(
        nodes, measure(ClusterObservation(nodes, vms=(machine("vm", A2_4Q, strategy="Halted"),)))
    ) == {A2_4Q: "1"}


def test_the_document_has_figures_and_no_names_of_machines() -> None:
    seen = ClusterObservation((node("n1", {A2_4Q: 4}),), instances=(instance("secret-project", "n1", A2_4Q),))
    found = poll.document(measure(seen))
    figures = {
        "resource": A2_4Q,
        "total": 4,
        "usable": 4,
        "allocated": 1,
        "pending": 0,
        "stopped": 0,
        "allocatable": 3,
        "setAside": 0,
    }
    place = {"node": "n1", "total": 4, "usable": 4, "configured": 0, "allocated": 1, "free": 3, "ready": True}
    assert found == {
        "apiVersion": "aliquot/v1",
        "kind": "Capacity",
        "resources": [figures | {"nodes": [place]}],
    }
    assert "secret" not in str(found)
    assert poll.document(measure(seen), A2_4A)["resources"] == []


def test_rancher_finds_its_way_from_the_cluster_to_the_figures() -> None:
    rows = poll.clusters("/v1/harvester/cluster")
    assert [row["id"] for row in rows["data"]] == ["local"]
    assert poll.cluster("/v1/harvester/cluster/local")["links"]["deviceCapacity"] == (
        "/v1/harvester/cluster/local?link=deviceCapacity"
    )
