"""Capacity over nodes, for VMs in every state: existing devices, their holders, and the rest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.kinds.kubevirt import VirtualMachineInstance, VirtualMachineStatus
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import (
    Capacity,
    ClusterObservation,
    ResourceCapacity,
    is_vm_gpu_resource,
    measure,
)
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand
from unit.kubernetes.virtual_machines.kubevirt.machines import (
    A2_4A,
    A2_4Q,
    L40S,
    claim,
    function,
    instance,
    machine,
    node,
    vgpu,
)

TWO = (node("n1", {A2_4Q: 4}), node("n2", {A2_4Q: 2, A2_4A: 2}))


def figure(capacity: Capacity, resource: str = A2_4Q) -> ResourceCapacity:
    return capacity.resources[resource]


def numbers(capacity: Capacity, resource: str = A2_4Q) -> tuple[int, int, int, int]:
    found = figure(capacity, resource)
    return found.total, found.allocated, found.pending, found.allocatable


def test_totals_are_those_of_all_nodes() -> None:
    found = measure(ClusterObservation(TWO))
    assert numbers(found) == (6, 0, 0, 6)
    assert numbers(found, A2_4A) == (2, 0, 0, 2)
    assert [each.node for each in figure(found).nodes] == ["n1", "n2"]


def test_a_machine_that_runs_counts_once_although_it_is_two_objects() -> None:
    found = measure(ClusterObservation(TWO, vms=(machine("a", A2_4Q),), instances=(instance("a", "n1", A2_4Q),)))
    assert numbers(found) == (6, 1, 0, 5)
    assert [(each.node, each.allocated) for each in figure(found).nodes] == [("n1", 1), ("n2", 0)]


@pytest.mark.parametrize(
    ("machines", "instances", "expected"),
    [
        ((machine("a", A2_4Q, A2_4Q),), (), (6, 0, 2, 4)),
        ((), (instance("a", "n2", A2_4Q),), (6, 1, 0, 5)),
        ((), (instance("a", "", A2_4Q, phase="Scheduling"),), (6, 0, 1, 5)),
        ((machine("a", A2_4Q),), (instance("a", "", A2_4Q, phase="Pending"),), (6, 0, 1, 5)),
        ((machine("a", A2_4Q, strategy="Halted"),), (), (6, 0, 0, 6)),
        ((machine("a", A2_4Q, strategy="Halted"),), (instance("a", "n1", A2_4Q),), (6, 1, 0, 5)),
        ((machine("a", A2_4Q),), (instance("a", "n1", A2_4Q, phase="Succeeded"),), (6, 0, 1, 5)),
        ((machine("a", A2_4Q, A2_4Q),), (instance("a", "n1", A2_4Q),), (6, 1, 1, 4)),
        ((machine("a"),), (instance("a", "n1", A2_4Q),), (6, 1, 0, 5)),
        ((machine("a", A2_4Q),), (instance("a", "n1", A2_4Q, A2_4Q),), (6, 2, 0, 4)),
        ((machine("a", A2_4Q, deleted=True),), (), (6, 0, 0, 6)),
        ((machine("a", A2_4Q), machine("a", A2_4Q, namespace="other")), (instance("a", "n1", A2_4Q),), (6, 1, 1, 4)),
    ],
    ids=[
        "not started yet",
        "an instance without a machine",
        "an instance without a node",
        "both, without a node",
        "stopped",
        "stopping: it has it until it is gone",
        "over, to be started again",
        "edited while it runs: the rest waits",
        "edited while it runs: it has what it was started with",
        "edited while it runs: it will give one back, and has it until then",
        "being deleted",
        "the same name in another namespace",
    ],
)
def test_machines_in_every_state(
    machines: tuple[object, ...], instances: tuple[object, ...], expected: tuple[int, int, int, int]
) -> None:
    assert numbers(measure(ClusterObservation(TWO, vms=machines, instances=instances))) == expected  # type: ignore[arg-type]


def test_a_stopped_machine_is_counted_apart() -> None:
    found = measure(ClusterObservation(TWO, vms=(machine("a", A2_4Q, strategy="Halted"),)))
    assert (figure(found).stopped, figure(found).pending) == (1, 0)
    assert [each.name for each in found.stopped] == ["a"]


def test_a_withdrawn_type_reads_0_and_is_not_forgotten() -> None:
    found = measure(ClusterObservation((node("n1", {"nvidia.com/NVIDIA_A2-4C": 0}),)))
    assert numbers(found, "nvidia.com/NVIDIA_A2-4C") == (0, 0, 0, 0)


def test_what_one_node_lacks_is_not_taken_from_another() -> None:
    # A vGPU became unhealthy under its VM: the kubelet counts 0 usable, one is allocated. n2 still has its own.
    nodes = (node("n1", {A2_4Q: 0}, total={A2_4Q: 1}), node("n2", {A2_4Q: 2}))
    assert numbers(measure(ClusterObservation(nodes, instances=(instance("a", "n1", A2_4Q),)))) == (3, 1, 0, 2)


def test_a_machine_of_a_node_that_was_removed_takes_nothing_from_the_others() -> None:
    assert numbers(measure(ClusterObservation(TWO, instances=(instance("a", "gone", A2_4Q),)))) == (6, 0, 0, 6)


@pytest.mark.parametrize("shut", [{"cordoned": True}, {"ready": "False"}, {"ready": "Unknown"}])
def test_free_devices_of_a_node_that_takes_no_machines_are_set_aside(shut: dict[str, Any]) -> None:
    found = figure(measure(ClusterObservation((node("n1", {A2_4Q: 4}, **shut), node("n2", {A2_4Q: 2})))))
    assert (found.total, found.allocatable, found.set_aside) == (6, 2, 4)


@pytest.mark.parametrize(
    ("migration", "on_n2"),
    [
        ({"targetNode": "n2"}, 1),
        ({}, 0),
        ({"targetNode": "n2", "failed": True}, 0),
        ({"targetNode": "n2", "completed": True}, 0),
    ],
)
def test_a_machine_that_moves_has_its_devices_twice_until_it_has_moved(migration: dict[str, Any], on_n2: int) -> None:
    found = figure(measure(ClusterObservation(TWO, instances=(instance("a", "n1", A2_4Q, migration=migration),))))
    assert [(each.node, each.allocated) for each in found.nodes] == [("n1", 1), ("n2", on_n2)]


def test_an_admitted_machine_counts_until_it_is_seen_and_not_twice() -> None:
    reserved = (VmDemand("default", "a", {A2_4Q: 2}),)
    assert numbers(measure(ClusterObservation(TWO, reserved=reserved))) == (6, 0, 2, 4)
    assert numbers(measure(ClusterObservation(TWO, vms=(machine("a", A2_4Q, A2_4Q),), reserved=reserved))) == (
        6,
        0,
        2,
        4,
    )
    edited = ClusterObservation(
        TWO, vms=(machine("a", A2_4Q),), instances=(instance("a", "n1", A2_4Q),), reserved=reserved
    )
    assert numbers(measure(edited)) == (6, 1, 1, 4)


def test_the_objects_say_what_is_made_and_a_vgpus_claim_is_no_second_device() -> None:
    seen = ClusterObservation(
        (node("n1", {}), node("n2", {})),
        vgpus=(
            vgpu("n1", "0000:08:00.4", "NVIDIA A2-4Q"),
            vgpu("n1", "0000:08:00.5", "NVIDIA A2-4Q"),
            vgpu("n1", "0000:08:00.6", "NVIDIA A2-4A", configured=False),
        ),
        functions=(function("n1", "0000:08:00.4", A2_4Q), function("n2", "0000:41:00.0", L40S)),
        claims=(claim("n1", "0000:08:00.4", reserves=True), claim("n2", "0000:41:00.0")),
    )
    found = measure(seen)
    assert [(p.node, p.configured, p.promised) for p in figure(found).nodes] == [("n1", 2, 2)]
    assert [(p.node, p.configured) for p in figure(found, L40S).nodes] == [("n2", 1)]
    assert figure(found, A2_4A).nodes == ()


def test_devices_of_containers_cpus_and_nics_are_not_ours() -> None:
    others = {"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 4, "nvidia.com/mig-1g.5gb": 7, "cpu": 24, "intel.com/X": 16}
    assert measure(ClusterObservation((node("n1", others),))).resources == {}
    assert is_vm_gpu_resource(A2_4Q)
    assert is_vm_gpu_resource(L40S)


def test_a_dra_device_is_no_plugins_device() -> None:
    spec = {"domain": {"devices": {"gpus": [{"name": "g", "claimName": "c", "deviceName": A2_4Q}]}}}
    made = msgspec.convert(
        {"metadata": {"name": "a"}, "spec": spec, "status": {"nodeName": "n1"}}, VirtualMachineInstance
    )
    assert numbers(measure(ClusterObservation(TWO, instances=(made,)))) == (6, 0, 0, 6)


@pytest.mark.parametrize(("strategy", "phase", "pending"), [
    ("Once", "Succeeded", 0), ("Manual", "Failed", 0), ("RerunOnFailure", "Succeeded", 0),
    ("RerunOnFailure", "Failed", 1), ("Always", "Succeeded", 1),
])  # fmt: skip
def test_a_machine_that_has_ended_waits_only_if_it_is_started_again(strategy: str, phase: str, pending: int) -> None:
    # A guest that shuts itself down leaves its instance object. If that counted as pending, its vGPU would have no
    # holder.
    ended = msgspec.structs.replace(machine("vm", A2_4Q, strategy=strategy), status=VirtualMachineStatus(created=True))
    seen = ClusterObservation(
        (node("n1", {A2_4Q: 1}),), vms=(ended,), instances=(instance("vm", "n1", A2_4Q, phase=phase),)
    )
    found = figure(measure(seen))
    assert (found.pending, found.allocatable, found.stopped) == (pending, 1 - pending, 1 - pending)
