"""User reports about counts, scheduling and the assignment of devices. Numbers are of public threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.kubevirt import DeviceRequest, VmDevices
from aliquot.kubernetes.virtual_machines.harvester.device_offer import object_names, offer
from aliquot.kubernetes.virtual_machines.kubevirt import rancher
from aliquot.kubernetes.virtual_machines.kubevirt.allocation import VmAllocation, allocation_of
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import CLUSTER_LABEL
from aliquot.kubernetes.virtual_machines.kubevirt.launcher_pod import by_resource, devices
from support.admissions import entry, instance, machine, merged, vgpu
from system.harvester.bench import A2, JSON, carry, counted, enabled, give_up, machine_refused, offering, refused
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One
from unit.kubernetes.virtual_machines.kubevirt.machines import vgpu as made
from unit.kubernetes.virtual_machines.kubevirt.test_permitted import Server

TYPE, Q = "NVIDIA A2-4Q", "nvidia.com/NVIDIA_A2-4Q"
ONE, TWO = "0000:08:00.4", "0000:08:00.5"
VGPUS = [vgpu(ONE, TYPE, True), vgpu(TWO, TYPE, True)]
OFF = merged(VGPUS[0], spec={"enabled": False})


@pytest.fixture
def a2(tmp_path: Path) -> One:
    return carry(enabled("a2:mdev", tmp_path, A2), ONE, TYPE)


def offered(one: One) -> dict[str, int]:
    """Return the healthy devices that the node's plugin reports to the kubelet now, by resource."""
    groups = {v["status"]["uuid"]: 7 for v in one.store.of("VGPUDevice").values() if v["status"].get("uuid")}
    found = offer(one.view(), one.store.typed(), groups)
    return {each.name: sum(d.healthy for d in each.devices) for each in found.resources}


# -- counts


def test_a_disabled_vgpu_stayed_allocatable(a2: One) -> None:
    """harvester/harvester#5774."""
    assert offered(a2) == {Q: 1}
    a2.store.patch("VGPUDevice", a2.name_of(ONE), {"spec": {"enabled": False}})
    assert offered(a2).get(Q, 0) == 0, "withdrawn before it is destroyed, so that no pod gets it meanwhile"
    a2.settle()
    assert offered(a2).get(Q, 0) == 0


def test_insufficient_after_a_cluster_was_scaled_down() -> None:
    """harvester/harvester#8478: devices of deleted VMs were not counted as free."""
    running = [machine(f"vm{n}", entry("a", Q)) for n in range(2)]
    there = [instance(f"vm{n}", "n1", entry("a", Q)) for n in range(2)]
    nodes = [offering("n1", **{Q: 2})]
    full: Any = {"vms": running, "instances": there, "nodes": nodes, "vgpus": VGPUS}
    less: Any = {"vms": running[:1], "instances": there[:1], "nodes": nodes, "vgpus": VGPUS}
    new = machine("vm9", entry("a", Q))
    assert "0 can still be allocated" in machine_refused(new, **full)
    assert machine_refused(new, **less) == ""


def pool(count: int, free: int) -> Any:
    labels = {CLUSTER_LABEL: "blue"}
    machines = [machine(f"blue-{n}", entry("a", Q), labels=labels) for n in range(count)]
    there = [merged(instance(f"blue-{n}", "n1", entry("a", Q)), metadata={"labels": labels}) for n in range(count)]
    return counted(vms=machines, instances=there, nodes=[offering("n1", **{Q: count + free})])


def test_scaling_up_counted_running_machines_a_second_time() -> None:
    """harvester/harvester#10455, #11591."""
    capacity = pool(3, free=1)
    assert rancher.fit_pools(capacity, [rancher.machine_pool("default", "blue", 4, {Q: 1})]).fits
    assert not rancher.fit_pools(capacity, [rancher.machine_pool("default", "blue", 5, {Q: 1})]).fits


def test_a_running_machine_that_was_edited_was_not_allocatable() -> None:
    """harvester/harvester#11591: the VM's own vGPU was missing from the remaining count."""
    old, new = machine("vm", entry("a", Q)), machine("vm", entry("renamed", Q))
    full: Any = {"vms": [old], "instances": [instance("vm", "n1", entry("a", Q))]}
    full |= {"nodes": [offering("n1", **{Q: 1})], "vgpus": VGPUS[:1]}
    assert machine_refused(new, old, **full) == ""


def test_three_machines_were_accepted_for_one_vgpu() -> None:
    """rancher/dashboard#10906: VMs were created and deleted again and again."""
    answer = rancher.fit_pools(pool(0, free=1), [rancher.machine_pool("default", "blue", 3, {Q: 1})])
    assert (answer.fits, answer.sentence.partition(",")[0]) == (False, f"3 of {Q} are requested")


