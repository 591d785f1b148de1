"""ResourceSlices: as few writes as possible, and never a moment in which the scheduler may combine too much."""

from __future__ import annotations

import random

import msgspec
import pytest

from aliquot.kubernetes.client.errors import ApiError, ConflictError, ForbiddenError
from aliquot.kubernetes.client.objects import ObjectMeta
from aliquot.kubernetes.client.server_version import ServerVersion
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.dra.model.validation import InvalidSlicesError
from aliquot.kubernetes.dra.plugin.errors import OtherDriverError
from unit.kubernetes.dra.agent.bench import run
from unit.kubernetes.dra.agent.slices import NAMES, NODE, Bed, choice, refusal


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_nothing_is_written_when_equal(bed: Bed) -> None:
    async def story() -> None:
        assert await bed.publish(choice(0, 1)) is None
        assert bed.server.log == ["create", "create"]
        for each in bed.server.items.values():
            assert each.metadata.owner_references[0].uid == "node-uid"
            assert (each.spec.node_name, each.spec.pool.generation) == ("n1", 1)
        await bed.publish(choice(0, 1))
        bed.restart()
        await bed.publish(choice(0, 1))
        assert len(bed.server.log) == 2

    run(story())


def test_a_new_order_is_one_write(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(choice(0, 1, 2))
        await bed.publish(choice(2, 0, 1, 3))
        assert bed.server.log[2:] == ["patch"]
        assert bed.server.devices() == [NAMES[n] for n in (2, 0, 1, 3)]

    run(story())


def test_a_free_device_is_tainted_then_removed(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(choice(0, 1))
        wait = await bed.publish(choice(0))
        assert bed.server.devices() == [NAMES[0], f"{NAMES[1]}!"]
        assert wait is not None
        assert 5 <= wait <= 6
        bed.wait(3)
        bed.restart()
        assert await bed.publish(choice(0)) is not None
        assert len(bed.server.devices()) == 2
        bed.wait(3)
        assert await bed.publish(choice(0)) is None
        assert bed.server.devices() == [NAMES[0]]

    run(story())


def test_an_allocated_device_stays_as_it_is(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(choice(0, 1))
        before = bed.server.devices()
        await bed.publish(choice(), allocated=[NAMES[1]])
        bed.wait(10)
        await bed.publish(choice(0, 1, attributes={}), allocated=[NAMES[1]])
        last = {d.name: d for each in bed.server.items.values() for d in each.spec.devices}
        assert set(last) == set(before)
        assert last[NAMES[1]].attributes

    run(story())


def test_nothing_is_hidden_while_the_claims_are_not_known(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(choice(0, 1))
        assert await bed.publish(choice(2), allocated=None) is None
        assert sorted(bed.server.devices()) == sorted(NAMES[:3])

    run(story())


def test_slices_that_others_delete_or_change_are_repaired(bed: Bed) -> None:
    async def story() -> None:
        await bed.publish(choice(0))
        bed.server.items.clear()  # kubelet thinks that the driver is gone
        for each in list(bed.publisher.slices.items):
            bed.publisher.slices.record_deletion(each)
        await bed.publish(choice(0))
        assert bed.server.devices() == [NAMES[0]]
        for name, each in bed.server.items.items():
            meta = msgspec.structs.replace(each.metadata, resource_version="999")
            bed.server.items[name] = msgspec.structs.replace(each, metadata=meta)
        await bed.publish(choice(0, 1))
        assert bed.server.devices() == [NAMES[0], NAMES[1]]

    run(story())


def test_a_conflict_is_tried_again_and_a_lasting_one_is_an_error(bed: Bed) -> None:
    async def story() -> None:
        bed.server.before = refusal(ConflictError("changed"))
        await bed.publish(choice(0))
        assert bed.server.devices() == [NAMES[0]]

        def never(_: str) -> None:
            raise ConflictError("changed")

        bed.server.before = never
        with pytest.raises(ConflictError):
            await bed.publish(choice(0, 1))

    run(story())


def test_another_driver_of_the_same_name_is_refused(bed: Bed) -> None:
    foreign = ResourceSlice(metadata=ObjectMeta(name="n1-gpu-x"))
    bed.publisher.slices.record_write(None, foreign)
    with pytest.raises(OtherDriverError, match="n1-gpu-x") as caught:
        run(bed.publish(choice(0)))
    assert "kubectl delete resourceslice n1-gpu-x" in (caught.value.next_step or "")
    assert not bed.server.log


def test_slices_that_the_scheduler_would_skip_are_never_written(bed: Bed) -> None:
    with pytest.raises(InvalidSlicesError, match="no-such"):
        run(bed.publish(choice(0, uses={"no-such": 1})))
    assert not bed.server.log


def test_the_scheduler_never_sees_a_wrong_pool() -> None:
    dice = random.Random("slices")

    async def story() -> None:
        bed, allocated = Bed(), set[str]()
        for _ in range(150):
            present = [name for name in bed.server.devices() if not name.endswith("!")]
            if present and dice.random() < 0.4:
                allocated.add(dice.choice(present))
            if allocated and dice.random() < 0.3:
                allocated.discard(dice.choice(sorted(allocated)))
            wanted = choice(*dice.sample(range(len(NAMES)), dice.randint(0, 12)))
            await bed.publish(wanted, allocated)
            if dice.random() < 0.1:
                bed.restart()
            bed.wait(dice.choice((0, 1, 6)))
        assert bed.server.holes == 1  # between the first two slices
        assert NODE.metadata.uid

    run(story())


def test_without_the_right_to_read_the_version_slices_have_the_present_shape(bed: Bed) -> None:
    async def forbidden() -> ServerVersion:
        raise ForbiddenError("cannot get path /version", status=403)

    bed.server.version = forbidden  # type: ignore[method-assign]
    assert run(bed.publish(choice(0, 1))) is None
    assert len(bed.server.items) == 2


def test_the_shape_of_slices_follows_the_version_of_the_api_server(bed: Bed) -> None:
    async def story() -> None:
        bed.server.release = (1, 34)
        await bed.publish(choice(0, 1))
        (only,) = bed.server.items.values()
        assert only.spec.devices
        assert only.spec.shared_counters
        await bed.publish(choice(0, 1, 2))
        assert bed.server.versions_read == 1
        bed.server.release = (1, 35)
        with pytest.raises(ApiError, match="exactly one"):
            await bed.publish(choice(0, 1, 2, 3))
        assert await bed.publish(choice(0, 1, 2, 3)) is None
        assert len(bed.server.items) == 2
        assert bed.server.versions_read == 2

    run(story())
