"""Devices that the GPUs of a node offer: placements, whole GPUs, and why something is not offered."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.facts import Facts, GpuFacts
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Inventory, Mig, Vgpu, VirtualFunction
from aliquot.kubernetes.dra.model.attributes import semantic_version
from aliquot.kubernetes.dra.model.device import ModeChanges
from aliquot.kubernetes.dra.model.naming import NVIDIA_DRIVER, DriverNaming
from aliquot.kubernetes.dra.model.offer import Offer, offered_devices
from support import factory

NVIDIA = DriverNaming(NVIDIA_DRIVER)


def offer(inventory: Inventory, mode_changes: ModeChanges = "without-reset") -> Offer:
    return offered_devices(inventory, NVIDIA, mode_changes=mode_changes)


def changed(inventory: Inventory, **fields: object) -> Inventory:
    """Return the inventory with other fields of its first GPU."""
    gpu = msgspec.structs.replace(inventory.gpus[0], **fields)
    return msgspec.structs.replace(inventory, gpus=(gpu, *inventory.gpus[1:]))


def test_names_are_those_of_nvidia() -> None:
    names = [each.name for each in offer(factory.inventory("a100-sxm4-40gb", enabled=True)).devices]
    assert names[0] == "gpu-0-mig-1g5gb-19-0"
    assert {"gpu-0-mig-1g5gb-me-20-6", "gpu-0-mig-1g10gb-15-2", "gpu-0-mig-7g40gb-0-0"} <= set(names)
    assert len(names) == len(set(names)) == 25
    blackwell = offer(factory.inventory("rtx-pro-6000-96gb", enabled=True))
    assert {"gpu-0-mig-1g24gb-me-67-3", "gpu-0-mig-1g24gb-me-21-3", "gpu-0-mig-1g24gb-meall-65-0", "gpu-0"} <= {
        each.name for each in blackwell.devices
    }


def test_attributes_and_capacities_of_a_placement() -> None:
    node = factory.with_instances(factory.inventory("a100-sxm4-40gb"), 0, "1g.5gb@2")
    board = GpuFacts(node.gpus[0].pci, 40960, (8, 0), 1, brand="Nvidia", pcie_root="pci0000:00")
    facts = Facts("535.183.01", (12, 2), (board,))
    found = offered_devices(node, NVIDIA, facts=facts).device("gpu-0-mig-1g5gb-19-2")
    assert found is not None
    values = {name: msgspec.to_builtins(value) for name, value in found.attributes.items()}
    assert values == {
        "type": {"string": "mig"},
        "parentUUID": {"string": node.gpus[0].uuid},
        "profile": {"string": "1g.5gb"},
        "productName": {"string": "NVIDIA A100-SXM4-40GB"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Ampere"},
        "cudaComputeCapability": {"version": "8.0.0"},
        "driverVersion": {"version": "535.183.1"},
        "cudaDriverVersion": {"version": "12.2.0"},
        "resource.kubernetes.io/pciBusID": {"string": node.gpus[0].pci},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        "resource.kubernetes.io/numaNode": {"int": 1},
        "aliquot.dev/placementStart": {"int": 2},
        "aliquot.dev/placementSize": {"int": 1},
        "aliquot.dev/warm": {"bool": True},
    }
    assert found.capacity == {
        "memory": 4864 << 20,
        "multiprocessors": 14,
        "copyEngines": 1,
        "decoders": 0,
        "encoders": 0,
        "jpegEngines": 0,
        "ofaEngines": 0,
    }
    assert found.uses == {"memory-slice-2": 1, "compute-slices": 1}


def test_a_whole_gpu_has_the_board_s_memory_and_takes_every_counter() -> None:
    node = factory.inventory("h100-80gb-sxm")
    facts = Facts("570.86", (12, 8), (GpuFacts(node.gpus[0].pci, 81559, (9, 0)),))
    found = offered_devices(node, NVIDIA, facts=facts)
    whole = found.device("gpu-0")
    assert whole is not None
    assert whole.capacity["memory"] == 81559 << 20
    assert whole.uses == found.counter_sets[0].counters
    assert msgspec.to_builtins(whole.attributes["uuid"]) == {"string": node.gpus[0].uuid}
    assert "parentUUID" not in whole.attributes
    assert msgspec.to_builtins(whole.attributes["driverVersion"]) == {"version": "570.86.0"}


def test_unknown_facts_are_left_out() -> None:
    found = offer(factory.inventory("tesla-t4")).device("gpu-0")
    assert found is not None
    assert found.attributes.keys() == {
        "type",
        "uuid",
        "productName",
        "architecture",
        "resource.kubernetes.io/pciBusID",
    }
    assert found.capacity == {}


@pytest.mark.parametrize(
    ("version", "semantic"),
    [("535.183.01", "535.183.1"), ("570.86", "570.86.0"), ("", ""), ("570.86.15.02", ""), ("r570", "")],
)
def test_a_version_is_semantic_or_left_out(version: str, semantic: str) -> None:
    assert semantic_version(version) == semantic


def test_a_gpu_without_mig_is_whole_and_has_no_counters() -> None:
    found = offer(factory.inventory("tesla-t4"))
    assert [(each.name, each.uses, each.counter_set) for each in found.devices] == [("gpu-0", {}, "")]
    assert found.counter_sets == ()
    assert found.refusals == ()


@pytest.mark.parametrize(
    ("product", "enabled", "mode_changes", "kinds"),
    [
        ("h100-80gb-sxm", False, "without-reset", {"gpu", "mig"}),
        ("h100-80gb-sxm", True, "without-reset", {"gpu", "mig"}),
        ("h100-80gb-sxm", True, "never", {"mig"}),
        ("h100-80gb-sxm", False, "never", {"gpu"}),
        ("a100-sxm4-40gb", False, "without-reset", {"gpu"}),
        ("a100-sxm4-40gb", True, "without-reset", {"mig"}),
        ("a100-sxm4-40gb", False, "any", {"gpu", "mig"}),
        ("a30-24gb", True, "any", {"gpu", "mig"}),
    ],
)
def test_a_change_of_mig_mode_is_offered_where_it_is_permitted(
    product: str, enabled: bool, mode_changes: ModeChanges, kinds: set[str]
) -> None:
    found = offer(factory.inventory(product, enabled=enabled), mode_changes)
    assert {each.attributes["type"].string_value for each in found.devices} == kinds
    assert len(found.refusals) == (len(kinds) == 1)


@pytest.mark.parametrize("mode", [Mig(True, "enabled", "disabled"), Mig(True, "disabled", "enabled")])
def test_a_gpu_that_waits_for_a_reset_is_offered_as_it_is(mode: Mig) -> None:
    found = offer(changed(factory.inventory("a100-sxm4-40gb"), mig=mode), "any")
    assert {each.attributes["type"].string_value for each in found.devices} == {"mig" if mode.enabled else "gpu"}
    assert "waits for a reset" in found.refusals[0]


def test_a_gpu_that_cannot_be_reset_keeps_its_mode() -> None:
    found = offer(changed(factory.inventory("a100-sxm4-40gb"), resettable=False), "any")
    assert [each.name for each in found.devices] == ["gpu-0"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"lost": True}, "fallen off the bus"),
        ({"passthrough": True}, "VMs have it"),
        ({"vgpus": (Vgpu("0000:07:00.4", 1, "x"),)}, "VMs have it"),
        ({"virtual": GpuVirtualization(functions=(VirtualFunction("0000:07:00.4", 0),))}, "prepared for them"),
        ({"minor": -1}, "minor number"),
        ({"family": "unheard-of"}, "its profiles are not known"),
    ],
)
def test_a_gpu_that_is_not_offered_does_not_affect_the_others(fields: dict[str, object], why: str) -> None:
    found = offer(changed(factory.inventory("a100-sxm4-40gb", "tesla-t4", enabled=True), **fields))
    assert [each.name for each in found.devices] == ["gpu-1"]
    assert why in found.refusals[0]
    assert found.refusals[0].startswith("GPU 0000:07:00.0 ")


def test_only_a_whole_idle_instance_is_warm() -> None:
    def warm(*instances: str, held: bool = False) -> list[str]:
        node = factory.with_instances(factory.inventory("a100-sxm4-40gb"), 0, *instances)
        gpu = node.gpus[0]
        inside = tuple(msgspec.structs.replace(each, held=held) for each in gpu.instances)
        return [each.name for each in offer(changed(node, instances=inside)).devices if each.warm]

    assert warm("3g.20gb@4") == ["gpu-0-mig-3g20gb-9-4"]
    assert warm("3g.20gb@4", held=True) == []
    assert warm("3g.20gb@4:") == []
    assert warm("3g.20gb@4:1c.3g.20gb;1c.3g.20gb") == []


@pytest.mark.parametrize("family", catalog.family_names())
def test_the_names_of_every_family_are_labels_and_unique(family: str) -> None:
    found = offer(factory.inventory(family, family), "any")
    names = [each.name for each in found.devices]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 and name.replace("-", "").isalnum() and name.islower() for name in names)


def test_gpus_are_in_the_order_of_their_addresses() -> None:
    node = factory.inventory("tesla-t4*3")
    mixed = msgspec.structs.replace(node, gpus=(node.gpus[2], node.gpus[0], node.gpus[1]))
    assert offer(mixed) == offer(node)
    assert isinstance(mixed.gpus[0], Gpu)
