"""Slices from a publication, and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.client.codec import decode
from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.dra.model.publication import Publication, next_publication
from aliquot.kubernetes.dra.model.ranking import PublishPolicy
from aliquot.kubernetes.dra.model.slices import build_slices, quantity, read_publication, slice_name
from aliquot.kubernetes.dra.model.validation import find_faults
from support import factory
from unit.kubernetes.dra.model.nodes import A100, NAMING, desired, offered

NOW = datetime(2026, 11, 28, tzinfo=UTC)
LAYOUTS = (
    SliceLayout(),
    SliceLayout(gpus_per_slice=2),
    SliceLayout(pool_per_gpu=True),
    SliceLayout(combined=True),
    SliceLayout(combined=True, pool_per_gpu=True),
)


def published(node: Inventory, *allocated: str, layout: SliceLayout | None = None) -> Publication:
    policy = PublishPolicy(per_profile=50, layout=layout or SliceLayout())
    return next_publication(Publication(), desired(node, allocated, policy), allocated, NOW, policy.layout)


def slices(node: Inventory, layout: SliceLayout, *allocated: str) -> tuple[ResourceSlice, ...]:
    found = published(node, *allocated, layout=layout)
    return build_slices(found, NAMING, "node-1", layout=layout)


def test_a_slice_as_it_is_written() -> None:
    node = factory.inventory("tesla-t4", A100, enabled=True)
    counters, devices = slices(node, SliceLayout(), "gpu-1-mig-7g40gb-0-0")
    assert (counters.name, devices.name) == (
        "00-gpu.nvidia.com-node-1-aliquot",
        "01-gpu.nvidia.com-node-1-aliquot",
    )
    written = json.loads(msgspec.json.encode(devices))
    assert written["spec"]["pool"] == {"name": "node-1-aliquot", "generation": 1, "resourceSliceCount": 2}
    assert (written["spec"]["driver"], written["spec"]["nodeName"]) == ("gpu.nvidia.com", "node-1")
    whole, placed = written["spec"]["devices"]
    assert (whole["name"], "consumesCounters" in whole) == ("gpu-0", False)
    assert placed["capacity"]["memory"] == {"value": "40448Mi"}
    assert placed["capacity"]["multiprocessors"] == {"value": "98"}
    assert placed["consumesCounters"][0]["counterSet"] == "gpu-1-counter-set"
    assert placed["consumesCounters"][0]["counters"]["memory-slice-7"] == {"value": "1"}
    written = json.loads(msgspec.json.encode(counters))
    assert "devices" not in written["spec"]
    assert written["spec"]["sharedCounters"][0]["counters"]["compute-slices"] == {"value": "7"}


@pytest.mark.parametrize(("memory", "text"), [(40960 << 20, "40Gi"), (40448 << 20, "40448Mi"), (512, "512")])
def test_memory_is_written_as_the_api_server_has_it(memory: int, text: str) -> None:
    assert quantity("memory", memory).value == text


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_valid_and_is_read_back(layout: SliceLayout) -> None:
    node = factory.inventory(f"{A100}*16", "tesla-t4", enabled=True)
    taken = ("gpu-3-mig-3g20gb-9-4", "gpu-15-mig-1g5gb-19-0")
    found = published(node, *taken, layout=layout)
    built = build_slices(found, NAMING, "node-1", layout=layout)
    assert find_faults(built, "node-1", combined=layout.combined) == ()
    decoded = tuple(decode(msgspec.json.encode(each), ResourceSlice) for each in built)
    assert decoded == built
    again = read_publication(reversed(decoded))
    assert {each.name: each for each in again.devices} == {each.name: each for each in found.devices}
    assert again.gpus == found.gpus
    assert build_slices(again, NAMING, "node-1", layout=layout) == built


@pytest.mark.parametrize("family", catalog.family_names())
def test_all_placements_of_every_family_are_valid_in_every_layout(family: str) -> None:
    node = factory.inventory(f"{family}*3", enabled=True)
    offer = offered(node)
    every = Publication(offer.devices, offer.counter_sets)
    for layout in LAYOUTS[1:]:
        built = build_slices(every, NAMING, "node-1", layout=layout)
        assert find_faults(built, "node-1", combined=layout.combined) == ()
        assert sum(len(each.spec.devices) for each in built) == len(every.devices)


def test_nine_gpus_have_two_slices_of_counters_which_come_first() -> None:
    built = slices(factory.inventory(f"{A100}*9", enabled=True), SliceLayout())
    assert [len(each.spec.shared_counters) for each in built] == [8, 1, 0, 0]
    assert [each.name for each in built] == sorted(each.name for each in built)
    assert {each.spec.pool.resource_slice_count for each in built} == {4}


def test_a_lost_gpu_does_not_move_devices_to_another_slice() -> None:
    node = factory.inventory(f"{A100}*16", enabled=True)
    lost = msgspec.structs.replace(node.gpus[0], lost=True)
    without = msgspec.structs.replace(node, gpus=(lost, *node.gpus[1:]))
    for layout in LAYOUTS[:2]:
        built = slices(without, layout)
        assert find_faults(built, "node-1") == ()
        before = {device.name: each.name for each in slices(node, layout) for device in each.spec.devices}
        after = {device.name: each.name for each in built for device in each.spec.devices}
        assert all(before[name] == after[name] for name in before.keys() & after.keys())


def test_slices_stay_when_their_devices_go() -> None:
    node = factory.inventory(f"{A100}*9", enabled=True)
    found = published(node)
    full = build_slices(found, NAMING, "node-1")
    empty = build_slices(msgspec.structs.replace(found, devices=()), NAMING, "node-1")
    assert [each.name for each in empty] == [each.name for each in full]
    assert find_faults(empty, "node-1") == ()


def test_a_pool_of_each_gpu_is_named_by_its_address() -> None:
    built = slices(factory.inventory(f"{A100}*2", enabled=True), SliceLayout(pool_per_gpu=True))
    assert [each.spec.pool.name for each in built] == [
        "node-1-aliquot-0000-07-00-0",
        "node-1-aliquot-0000-07-00-0",
        "node-1-aliquot-0000-0f-00-0",
        "node-1-aliquot-0000-0f-00-0",
    ]


def test_only_the_highest_generation_is_read() -> None:
    node = factory.inventory(A100, enabled=True)
    old = build_slices(published(node), NAMING, "node-1")
    new = build_slices(published(node, "gpu-0-mig-7g40gb-0-0"), NAMING, "node-1", generation=2)
    assert [each.name for each in read_publication((*old, *new)).devices] == ["gpu-0-mig-7g40gb-0-0"]


def test_a_device_of_another_shape_is_read_without_its_placement() -> None:
    built = build_slices(Publication(gpus=("0000:07:00.0",)), NAMING, "node-1")
    foreign = msgspec.convert({"name": "disk", "capacity": {"size": {"value": "much"}}}, type(_device()))
    spec = msgspec.structs.replace(built[0].spec, devices=(foreign,))
    found = read_publication([msgspec.structs.replace(built[0], spec=spec)]).devices[0]
    assert (found.profile, found.profile_id, found.capacity, found.uses) == (None, -1, {"size": 0}, {})


def _device() -> object:
    return slices(factory.inventory("tesla-t4"), SliceLayout())[0].spec.devices[0]


def test_a_long_name_is_shortened_and_stays_unique() -> None:
    first = slice_name(1, "gpu.nvidia.com", "n" * 250 + "a")
    second = slice_name(1, "gpu.nvidia.com", "n" * 250 + "b")
    assert len(first) == len(second) == 253
    assert first != second
    assert first.startswith("01-gpu.nvidia.com-n")
