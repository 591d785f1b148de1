"""ResourceSlices: as few writes as possible, and never a moment in which the scheduler may combine too much."""

from __future__ import annotations

import random

import msgspec
import pytest

from aliquot.kubernetes.client.errors import ConflictError
from aliquot.kubernetes.client.objects import ObjectMeta
from aliquot.kubernetes.dra.agent.resource_objects import ResourceSlice
from aliquot.kubernetes.dra.agent.slice_publisher import slice_name
from aliquot.kubernetes.dra.plugin.errors import OtherDriverError
from unit.kubernetes.dra.agent.bench import run
from unit.kubernetes.dra.agent.slices import DRIVER, POOL, Bed, content, device


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_nothing_is_written_when_equal(bed: Bed) -> None:
    async def story() -> None:
        wanted = content(counters=("gpu-0",)), content("a", "b")
        await bed.publish(*wanted)
        assert bed.server.log == ["create", "create"]
        first = bed.server.items[slice_name(0, POOL, DRIVER)]
        assert first.metadata.owner_references[0].uid == "node-uid"
        assert first.spec["pool"] == {"name": POOL, "generation": 1, "resourceSliceCount": 2}
        await bed.publish(*wanted)
        bed.restart()
        await bed.publish(*wanted)
        assert len(bed.server.log) == 2

    run(story())


def test_the_time_that_the_server_adds_to_a_taint_is_no_difference(bed: Bed) -> None:
    tainted = msgspec.structs.replace(
        content(), devices=(device("a", taints=[{"key": "gpu", "value": "xid-79", "effect": "NoSchedule"}]),)
    )

    async def story() -> None:
        await bed.publish(tainted)
        await bed.publish(tainted)
        assert bed.server.log == ["create"]

    run(story())


