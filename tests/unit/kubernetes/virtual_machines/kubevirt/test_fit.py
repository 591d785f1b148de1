"""Placement of additional VMs: whether all get their devices."""

from __future__ import annotations

import itertools
import random

import pytest

from aliquot.kubernetes.virtual_machines.kubevirt.capacity import ClusterObservation, measure
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand
from aliquot.kubernetes.virtual_machines.kubevirt.fit import explain_fit, fit
from unit.kubernetes.virtual_machines.kubevirt.machines import A2_4A, A2_4Q, instance, machine, node, vgpu

TWO = (node("n1", {A2_4Q: 4}), node("n2", {A2_4Q: 2, A2_4A: 2}))


def wants(name: str, *resources: str, **more: object) -> VmDemand:
    counts = {resource: resources.count(resource) for resource in resources}
    return VmDemand("default", name, counts, more.get("selector", {}))  # type: ignore[arg-type]


def test_one_more_than_there_is_is_refused_with_the_figures() -> None:
    running = tuple(instance(f"vm-{n}", "n1", A2_4Q) for n in range(3))
    capacity = measure(ClusterObservation((node("n1", {A2_4Q: 4}),), instances=running))
    assert fit(capacity, [wants("a", A2_4Q)]).fits
    found = fit(capacity, [wants("a", A2_4Q), wants("b", A2_4Q)])
    assert (found.fits, found.resource, found.next_step) == (False, A2_4Q, "aliquot capacity")
    assert found.sentence == (f"2 of {A2_4Q} are requested, 1 can still be allocated (4 in the cluster, 3 allocated)")


def test_what_no_node_offers_is_reported_so() -> None:
    found = fit(measure(ClusterObservation(TWO)), [wants("a", "nvidia.com/NVIDIA_L40S-12A")])
    assert found.sentence == "1 of nvidia.com/NVIDIA_L40S-12A is requested, no node offers it"


def test_machines_that_wait_come_first() -> None:
    capacity = measure(ClusterObservation((node("n1", {A2_4Q: 1}),), vms=(machine("first", A2_4Q),)))
    found = fit(capacity, [wants("second", A2_4Q)])
    assert not found.fits
    assert found.sentence.endswith("0 can still be allocated (1 in the cluster, 0 allocated, 1 pending)")


def test_a_machine_that_waits_for_what_will_never_be_blocks_no_other() -> None:
    capacity = measure(ClusterObservation((node("n1", {A2_4Q: 1}),), vms=(machine("greedy", *[A2_4Q] * 9),)))
    assert fit(capacity, [wants("modest", A2_4Q)]).fits


def test_the_sum_is_enough_but_no_one_node_has_it() -> None:
    capacity = measure(ClusterObservation((node("n1", {A2_4Q: 1}), node("n2", {A2_4Q: 1}))))
    found = fit(capacity, [wants("a", A2_4Q, A2_4Q)])
    assert not found.fits
    assert found.sentence == (
        f"no arrangement gives each VM all its devices on one node (2 of {A2_4Q}); n1: 1 of {A2_4Q}; n2: 1 of {A2_4Q}"
    )


def test_two_kinds_of_device_must_be_on_one_node() -> None:
    capacity = measure(ClusterObservation((node("n1", {A2_4Q: 1}), node("n2", {A2_4A: 1}))))
    assert not fit(capacity, [wants("a", A2_4Q, A2_4A)]).fits
    assert fit(measure(ClusterObservation(TWO)), [wants("a", A2_4Q, A2_4A)]).fits


def test_room_is_kept_for_the_machine_that_can_go_nowhere_else() -> None:
    # n2 has the only 4A: VMs that could run on n1 must not take the 4Q of the VM that needs both.
    wanted = [wants(f"q{n}", A2_4Q) for n in range(4)] + [wants("both", A2_4Q, A2_4Q, A2_4A)]
    assert fit(measure(ClusterObservation(TWO)), wanted).fits
    assert not fit(measure(ClusterObservation(TWO)), [*wanted, wants("one more", A2_4Q)]).fits


def test_a_node_selector_narrows_where_it_can_be() -> None:
    on_n2 = {"kubernetes.io/hostname": "n2"}
    capacity = measure(ClusterObservation(TWO))
    assert fit(capacity, [wants(f"vm-{n}", A2_4Q, selector=on_n2) for n in range(2)]).fits
    found = fit(capacity, [wants(f"vm-{n}", A2_4Q, selector=on_n2) for n in range(3)])
    assert not found.fits
    assert "that its node selector allows" in found.sentence


def test_a_running_machine_that_is_edited_keeps_what_it_has() -> None:
    # Otherwise no VM of a full cluster could be changed any more.
    full = ClusterObservation(
        (node("n1", {A2_4Q: 1}),), vms=(machine("a", A2_4Q),), instances=(instance("a", "n1", A2_4Q),)
    )
    assert fit(measure(full), [wants("a", A2_4Q)]).fits
    assert fit(measure(full), [wants("a")]).fits
    assert not fit(measure(full), [wants("a", A2_4Q, A2_4Q)]).fits
    assert not fit(measure(full), [wants("b", A2_4Q)]).fits


