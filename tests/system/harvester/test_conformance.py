"""Cases of the originals' own tests that no other test of ours has, by their meaning: the devices and names that a
plugin for VMs allocates.

COMPLAINTS.md has the table of all cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.kubernetes.device_plugin.allocate import AllocationOptions, AllocationRefusal, ResourceSnapshot
from aliquot.kubernetes.device_plugin.preferred_allocation import preferred
from aliquot.kubernetes.gpu.device_resources import ResourceDevice
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.harvester.device_offer import offer
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects
from system.harvester.bench import A2, carry, enabled
from unit.kubernetes.virtual_machines.harvester.offered import make_gpu, replace, vgpus, view

RESOURCE = "nvidia.com/NVIDIA_L40S-12A"


def snapshot(*numbers: int, numa: int | None = 1) -> ResourceSnapshot:
    """Build an L40S of vendor VFIO with vGPUs on these functions, as its node offers them."""
    gpu = make_gpu("NVIDIA L40S", *(("12A", n) for n in numbers))
    (found,) = offer(view(gpu, numa=numa), Objects(vgpus=vgpus(gpu)), {}).resources
    return ResourceSnapshot(found.name, found.devices)


def test_an_address_that_is_not_offered_is_refused() -> None:
    """E: unknown addresses, and one that is requested twice."""
    there = snapshot(0, 9)
    first = there.devices[0].id
    assert there.refusal([first]) is None
    for wrong in (["0000:ff:00.0"], [first, "0000:ff:00.0"], [first, first], []):
        assert isinstance(there.refusal(wrong), AllocationRefusal)


def test_only_the_function_that_was_asked_for_is_passed_through() -> None:
    """E: one variable with one address, and the files of its own group. Neighbours and siblings are not included."""
    there = snapshot(0, 9)
    for each in there.devices:
        given = there.response([each.id], AllocationOptions())
        assert dict(given.envs) == {names.environment(RESOURCE, names.PCI_ENV): each.id}
        assert {file.host_path for file in given.devices} == {"/dev/vfio/vfio", *each.paths}
        assert len(each.paths) == 1


def test_several_ids_are_one_variable_in_the_order_of_functions() -> None:
    """A7, E: as virt-launcher reads it. virtfn9 comes after virtfn0, in whatever order the kubelet requests them."""
    there = snapshot(0, 9, 10)
    ids = [each.id for each in there.devices]
    given = there.response([ids[2], ids[0], ids[1]], AllocationOptions())
    assert dict(given.envs) == {names.environment(RESOURCE, names.PCI_ENV): ",".join(ids)}
    assert [file.host_path for file in given.devices].count("/dev/vfio/vfio") == 1


@pytest.mark.parametrize(("numa", "reported"), [(1, [1]), (0, [0]), (None, [])])
def test_the_numa_node_is_reported_where_it_is_known(numa: int | None, reported: list[int]) -> None:
    """E says 0 for a node that the kernel does not know (-1). It is omitted here, so that the kubelet has no
    preference.
    """
    for each in snapshot(0, numa=numa).list_response.devices:
        assert [node.ID for node in each.topology.nodes] == reported


def test_what_must_be_included_comes_first_then_its_numa_node_then_any() -> None:
    """E: preferred allocation. If more devices must be included than are requested, all of them are returned: the
    kubelet knows why.
    """
    devices = [ResourceDevice(f"{n}", f"gpu{n}", (), f"{n}", n // 2) for n in range(4)]
    every = [each.id for each in devices]
    assert set(preferred(every, ["2"], 2, devices, "packed")) == {"2", "3"}, "the same NUMA node"
    assert {"2"} < set(preferred(every, ["2"], 3, devices, "packed")), "then another"
    assert preferred(every, ["0", "2", "3"], 2, devices, "packed") == ("0", "2", "3")


@pytest.mark.parametrize(
    ("name", "resource", "variable"),
    [
        ("NVIDIA A2-4A", "nvidia.com/NVIDIA_A2-4A", "PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4A"),
        ("GRID T4/2.0-1Q", "nvidia.com/GRID_T4_2_0-1Q", "PCI_RESOURCE_NVIDIA_COM_GRID_T4_2_0-1Q"),
    ],
)
def test_names_with_slashes_and_dots(name: str, resource: str, variable: str) -> None:
    """E, A3: blanks, slashes and dots become underscores, hyphens and case stay."""
    assert names.vgpu_resource(name) == resource
    assert names.environment(resource, names.PCI_ENV) == variable


def test_virtfn10_is_before_virtfn2_in_lists_and_after_it_in_what_is_given(tmp_path: Path) -> None:
    """A case that the originals lack: lists keep their order, which for the kubelet's is that of the functions."""
    one = enabled("a2:vfio", tmp_path, A2)
    listed = one.device(A2)["status"]["vfAddresses"]
    assert listed.index("0000:08:01.6") == 2 < listed.index("0000:08:00.6")
    for address in ("0000:08:01.6", "0000:08:00.6"):
        carry(one, address, "NVIDIA A2-4Q")
    (found,) = offer(one.view(), one.store.typed(), {}).resources
    assert [each.id for each in found.devices] == ["0000:08:00.6", "0000:08:01.6"]


def test_a_full_card_offers_nothing_more(tmp_path: Path) -> None:
    """G: a list with its header alone."""
    one = enabled("a2:vfio", tmp_path, A2)
    for address in one.device(A2)["status"]["vfAddresses"][:4]:
        carry(one, address, "NVIDIA A2-4Q")
    text = one.node.files.read("/sys/bus/pci/devices/0000:08:00.7/nvidia/creatable_vgpu_types")
    assert [line for line in text.splitlines() if ":" in line and line.strip()[0].isdigit()] == []
    rest = [body for body in one.store.of("VGPUDevice").values() if not body["spec"]["enabled"]]
    assert len(rest) == 12
    assert not any(body["status"].get("availableTypes") for body in rest)


def test_a_sibling_that_is_held_back_is_not_offered() -> None:
    """E: each device has its own health."""
    there = snapshot(0, 9)
    kept = replace(there, withheld=frozenset({there.devices[0].id}))
    assert [each.healthy for each in kept.usable] == [False, True]
