"""Devices that VMs have through ResourceClaims: counted once each, in the state that the claim and the VM have."""

from __future__ import annotations

from time import process_time

import pytest

from aliquot.cli.views import capacity_view
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.virtual_machines.kubevirt.claim_demand import (
    UNKNOWN_CLASS,
    ClaimClassCapacity,
    ClaimedVmDevice,
    ClaimObservation,
    claimed_devices,
    class_capacities,
)
from unit.kubernetes.virtual_machines.kubevirt.claiming import (
    claim_template,
    claiming_instance,
    claiming_vm,
    vm_claim,
)

Q, WHOLE = "vgpu-l40s-12q.aliquot.dev", "vfio.gpu.aliquot.dev"
TEMPLATE = claim_template("desktop", Q)


def counts(found: tuple[ClaimedVmDevice, ...]) -> list[tuple[str, int, int, int]]:
    return [(each.device_class, each.allocated, each.pending, each.stopped) for each in class_capacities(found)]


def test_a_template_gives_each_vm_a_device_of_its_own() -> None:
    wanted = (claiming_vm("a", template="desktop"), claiming_vm("b", template="desktop"))
    vms = (*wanted, claiming_vm("c", template="desktop", strategy="Halted"))
    running = (claiming_instance("a", "n1", template="desktop"),)
    found = claimed_devices(vms, running, ClaimObservation(templates=(TEMPLATE,)))
    assert class_capacities(found) == (ClaimClassCapacity(Q, 1, 1, 1, {"n1": 1}),)


@pytest.mark.parametrize(
    ("node", "expected"), [("n1", (Q, 1, 0, 0)), ("", (Q, 0, 1, 0))], ids=["allocated", "unallocated"]
)
def test_two_vms_that_share_a_claim_count_once(node: str, expected: tuple[str, int, int, int]) -> None:
    vms = (claiming_vm("a", "shared"), claiming_vm("b", "shared"), claiming_vm("z", "shared", strategy="Halted"))
    running = (claiming_instance("a", node, "shared"), claiming_instance("b", node, "shared"))
    found = claimed_devices(vms, running, ClaimObservation((vm_claim("shared", Q, node=node),)))
    assert counts(found) == [expected]
    assert found[0].vms == ("a", "b", "z")
    assert found[0].node == node


def test_the_node_of_our_own_pool_is_named_before_the_vm_has_one() -> None:
    observation = ClaimObservation((vm_claim("shared", Q, node=DriverNaming().pool("n1")),))
    (found,) = claimed_devices((claiming_vm("a", "shared"),), (), observation)
    assert (found.state, found.node) == ("allocated", "n1")


def test_a_stopped_vm_does_not_have_what_a_pod_has() -> None:
    vms = (claiming_vm("a", "shared", strategy="Halted"),)
    found = claimed_devices(vms, (), ClaimObservation((vm_claim("shared", Q, node="n1"),)))
    assert (counts(found), found[0].node) == ([(Q, 0, 0, 1)], "")


def test_the_class_of_an_alternative_is_the_one_that_was_allocated() -> None:
    launcher = "virt-launcher-a-x7k2p"
    made = vm_claim("a-gpu-1", Q, WHOLE, node="n1", granted="vgpu/a1", launcher=launcher)
    running = (claiming_instance("a", "n1", template="either"), claiming_instance("a-x7k2p", "n1", template="either"))
    observation = ClaimObservation((made,), (claim_template("either", Q, WHOLE),))
    assert counts(claimed_devices((), running, observation)) == [(WHOLE, 1, 0, 0), (Q, 1, 0, 0)]


@pytest.mark.parametrize("length", [43, 44, 63])
def test_the_claim_of_a_launcher_whose_name_kubernetes_cuts_is_found(length: int) -> None:
    name = "v" * length
    made = vm_claim("gpu-1", Q, node="n1", launcher=f"virt-launcher-{name}-"[:58] + "x7k2p")
    found = claimed_devices((), (claiming_instance(name, "n1", template="gone"),), ClaimObservation((made,)))
    assert counts(found) == [(Q, 1, 0, 0)]


def test_the_cost_of_a_count_grows_with_the_vms_and_not_with_their_square() -> None:
    def seconds(count: int) -> float:
        names = [f"vm-{number}" for number in range(count)]
        made = [vm_claim(f"{each}-gpu", Q, node="n1", launcher=f"virt-launcher-{each}-x7k2p") for each in names]
        running = [claiming_instance(each, "n1", template="desktop") for each in names]
        started = process_time()
        found = claimed_devices((), running, ClaimObservation(tuple(made), (TEMPLATE,)))
        spent = process_time() - started
        assert counts(found) == [(Q, count, 0, 0)]
        return spent

    small, large = (min(seconds(count) for _ in range(3)) for count in (200, 1600))
    assert large < 32 * small, "8 times as many VMs"


def test_a_vm_that_moves_has_a_claim_on_both_nodes() -> None:
    running = (claiming_instance("a", "n1", template="desktop", target="n2"),)
    found = claimed_devices((), running, ClaimObservation(templates=(TEMPLATE,)))
    assert class_capacities(found) == (ClaimClassCapacity(Q, 2, 0, 0, {"n1": 1, "n2": 1}),)


def test_a_device_of_an_unknown_class_counts_too() -> None:
    running = (claiming_instance("a", "n1", template="gone"), claiming_instance("b", "n1", "gone"))
    assert counts(claimed_devices((), running, ClaimObservation())) == [(UNKNOWN_CLASS, 1, 1, 0)]


def test_who_has_a_claim_and_who_waits_is_printed() -> None:
    running = (claiming_instance("a", "n1", "shared"), claiming_instance("b", "n1", "shared"))
    vms = (claiming_vm("c", template="desktop"), claiming_vm("d", template="desktop", strategy="Halted"))
    found = claimed_devices(vms, running, ClaimObservation((vm_claim("shared", Q, node="n1"),), (TEMPLATE,)))
    assert capacity_view.claims_text(class_capacities(found), found, "").splitlines() == [
        "DEVICE CLASS               ALLOCATED  WAITING",
        f"{Q}          1        1",
        "  n1                               1         ",
        f"default/a and default/b have 1 of {Q} on n1 (claim shared)",
        f"default/c waits for 1 of {Q} (claim gpu)",
        f"default/d is stopped, wants 1 of {Q} (claim gpu)",
    ]
    assert capacity_view.claims_text(class_capacities(found), found, WHOLE) == ""