def test_a_running_machine_may_move_when_it_asks_for_more() -> None:
    nodes = (node("n1", {A2_4Q: 1}), node("n2", {A2_4Q: 2}))
    seen = ClusterObservation(nodes, vms=(machine("a", A2_4Q),), instances=(instance("a", "n1", A2_4Q),))
    assert fit(measure(seen), [wants("a", A2_4Q, A2_4Q)]).fits
    assert not fit(measure(seen), [wants("a", A2_4Q, A2_4Q), wants("b", A2_4Q, A2_4Q)]).fits


def test_what_a_machine_has_is_free_for_itself_when_it_starts_again() -> None:
    seen = ClusterObservation(
        (node("n1", {A2_4Q: 2}),), vms=(machine("a", A2_4Q),), instances=(instance("a", "n1", A2_4Q),)
    )
    assert fit(measure(seen), [wants("a", A2_4Q, A2_4Q)]).fits
    assert not fit(measure(seen), [wants("b", A2_4Q, A2_4Q)]).fits


def test_a_machine_that_waits_and_asks_for_more_is_counted_once() -> None:
    seen = ClusterObservation((node("n1", {A2_4Q: 2}),), vms=(machine("a", A2_4Q),))
    assert fit(measure(seen), [wants("a", A2_4Q, A2_4Q)]).fits
    assert not fit(measure(seen), [wants("b", A2_4Q, A2_4Q)]).fits


def test_a_machine_that_is_over_committed_already_can_still_be_edited() -> None:
    waits = ClusterObservation((node("n1", {A2_4Q: 0}),), vms=(machine("a", A2_4Q),))
    assert fit(measure(waits), [wants("a", A2_4Q)]).fits


def test_it_fits_only_on_a_cordoned_node() -> None:
    capacity = measure(ClusterObservation((node("n1", {A2_4Q: 1}, cordoned=True),)))
    found = fit(capacity, [wants("a", A2_4Q)])
    assert found.fits
    assert found.sentence == "it fits, but waits for a node that accepts no VMs now (n1)"


def test_while_kubelet_starts_again_the_objects_say_what_there_is() -> None:
    vgpus = (vgpu("n1", "0000:08:00.4", "NVIDIA A2-4Q"),)
    capacity = measure(ClusterObservation((node("n1", {A2_4Q: 0}),), vgpus=vgpus))
    assert fit(capacity, [wants("a", A2_4Q)]).fits
    assert not fit(capacity, [wants("a", A2_4Q), wants("b", A2_4Q)]).fits


def test_a_person_learns_that_a_kubelet_does_not_offer_the_devices_now() -> None:
    # So it is for seconds after a restart, and for good after the death of the node's agent.
    vgpus, silent = (vgpu("n1", "0000:08:00.4", "NVIDIA A2-4Q"),), node("n1", {A2_4Q: 0})
    found = explain_fit(measure(ClusterObservation((silent,), vgpus=vgpus)), [wants("a", A2_4Q)])
    text = "it fits, but waits for devices that a node does not offer now (n1): does its agent run?"
    assert (found.fits, found.resource, found.sentence) == (True, A2_4Q, text)
    other = measure(ClusterObservation((silent, node("n2", {A2_4Q: 1})), vgpus=vgpus))
    assert explain_fit(other, [wants("a", A2_4Q)]).sentence == ""
    assert not explain_fit(other, [wants(name, A2_4Q) for name in "abc"]).fits


def test_a_machine_without_gpus_always_fits() -> None:
    assert fit(measure(ClusterObservation()), [wants("a"), wants("b", "intel.com/X540")]).fits


def test_thousands_of_machines_are_judged_by_their_sum_at_once() -> None:
    capacity = measure(ClusterObservation((node("n1", {A2_4Q: 5000}),)))
    assert fit(capacity, [wants(f"vm-{n}", A2_4Q) for n in range(5000)]).fits
    assert not fit(capacity, [wants(f"vm-{n}", A2_4Q) for n in range(5001)]).fits


@pytest.mark.parametrize("seed", range(60))
def test_it_agrees_with_trying_every_arrangement(seed: int) -> None:
    draw = random.Random(seed)
    nodes = [(f"n{n}", {A2_4Q: draw.randint(0, 3), A2_4A: draw.randint(0, 2)}) for n in range(3)]
    wanted = [wants(f"vm-{n}", *[A2_4Q] * draw.randint(0, 2), *[A2_4A] * draw.randint(0, 1)) for n in range(4)]
    expected = any(
        all(
            sum(each.counts.get(r, 0) for each, to in zip(wanted, where, strict=True) if to == name) <= free[r]
            for name, free in nodes
            for r in (A2_4Q, A2_4A)
        )
        for where in itertools.product([name for name, _ in nodes], repeat=len(wanted))
    )
    assert fit(measure(ClusterObservation(tuple(node(name, free) for name, free in nodes))), wanted).fits is expected