def test_a_new_order_is_one_write(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(content("a", "b", "c"))
        await bed.publish(content("c", "a", "b", "d"))
        assert (bed.server.log, bed.server.devices()) == (["create", "patch"], ["c", "a", "b", "d"])
        assert bed.server.items[slice_name(0, POOL, DRIVER)].generation == 1

    run(story())


def test_a_free_device_is_tainted_then_removed(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(content("a", "b"))
        assert await bed.publish(content("a")) == 5.0
        assert bed.server.devices() == ["a", "b!"]
        bed.now += 4.0
        assert await bed.publish(content("a")) == 1.0
        assert len(bed.server.log) == 2
        bed.now += 1.0
        await bed.publish(content("a"))
        assert bed.server.devices() == ["a"]
        # wanted again in time
        await bed.publish(content("a", "b"))
        await bed.publish(content("a"))
        await bed.publish(content("a", "b"))
        assert bed.server.devices() == ["a", "b"]
        # the next agent does not know since when it is tainted
        await bed.publish(content("a"))
        bed.restart()
        bed.now += 60.0
        assert await bed.publish(content("a")) == 5.0
        assert bed.server.devices() == ["a", "b!"]

    run(story())


def test_an_allocated_device_stays_as_it_is(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(content("a", "b"))
        other = msgspec.structs.replace(content("a"), devices=({"name": "a", "attributes": {}},))
        await bed.publish(other, allocated=("a", "b"))
        bed.now += 60.0
        await bed.publish(other, allocated=("a", "b"))
        assert bed.server.log == ["create"]
        await bed.publish(other, allocated=None)
        assert bed.server.log == ["create"]
        await bed.publish(other, allocated=("b",))
        assert bed.server.items[slice_name(0, POOL, DRIVER)].devices[0]["attributes"] == {}
        assert bed.server.devices() == ["a", "b"]

    run(story())


def test_a_device_moves_only_over_its_absence(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(content("a", "b"), content("c"))
        await bed.publish(content("a"), content("c", "b"))
        assert (bed.server.devices(0), bed.server.devices(1)) == (["a", "b!"], ["c"])
        bed.now += 5.0
        assert await bed.publish(content("a"), content("c", "b")) == 0.0
        assert await bed.publish(content("a"), content("c", "b")) is None
        assert (bed.server.devices(0), bed.server.devices(1)) == (["a"], ["c", "b"])
        assert bed.server.holes == 1  # while the first two slices were created

    run(story())


def test_a_slice_that_another_program_deletes_or_changes_is_repaired(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(content("a"))
        name = slice_name(0, POOL, DRIVER)
        del bed.server.items[name]  # as kubelet does for a driver that it thinks gone, before the watch tells
        await bed.publish(content("a", "b"))
        assert bed.server.devices() == ["a", "b"]
        found = bed.server.items[name]
        changed = msgspec.structs.replace(
            found, metadata=msgspec.structs.replace(found.metadata, resource_version="900")
        )
        bed.server.items[name] = changed
        await bed.publish(content("a"))
        assert bed.server.devices() == ["a", "b!"]
        bed.restart()
        bed.publisher.slices.record_deletion(bed.server.items[name])  # it exists, and the cache does not know
        bed.publisher.slices._deleted.clear()
        await bed.publish(content("a", "c"))
        assert bed.server.devices() == ["a", "c", "b!"]

    run(story())


def test_a_lasting_conflict_is_an_error(bed: Bed) -> None:
    def fail(_: str) -> None:
        raise ConflictError("it changes all the time")

    bed.server.before = fail
    with pytest.raises(ConflictError):
        run(bed.publish(content("a")))


def test_surplus_slices_go_when_they_are_empty(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(content("a"), content("b"))
        await bed.publish(content("a"), allocated=("b",))
        bed.now += 6.0
        await bed.publish(content("a"), allocated=("b",))
        assert bed.server.log == ["create", "create"]
        await bed.publish(content("a"))
        bed.now += 6.0
        await bed.publish(content("a"))
        assert (len(bed.server.items), bed.server.devices()) == (1, ["a"])
        assert bed.server.items[slice_name(0, POOL, DRIVER)].spec["pool"]["generation"] == 2
        await bed.publish()
        bed.now += 6.0
        await bed.publish()
        assert not bed.server.items

    run(story())


def test_another_driver_of_the_same_name_is_refused(bed: Bed) -> None:
    foreign = ResourceSlice(metadata=ObjectMeta(name="n1-gpu-x"), spec={"driver": DRIVER, "pool": {"name": "n1"}})
    bed.publisher.slices.record_write(None, foreign)
    with pytest.raises(OtherDriverError, match="n1-gpu-x") as caught:
        run(bed.publish(content("a")))
    assert "kubectl delete resourceslice n1-gpu-x" in str(caught.value.next_step)
    assert not bed.server.items


def test_a_full_slice_waits_for_the_room_of_hidden_devices(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(content(*(f"a{n}" for n in range(64))))
        wanted = content(*(f"a{n}" for n in range(60)), "b")
        await bed.publish(wanted)
        assert "b" not in bed.server.devices()
        bed.now += 5.0
        while (await bed.publish(wanted)) == 0.0:
            pass
        assert bed.server.devices()[-1] == "b"

    run(story())


def test_the_scheduler_never_sees_a_wrong_pool() -> None:
    dice = random.Random("slices")
    bed = Bed()

    async def story() -> None:
        names = [f"d{n}" for n in range(12)]
        await bed.publish(content(counters=("g",)), content(*names[:6]), content(*names[6:]))
        bed.server.holes = 0
        for _ in range(150):
            bed.now += dice.choice((0.1, 1.0, 6.0))
            present = [name.rstrip("!") for place in (1, 2) for name in bed.server.devices(place)]
            tainted = {name for place in (1, 2) for name in bed.server.devices(place) if name.endswith("!")}
            free = [name for name in present if f"{name}!" not in tainted]
            allocated = frozenset(dice.sample(free, min(len(free), dice.randint(0, 4))))
            chosen = dice.sample(names, dice.randint(0, 12))
            cut = dice.randint(0, len(chosen))
            await bed.publish(
                content(counters=("g",)), content(*chosen[:cut]), content(*chosen[cut:]), allocated=allocated
            )
        assert bed.server.holes == 0
        assert {each.generation for each in bed.server.items.values()} == {1}

    run(story())


def test_a_long_name_stays_valid() -> None:
    name = slice_name(3, "n" * 250, DRIVER)
    assert len(name) <= 253
    assert name.startswith("03-gpu.aliquot.dev-nnn")
    assert name != slice_name(3, "n" * 249 + "m", DRIVER)
