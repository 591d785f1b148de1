"""The writes between two publications: as few as possible, and no state in between that over-commits."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.dra.model.publication import Publication
from aliquot.kubernetes.dra.model.ranking import PublishPolicy
from aliquot.kubernetes.dra.model.slices import build_slices
from aliquot.kubernetes.dra.model.validation import find_faults
from aliquot.kubernetes.dra.model.writes import SliceWrites, plan_writes
from support import factory
from unit.kubernetes.dra.model.nodes import A100, NAMING, desired

replace = msgspec.structs.replace
NODE = "node-1"


def built(node: Inventory, *allocated: str, layout: SliceLayout | None = None) -> tuple[ResourceSlice, ...]:
    found = desired(node, allocated, PublishPolicy(layout=layout or SliceLayout()))
    return build_slices(Publication(found.devices, found.counter_sets, found.gpus), NAMING, NODE, layout=layout)


def stored(slices: tuple[ResourceSlice, ...]) -> tuple[ResourceSlice, ...]:
    return tuple(
        replace(each, metadata=ObjectMeta(name=each.name, uid=f"uid-{each.name}", resource_version="7"))
        for each in slices
    )


def writes(current: tuple[ResourceSlice, ...], wanted: tuple[ResourceSlice, ...]) -> SliceWrites:
    return plan_writes(current, wanted, NODE)


def test_a_new_pool_is_created_in_the_first_generation() -> None:
    wanted = built(factory.inventory(A100, enabled=True))
    found = writes((), wanted)
    assert found.create == wanted
    assert found.count == 2


def test_nothing_is_written_when_nothing_changed() -> None:
    slices = built(factory.inventory(A100, enabled=True))
    assert writes(stored(slices), slices) == SliceWrites()


def test_a_changed_slice_is_one_write_of_the_same_generation() -> None:
    node = factory.inventory(A100, enabled=True)
    current = stored(built(node))
    found = writes(current, built(node, "gpu-0-mig-1g5gb-19-6"))
    assert (found.count, len(found.update)) == (1, 1)
    assert found.update[0].spec.pool == current[1].spec.pool
    assert found.update[0].metadata == current[1].metadata


def test_an_update_whose_order_matters_has_no_invalid_state_in_between() -> None:
    # The GPU is gone: its devices must go before its counters.
    both = factory.inventory(f"{A100}*2", enabled=True)
    one = replace(both, gpus=both.gpus[:1])
    current = stored(built(both))
    found = writes(current, built(one))
    state = {each.name: each for each in current}
    for each in found.update:
        state[each.name] = each
        assert find_faults(tuple(state.values()), NODE) == ()
    assert [len(each.spec.devices) > 0 for each in found.update] == [True, False]
    back = writes(stored(built(one)), built(both))
    assert [len(each.spec.devices) > 0 for each in back.update] == [False, True]


def test_a_device_that_moves_between_slices_needs_a_new_generation() -> None:
    # Without it, the device would be in two slices or in none for a moment. In none, its counters would be free.
    node = factory.inventory(f"{A100}*2", enabled=True)
    slices = built(node, layout=SliceLayout(gpus_per_slice=1))
    first, second = slices[1], slices[2]
    moved = first.spec.devices[0]
    swapped = (
        slices[0],
        replace(first, spec=replace(first.spec, devices=first.spec.devices[1:])),
        replace(second, spec=replace(second.spec, devices=(*second.spec.devices, moved))),
    )
    found = writes(stored(slices), swapped)
    assert {each.spec.pool.generation for each in found.update} == {2}
    assert len(found.update) == 3


def test_another_number_of_slices_needs_a_new_generation() -> None:
    node = factory.inventory(f"{A100}*4", enabled=True)
    found = writes(stored(built(node)), built(node, layout=SliceLayout(gpus_per_slice=2)))
    assert (len(found.create), len(found.update), len(found.delete)) == (1, 2, 0)
    back = writes(stored(built(node, layout=SliceLayout(gpus_per_slice=2))), built(node))
    assert [each.name for each in back.delete] == ["02-gpu.nvidia.com-node-1-aliquot"]
    assert {each.spec.pool.generation for each in (*found.create, *found.update, *back.update)} == {2}


def test_pools_change_one_by_one() -> None:
    node = factory.inventory(f"{A100}*2", enabled=True)
    layout = SliceLayout(pool_per_gpu=True)
    found = writes(stored(built(node, layout=layout)), built(node, "gpu-1-mig-7g40gb-0-0", layout=layout))
    assert [each.spec.pool.name for each in found.update] == ["node-1-aliquot-0000-0f-00-0"]
    over = writes(stored(built(node)), built(node, layout=layout))
    assert (len(over.create), len(over.delete)) == (4, 2)
