"""Rules for VMs, and the fields that are filled in."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import VmClusterState
from aliquot.kubernetes.virtual_machines.kubevirt.admission.review import demand, mutate, validate
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import ClusterObservation, measure
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand
from aliquot.kubernetes.virtual_machines.kubevirt.reservations import VmReservations
from support.admissions import GPU, claim, entry, environment, function, instance, machine, merged, request, vgpu

JSON = dict[str, Any]
Q, A, L40S = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-4A", "nvidia.com/NVIDIA_L40S-12Q"
MDEVS = [vgpu(f"0000:08:00.{n}", "NVIDIA A2-4Q", True) for n in (4, 5, 6)] + [
    vgpu("0000:08:00.7", "NVIDIA A2-4A", True)
]
VENDOR = [
    vgpu("0000:26:00.4", "NVIDIA L40S-12Q", True, uuid="1155"),
    vgpu("0000:26:00.5", "NVIDIA L40S-12Q", True, uuid="1155"),
]
GPU_UUID = "nvidia.com/GA107_A2"


def node(name: str, **amounts: int) -> JSON:
    figures = {key: str(count) for key, count in amounts.items()}
    return {"metadata": {"name": name}, "status": {"capacity": figures, "allocatable": figures}}


def cluster(
    permitted: frozenset[str] | None = frozenset(), reserved: tuple[VmDemand, ...] = (), **given: Any
) -> VmClusterState:
    given = {"vgpus": [*MDEVS, *VENDOR], "nodes": [node("n1", **{Q: 3, A: 1, L40S: 2})]} | given
    found = environment(**given)
    seen = ClusterObservation(
        tuple(msgspec.convert(given["nodes"], list[Node])),
        tuple(found.vgpus.values()),
        tuple(found.functions.values()),
        tuple(found.claims.values()),
        tuple(found.vms.values()),
        tuple(found.instances.values()),
        reserved,
    )
    return VmClusterState(found, permitted, measure(seen))


def refused(new: JSON, old: JSON | None = None, at: VmClusterState | None = None) -> str:
    return validate(request("virtualmachines", old, new), at or cluster()).message


def filled(new: JSON, old: JSON | None = None, **given: Any) -> tuple[JSON, tuple[str, ...]]:
    """Return the VM as the API server would store it, and the warnings for its user."""
    found = mutate(request("virtualmachines", old, new), cluster(**given))
    assert found.allowed
    return patched(new, found.patches), found.warnings


def patched(one: JSON, operations: tuple[JSON, ...]) -> JSON:
    """Apply a JSON Patch, with the operations that are used here."""
    found = copy.deepcopy(one)
    for each in operations:
        *steps, last = [s.replace("~1", "/").replace("~0", "~") for s in each["path"].strip("/").split("/")]
        inside = found
        for step in steps:
            inside = inside[step]
        if each["op"] == "remove":
            del inside[last]
        else:
            assert each["op"] == "add" or last in inside
            inside[last] = each["value"]
    return found


def lists(one: JSON) -> tuple[list[JSON], list[JSON]]:
    devices = one["spec"]["template"]["spec"]["domain"]["devices"]
    return devices.get("gpus", []), devices.get("hostDevices", [])


# -- fields that are filled in


def test_both_of_two_vgpus_become_host_devices_where_the_kernel_has_no_mdev() -> None:
    # The original's patch is invalid for the second one.
    two = machine("vm", {"name": "a", "deviceName": L40S, "tag": "t"}, entry("b", L40S, display={}))
    stored, warnings = filled(two)
    assert lists(stored) == ([], [{"name": "a", "deviceName": L40S, "tag": "t"}, {"name": "b", "deviceName": L40S}])
    assert "gpus a is a PCI device on this kernel and was moved to hostDevices, without display" in warnings[0]


def test_a_display_that_was_asked_for_keeps_its_place() -> None:
    asks = entry("a", L40S, display={"enabled": True})
    stored, warnings = filled(machine("vm", asks, entry("b", L40S)))
    assert lists(stored) == ([asks], [{"name": "b", "deviceName": L40S}])
    assert len(warnings) == 1


def test_an_mdev_stays_where_it_is() -> None:
    one = machine("vm", entry("a", Q))
    assert mutate(request("virtualmachines", None, one), cluster()).patches == ()


def test_a_machine_of_before_an_upgrade_is_converted_at_its_next_start() -> None:
    # The kernel without mdev lost all vGPUs until a user edited each VM.
    stopped = machine("vm", entry("a", L40S), strategy="Halted")
    stored, _ = filled(merged(stopped, spec={"runStrategy": "Always"}), stopped)
    assert lists(stored) == ([], [{"name": "a", "deviceName": L40S}])
    running: JSON = {"instances": [instance("vm", "n1", entry("a", L40S))]}
    assert filled(merged(stopped, metadata={"labels": {"a": "b"}}), stopped, **running)[0]["spec"] == stopped["spec"]


def ramfb(*entries: JSON) -> list[Any]:
    gpus, _ = lists(filled(machine("vm", *entries))[0])
    return [(each.get("virtualGPUOptions") or {}).get("display") for each in gpus]


def test_of_two_vgpus_exactly_one_has_ramfb() -> None:
    on, off = {"enabled": True, "ramFB": {"enabled": True}}, {"ramFB": {"enabled": False}}
    assert ramfb(entry("a", Q), entry("b", Q)) == [on, off]
    assert ramfb(entry("a", Q, display={}), entry("b", Q, display={})) == [on, off]
    assert ramfb(entry("a", Q), entry("b", Q, display=on)) == [off, on]
    assert ramfb(entry("a", Q, display=off), entry("b", Q)) == [off, on]
    assert ramfb(entry("a", Q, display={"ramFB": {}}), entry("b", Q)) == [{"ramFB": {}}, off]
    assert ramfb(entry("a", Q)) == [None]


def test_a_gpu_from_a_dra_claim_counts_for_ramfb() -> None:
    shown = ramfb(entry("a", Q), {"name": "b", "claimName": "c", "requestName": "r"})
    assert shown == [{"enabled": True, "ramFB": {"enabled": True}}, {"ramFB": {"enabled": False}}]


def test_where_ramfb_is_not_allowed_nothing_is_written() -> None:
    no = {"enabled": False}
    assert ramfb(entry("a", Q, display=no), entry("b", Q, display=no)) == [no, no]


def test_devices_of_the_same_iommu_group_come_along_on_update_too() -> None:
    audio = function("0000:08:00.1", "2291", resource="nvidia.com/GA107_AUDIO")
    other = function("0000:09:00.0", resource=GPU_UUID, group="40")
    given: JSON = {
        "functions": [function(resource=GPU_UUID), audio, other],
        "claims": [claim(), claim("0000:08:00.1"), claim("0000:09:00.0")],
    }
    both = [{"name": GPU, "deviceName": GPU_UUID}, {"name": "n1-000008001", "deviceName": "nvidia.com/GA107_AUDIO"}]
    asked = machine("vm", both[0], field="hostDevices")
    stored, warnings = filled(asked, **given)
    assert lists(stored)[1] == both
    assert warnings == ("n1-000008001 shares an IOMMU group with a device of this VM and was added",)
    assert lists(filled(asked, machine("vm"), **given)[0])[1] == both
    assert filled(stored, **given)[0] == stored
    unoffered: JSON = given | {"claims": [claim()]}
    assert lists(filled(asked, **unoffered)[0])[1] == both[:1]
    waiting: JSON = given | {"claims": [claim(), claim("0000:08:00.1", passthrough=False)]}
    assert lists(filled(asked, **waiting)[0])[1] == both[:1]


def test_the_annotation_of_a_stopped_machine_says_what_its_spec_names() -> None:
    key = names.ALLOCATION_ANNOTATION

    def annotation(*devices: JSON, previous: str, **given: Any) -> str | None:
        old = machine("vm", entry("x", Q), strategy="Halted", annotations={key: previous})
        new = machine("vm", *devices, strategy="Halted", annotations={key: previous})
        found: str | None = filled(new, old, **given)[0]["metadata"]["annotations"].get(key)
        return found

    reported = {"gpus": {Q: ["n1-000008004"]}}
    assert json.loads(annotation(entry("n1-000008004", Q), previous="{}") or "") == reported
    assert annotation(previous="{}") is None
    same = json.dumps(reported)
    assert annotation(entry("n1-000008004", Q), previous=same) == same
    running: JSON = {"instances": [instance("vm", "n1", entry("x", Q))]}
    assert annotation(entry("n1-000008004", Q), previous="{}", **running) == "{}"
    assert json.loads(annotation(entry("n1-000026004", L40S), previous="{") or "")["hostdevices"] == {
        L40S: ["n1-000026004"]
    }


def test_what_is_no_machine_of_kubevirts_schema_is_left_to_kubevirt() -> None:
    odd = machine("vm", entry("a", Q))
    odd["spec"]["template"]["spec"]["domain"]["devices"]["gpus"] = ["a", "b"]
    assert mutate(request("virtualmachines", None, odd), cluster()).patches == ()
    nothing = {"metadata": {"name": "vm", "namespace": "default"}, "spec": {"template": None}}
    assert mutate(request("virtualmachines", None, nothing), cluster()).allowed


# -- refusals


def test_a_resource_that_no_node_offers_is_refused() -> None:
    odd = machine("vm", entry("a", "nvidia.com/NVIDIA_A2-4X"))
    assert refused(odd).startswith("resource name nvidia.com/NVIDIA_A2-4X of a not found (did you mean nvidia.com/NVID")
    bare = refused(machine("vm", entry("a", "A2-4Q")))
    assert "not found (did you mean nvidia.com/NVIDIA_A2-4Q" in bare, "a type without its prefix"
    whole = cluster(functions=[function(resource="nvidia.com/NVIDIA_A2-4")], claims=[claim()])
    assert refused(odd, at=whole).endswith("| next: kubectl get vgpudevices")
    assert "nvidia.com/NVIDIA_A2-4)" not in refused(odd, at=whole), "a whole GPU is not a vGPU"
    assert refused(machine("vm", entry("a", "intel.com/qat"))).endswith("not found | next: aliquot capacity")
    real = refused(machine("vm", entry("a", "nvidia.com/NVIDIA_A2-8Q")))
    assert "no VGPUDevice is enabled as NVIDIA A2-8Q | next: kubectl get vgpudevices" in real
    assert refused(odd, at=cluster(frozenset({"nvidia.com/NVIDIA_A2-4X"}))).startswith("1 of nvidia.com/NVIDIA_A2-4X")


def test_what_others_offer_is_theirs_to_judge() -> None:
    nic = machine("vm", entry("a", "intel.com/qat"), field="hostDevices")
    assert "not found" in refused(nic)
    assert refused(nic, at=cluster(frozenset({"intel.com/qat"}))) == ""
    assert refused(nic, at=cluster(None)) == ""
    usb = {"metadata": {"name": "u"}, "status": {"nodeName": "n1", "resourceName": "kubevirt.io/key"}}
    assert refused(machine("vm", entry("u", "kubevirt.io/key"), field="hostDevices"), at=cluster(usb=[usb])) == ""


def test_devices_of_two_nodes_are_refused_by_name() -> None:
    remote = vgpu("0000:08:00.4", "NVIDIA A2-4Q", True, node="n2")
    at = cluster(vgpus=[*MDEVS, remote], nodes=[node("n1", **{Q: 3}), node("n2", **{Q: 1})])
    both = machine("vm", entry("n1-000008004", Q), entry("n2-000008004", Q))
    assert "not on the same node: n1-000008004 is on n1, n2-000008004 is on n2" in refused(both, at=at)


def test_devices_that_no_node_has_together_are_refused_whatever_their_names() -> None:
    at = cluster(
        nodes=[node("n1", **{Q: 1}), node("n2", **{Q: 1})],
        vgpus=[MDEVS[0], vgpu("0000:08:00.4", "NVIDIA A2-4Q", True, node="n2")],
    )
    both = machine("vm", entry("a", Q), entry("b", Q))
    assert "on one node" in refused(both, at=at)


def test_only_q_series_may_be_several_on_an_a2() -> None:
    assert refused(machine("vm", entry("a", Q), entry("b", Q))) == ""
    assert "NVIDIA A2-4A must be the only vGPU" in refused(machine("vm", entry("a", A), entry("b", A)))
    compute = "nvidia.com/NVIDIA_A2-4C"
    at = cluster(vgpus=[vgpu(f"0000:08:00.{n}", "NVIDIA A2-4C", True) for n in (4, 5)])
    assert "only Q-series" in refused(machine("vm", entry("a", compute), entry("b", compute)), at=at)
    assert "different boards or series" in refused(machine("vm", entry("a", Q), entry("b", A)))


def test_two_ramfb_are_refused() -> None:
    on = {"enabled": True, "ramFB": {"enabled": True}}
    assert "2 devices have ramFB" in refused(machine("vm", entry("a", Q, display=on), entry("b", Q, display=on)))
    step = "set virtualGPUOptions.display.ramFB.enabled to false on all but one of a, b"
    assert step in refused(machine("vm", entry("a", Q, display=on), entry("b", Q, display=on)))
    dra = {"name": "b", "claimName": "c", "virtualGPUOptions": {"display": on}}
    assert "2 devices have ramFB" in refused(machine("vm", entry("a", Q, display=on), dra))


def test_a_display_on_a_whole_gpu_is_refused() -> None:
    at = cluster(functions=[function(resource=GPU_UUID)], claims=[claim()], nodes=[node("n1", **{GPU_UUID: 1})])
    assert "cannot have a display" in refused(machine("vm", entry("a", GPU_UUID, display={"enabled": True})), at=at)
    assert refused(machine("vm", entry("a", GPU_UUID)), at=at) == ""


def test_more_machines_than_vgpus_are_refused_stopped_ones_are_not() -> None:
    running = [machine(f"vm{n}", entry("a", Q)) for n in range(3)]
    full = cluster(vms=running, instances=[instance(f"vm{n}", "n1", entry("a", Q)) for n in range(3)])
    another = machine("vm9", entry("a", Q))
    assert refused(another, at=full) == (
        f"1 of {Q} is requested, 0 can still be allocated (3 in the cluster, 3 allocated): see aliquot capacity"
    )
    stopped = merged(another, spec={"runStrategy": "Halted"})
    assert refused(stopped, at=full) == ""
    assert "can still be allocated" in refused(another, stopped, at=full)


def test_a_machine_whose_gpu_comes_from_a_claim_is_admitted_whatever_the_plugins_have_left() -> None:
    running = [machine(f"vm{n}", entry("a", Q)) for n in range(3)]
    full = cluster(vms=running, instances=[instance(f"vm{n}", "n1", entry("a", Q)) for n in range(3)])
    claimed = machine("vm9", {"name": "a", "claimName": "c", "requestName": "r"})
    assert refused(claimed, at=full) == ""
    both = machine("vm9", {"name": "a", "claimName": "c", "requestName": "r"}, entry("b", Q))
    assert "1 of" in refused(both, at=full)


def test_two_machines_in_the_same_second_do_not_both_get_the_last_one() -> None:
    at = cluster(nodes=[node("n1", **{L40S: 1})], vgpus=[VENDOR[0]])
    first, second = machine("vm1", entry("a", L40S)), machine("vm2", entry("a", L40S))
    assert refused(first, at=at) == ""
    held = demand(request("virtualmachines", None, first))
    assert held is not None
    later = cluster(nodes=[node("n1", **{L40S: 1})], vgpus=[VENDOR[0]], reserved=(held,))
    assert "0 can still be allocated" in refused(second, at=later)
    assert refused(first, at=later) == ""
    assert demand(request("virtualmachines", None, first, dry_run=True)) is None


def test_a_machine_that_is_stopped_while_it_starts_holds_nothing() -> None:
    # The agent's note was reviewed twice: while the VM was to run, and as a write after its stop.
    one = machine("vm1", entry("a", L40S))
    for off in ({"spec": {"runStrategy": "Halted"}}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}):
        asked = demand(request("virtualmachines", one, merged(one, **off)))
        assert asked == VmDemand("default", "vm1", {})
    kept = VmReservations()
    kept.reserve(VmDemand("default", "vm1", {L40S: 1}), 0)
    kept.reserve(VmDemand("default", "vm1", {}), 0)
    assert kept.active(0) == ()
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm1", "uid": "u"}
    started = merged(instance("vm1", "", entry("a", L40S)), metadata={"ownerReferences": [owner]})
    assert demand(request("virtualmachineinstances", None, started)) is None, "the VM itself is counted"


def test_a_running_machine_is_edited_without_being_counted_again() -> None:
    one = machine("vm1", entry("a", L40S))
    full = cluster(
        nodes=[node("n1", **{L40S: 1})],
        vgpus=[VENDOR[0]],
        vms=[one],
        instances=[instance("vm1", "n1", entry("a", L40S))],
    )
    renamed = machine("vm1", entry("b", L40S))
    assert refused(renamed, one, at=full) == ""


def test_a_machine_whose_gpu_is_gone_can_still_be_labelled_stopped_and_deleted() -> None:
    old = machine("vm", entry("a", "nvidia.com/GONE"))
    assert refused(merged(old, metadata={"labels": {"x": "y"}}), old) == ""
    assert refused(merged(old, spec={"runStrategy": "Halted"}), old) == ""
    leaving = merged(old, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert refused(machine("vm", entry("b", "x"), deletionTimestamp="2026-01-01T00:00:00Z"), leaving) == ""
    assert "not found" in refused(old, merged(old, spec={"runStrategy": "Halted"}))


@pytest.mark.parametrize("owned", [False, True])
def test_an_instance_of_its_own_is_judged_a_machines_is_not(owned: bool) -> None:
    # After a reboot, the instance of a VM starts before its devices exist.
    one = instance("vmi", "", entry("a", "nvidia.com/NVIDIA_A2-4X"), phase="Pending")
    if owned:
        one["metadata"]["ownerReferences"] = [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vmi"}]
    verdict = validate(request("virtualmachineinstances", None, one), cluster())
    assert verdict.allowed == owned