def test_a_second_cluster_was_given_what_the_first_had() -> None:
    """rancher/dashboard#10948, #12133."""
    second = rancher.machine_pool("default", "green", 2, {Q: 1})
    assert not rancher.fit_pools(pool(3, free=1), [second]).fits
    assert rancher.fit_pools(pool(3, free=2), [second]).fits


def test_a_machine_pool_sent_through_a_driver_or_terraform_was_not_understood() -> None:
    """harvester/harvester#10764, #6424, rancher/terraform-provider-rancher2#2105: their requests are accepted as they
    are.
    """
    sent = json.dumps({"vGPURequests": [{"name": "", "deviceName": Q}]})
    assert rancher.requests(sent, '{"hostDevices":[{"name":"x","deviceName":"c"}]}') == {Q: 1, "c": 1}


# -- KubeVirt's settings


def test_the_same_entry_was_appended_again_and_again() -> None:
    """harvester/harvester#10008."""
    repeated: JSON = {"mdevNameSelector": TYPE, "resourceName": Q, "externalResourceProvider": True}
    server = Server({"mediatedDevices": [repeated] * 3})
    for _ in range(3):
        server.make([made("n1", ONE, TYPE), made("n2", ONE, TYPE)], [], [])
    assert server.devices["mediatedDevices"] == [repeated]


def test_permitted_devices_did_not_follow_the_vgpus() -> None:
    """harvester/harvester#6733, harvester/pcidevices#80: entries were never removed, and not added if one existed
    before.
    """
    server = Server()
    server.make([made("n1", ONE, TYPE)], [], [])
    server.make([made("n1", ONE, "NVIDIA A2-8C")], [], [])
    assert [each["mdevNameSelector"] for each in server.devices["mediatedDevices"]] == ["NVIDIA A2-8C"]
    server.make([], [], [])
    assert server.devices["mediatedDevices"] == []


# -- assignment


def test_a_vgpu_of_a_machine_made_through_the_api_could_be_disabled() -> None:
    """harvester/harvester#9310: its device's name had no meaning, and the annotation did not exist yet."""
    running: Any = {
        "vms": [machine("vm", entry("gpu1", Q))],
        "instances": [instance("vm", "n1", entry("gpu1", Q))],
    }
    answer = refused("vgpudevices", VGPUS[0], OFF, vgpus=VGPUS, **running)
    assert "VM vm in namespace default" in answer
    note = {names.ALLOCATION_ANNOTATION: json.dumps({"gpus": {Q: ["n1-000008005"]}})}
    reported = merged(running["vms"][0], metadata={"annotations": note})
    assert refused("vgpudevices", VGPUS[0], OFF, vgpus=VGPUS, **running | {"vms": [reported]}) == "", "it has the other"


def test_the_page_showed_another_vgpu_than_the_machine_had(a2: One) -> None:
    """harvester/harvester#7003, #11456, #6638, #2974: the form's choice was shown, not the kubelet's allocation."""
    carry(a2, TWO, TYPE)
    got = a2.vgpu(TWO)["status"]["uuid"]
    known = object_names(a2.view(), a2.store.typed())
    asked = VmDevices((DeviceRequest(a2.name_of(ONE), Q),))
    environment = f"MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4Q={got}\n"
    found = allocation_of(asked, by_resource(devices(environment), [Q]), known)
    assert found == VmAllocation(gpus={Q: (a2.name_of(TWO),)})


def test_a_machine_that_runs_was_offered_again(a2: One) -> None:
    """harvester/harvester#6638, #2974: an occupied vGPU could be chosen for a second VM."""
    full: Any = {"vms": [machine("vm", entry("a", Q))], "instances": [instance("vm", "n1", entry("a", Q))]}
    full |= {"nodes": [offering("n1", **offered(a2))], "vgpus": VGPUS[:1]}
    assert "0 can still be allocated" in machine_refused(machine("second", entry("b", Q)), **full)


def test_a_late_release_freed_the_vgpu_of_another_machine(a2: One) -> None:
    """kernel/hypeman#364, #321: the function had a new owner by then. A vGPU is removed only by the object that created
    it.
    """
    uuid = a2.vgpu(ONE)["status"]["uuid"]
    folder = f"/sys/bus/pci/devices/{ONE}/{uuid}"
    a2.node.files.write(f"{folder}/remove", "1\n")
    a2.make_by_hand(ONE, 747, "11111111-2222-4333-8444-555555555555")
    give_up(a2, ONE)
    assert a2.live() == {ONE: "NVIDIA A2-8Q"}
    assert a2.vgpu(ONE)["status"]["conditions"][0]["reason"] == "Untracked"
