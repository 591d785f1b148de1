"""Informer cache of a kind: late data hides nothing newer, own writes are not reported, and who gets which update."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.foundation.logfmt import agent_log
from aliquot.kubernetes.client import informer as informers
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError
from aliquot.kubernetes.client.informer import LATE_S, Informer, InformerGroup
from aliquot.kubernetes.client.objects import ConfigMap, ObjectMeta
from aliquot.kubernetes.client.watch import FullList, ObjectChanged, ObjectDeleted
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice, SRIOVGPUDeviceSpec

NAME = "n-000008000"


def gpu(
    version: int, *, enabled: bool = False, uid: str = "u", node: str = "n", ending: bool = False
) -> SRIOVGPUDevice:
    deleted = "2026-01-01T00:00:00Z" if ending else None
    meta = ObjectMeta(name=NAME, uid=uid, resource_version=str(version), deletion_timestamp=deleted)
    return SRIOVGPUDevice(metadata=meta, spec=SRIOVGPUDeviceSpec("0000:08:00.0", node, enabled))


class Bed:
    """An informer, and the keys that it reported."""

    def __init__(self, **options: Any) -> None:
        self.reported: list[set[str]] = []
        self.informer = Informer(SRIOVGPUDevice, self._changed, **options)

    def _changed(self, keys: set[tuple[str, str]]) -> None:
        self.reported.append({name for _, name in keys})

    def listed(self, *items: SRIOVGPUDevice) -> None:
        self.informer.apply(FullList(items))
        self.reported.clear()

    def put(self, item: SRIOVGPUDevice) -> None:
        self.informer.apply(ObjectChanged(item))

    def drop(self, item: SRIOVGPUDevice) -> None:
        self.informer.apply(ObjectDeleted(item))

    @property
    def known(self) -> SRIOVGPUDevice | None:
        return self.informer.get(NAME)


@pytest.fixture
def bed() -> Bed:
    return Bed(is_own=lambda item: item.spec.node_name == "n")


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic() + LATE_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: now)


# -- the cache, and its listeners


def test_a_list_is_all_there_is(bed: Bed) -> None:
    assert not bed.informer.synced
    bed.informer.apply(FullList((gpu(1),)))
    assert (bed.informer.synced, bed.informer.items, bed.reported) == (True, (gpu(1),), [{NAME}])
    bed.informer.apply(FullList(()))
    assert (bed.informer.items, bed.reported[1:]) == ((), [{NAME}])


def test_what_another_process_changes_is_reported(bed: Bed) -> None:
    bed.listed(gpu(1))
    bed.put(gpu(3, enabled=True))
    assert bed.informer.by_name == {NAME: gpu(3, enabled=True)}
    bed.put(gpu(3, enabled=True))
    bed.drop(gpu(4))
    assert bed.reported == [{NAME}, {NAME}]
    assert bed.informer.items == ()


Maps = dict[str, tuple[str, int]]
maps = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.sampled_from("xyz"), st.integers(1, 4)))


def config_maps(rows: Maps) -> tuple[ConfigMap, ...]:
    return tuple(
        ConfigMap(ObjectMeta(name=name, namespace="ns", uid=uid), {"text": str(number)})
        for name, (uid, number) in rows.items()
    )


@given(maps, maps)
def test_of_a_list_that_comes_again_what_differs_is_reported_and_nothing_else(first: Maps, second: Maps) -> None:
    reported: list[set[tuple[str, str]]] = []
    informer = Informer(ConfigMap, reported.append, relevant_part=lambda item: item.data)
    informer.apply(FullList(config_maps(first)))
    assert reported.pop() == {("ns", name) for name in first}
    informer.apply(FullList(config_maps(second)))
    differing = {("ns", name) for name in {*first, *second} if first.get(name) != second.get(name)}
    assert reported == ([differing] if differing else [])
    assert sorted(item.name for item in informer.items) == sorted(second)


def test_what_a_list_tells_once_more_stays_the_same_object(bed: Bed) -> None:
    # A listener that keeps data derived from an object need not derive it again.
    bed.listed(gpu(1))
    known = bed.known
    bed.listed(gpu(1))
    assert bed.known is known


def test_a_list_that_comes_again_forgets_what_went_and_keeps_what_we_wrote_since(bed: Bed) -> None:
    bed.listed(gpu(1))
    bed.informer.record_write(gpu(1), gpu(3, enabled=True))
    bed.informer.apply(FullList((gpu(2),)))
    assert (bed.known, bed.reported) == (gpu(3, enabled=True), [])
    bed.informer.apply(FullList(()))
    assert (bed.known, bed.reported, bed.informer._written) == (None, [{NAME}], {})


def test_objects_are_known_by_namespace_and_name() -> None:
    informer = Informer(ConfigMap)
    maps = [ConfigMap(metadata=ObjectMeta(name="m", namespace=each, uid=each)) for each in ("a", "b")]
    informer.apply(FullList(tuple(maps)))
    assert [informer.get("m", "a"), informer.get("m", "b"), informer.get("m")] == [*maps, None]


def test_a_change_of_what_does_not_matter_is_kept_and_not_reported() -> None:
    bed = Bed(relevant_part=lambda item: item.spec)
    bed.listed(gpu(1))
    bed.put(gpu(2))
    assert (bed.known, bed.reported) == (gpu(2), [])
    bed.put(gpu(3, enabled=True))
    assert bed.reported == [{NAME}]


def test_what_is_not_ours_is_forgotten(bed: Bed) -> None:
    bed.informer.apply(FullList((gpu(1, node="other"), gpu(2, uid="v"))))
    assert [item.metadata.uid for item in bed.informer.items] == ["v"]
    bed.reported.clear()
    bed.put(gpu(3, uid="v", node="other"))
    assert (bed.informer.items, bed.reported) == ((), [{NAME}])
    bed.put(gpu(4, uid="v", node="other"))
    bed.informer.record_write(None, gpu(5, uid="v", node="other"))
    assert (bed.informer.items, bed.reported) == ((), [{NAME}])


def test_an_object_made_again_under_its_name_is_another(bed: Bed) -> None:
    bed.listed(gpu(5))
    bed.put(gpu(3, uid="another", enabled=True))
    bed.drop(gpu(6))
    assert bed.known == gpu(3, uid="another", enabled=True)
    assert bed.reported == [{NAME}]


# -- own writes


def test_what_we_wrote_is_seen_at_once_and_its_echo_is_no_news(bed: Bed) -> None:
    bed.listed(gpu(1))
    bed.informer.record_write(gpu(1), gpu(2, enabled=True))
    bed.put(gpu(1))
    bed.put(gpu(2, enabled=True))
    assert (bed.informer.items, bed.reported) == ((gpu(2, enabled=True),), [])
    bed.put(gpu(3))
    assert bed.reported == [{NAME}]


def test_what_we_made_is_there_before_the_watch_tells(bed: Bed) -> None:
    bed.listed()
    bed.informer.record_write(None, gpu(2))
    bed.put(gpu(2))
    assert (bed.known, bed.reported) == (gpu(2), [])


def test_a_list_from_before_our_write_does_not_take_it_back(bed: Bed) -> None:
    bed.informer.record_write(None, gpu(2, enabled=True))
    bed.listed(gpu(1))
    assert bed.known == gpu(2, enabled=True)


@pytest.mark.parametrize("meanwhile", [gpu(5, enabled=True), gpu(5, enabled=True, uid="another")])
def test_an_answer_that_comes_after_something_newer_hides_nothing(bed: Bed, meanwhile: SRIOVGPUDevice) -> None:
    bed.listed(gpu(1))
    bed.put(meanwhile)
    bed.informer.record_write(gpu(1), gpu(4))
    assert bed.known == meanwhile


def test_an_answer_that_comes_after_the_end_of_its_object_does_not_bring_it_back(bed: Bed) -> None:
    bed.listed(gpu(1))
    bed.put(gpu(2))
    bed.drop(gpu(3))
    bed.informer.record_write(gpu(1), gpu(2))
    assert bed.known is None


def test_a_write_that_changed_nothing_leaves_nothing_to_wait_for(bed: Bed) -> None:
    bed.listed(gpu(5))
    bed.informer.record_write(gpu(5), gpu(5))
    bed.put(gpu(3))
    assert bed.known == gpu(3)


def test_a_write_that_changed_nothing_leaves_what_is_waited_for(bed: Bed) -> None:
    bed.listed(gpu(8))
    bed.informer.record_write(gpu(8), gpu(10, enabled=True))
    bed.informer.record_write(gpu(10, enabled=True), gpu(10, enabled=True))
    bed.put(gpu(9))
    assert (bed.known, bed.reported) == (gpu(10, enabled=True), [])


def test_what_we_made_stays_until_a_list_of_later_lacks_it(bed: Bed) -> None:
    bed.informer.record_write(None, gpu(12))
    bed.informer.apply(FullList((), "11"))
    assert bed.known == gpu(12)
    bed.informer.apply(FullList((), "13"))
    assert bed.known is None


def test_a_store_that_went_back_to_a_backup_is_believed(bed: Bed) -> None:
    # Its versions are lower than those that the informer has read: the new list is nevertheless correct.
    bed.listed(gpu(7))
    bed.informer.record_write(gpu(7), gpu(8, enabled=True))
    bed.put(gpu(8, enabled=True))
    bed.put(gpu(3))
    assert (bed.known, bed.reported) == (gpu(3), [{NAME}])


def test_an_object_of_a_backup_that_we_had_deleted_is_believed(bed: Bed) -> None:
    bed.listed(gpu(7))
    bed.informer.record_deletion(gpu(7))
    bed.drop(gpu(8))
    bed.put(gpu(3))
    assert bed.known == gpu(3)


def test_an_echo_that_never_comes_is_not_waited_for_for_ever(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.listed(gpu(7))
    bed.informer.record_write(gpu(7), gpu(8, enabled=True))
    later(monkeypatch)
    bed.put(gpu(3))
    assert bed.known == gpu(3)


def test_what_we_deleted_does_not_come_back_by_way_of_another_node(bed: Bed) -> None:
    bed.listed(gpu(1))
    bed.informer.record_deletion(gpu(1))
    bed.put(gpu(2, node="other"))
    bed.put(gpu(3))
    assert bed.known is None


def test_what_we_deleted_does_not_come_back_by_a_late_event(bed: Bed) -> None:
    bed.listed(gpu(1))
    bed.informer.record_deletion(gpu(1))
    bed.put(gpu(2))
    bed.informer.apply(FullList((gpu(2),)))
    assert bed.informer.items == ()


def test_a_deletion_that_the_watch_never_tells_is_not_believed_for_ever(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.listed(gpu(1))
    bed.informer.record_deletion(gpu(1))
    later(monkeypatch)
    bed.put(gpu(2))
    assert bed.known == gpu(2)


def test_taking_the_last_finalizer_of_what_was_to_go_ends_it(bed: Bed) -> None:
    bed.listed(gpu(1, ending=True))
    bed.informer.record_write(gpu(1, ending=True), gpu(2, ending=True))
    bed.put(gpu(1, ending=True))
    assert bed.informer.items == ()


def test_what_our_own_acts_leave_in_memory_goes(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.listed(gpu(1))
    bed.informer.record_write(gpu(1), gpu(2))
    bed.put(gpu(2))
    for number in range(10):
        bed.informer.record_deletion(gpu(3, uid=f"u{number}"))
    later(monkeypatch)
    bed.informer.record_deletion(gpu(3, uid="last"))
    assert (bed.informer._written, list(bed.informer._deleted)) == ({}, ["last"])


# -- unreadable objects


def test_a_kind_that_the_cluster_does_not_have_is_known_and_absent(bed: Bed) -> None:
    bed.informer.note_failure(NotFoundError("no such kind"))
    bed.informer.note_failure(NotFoundError("no such kind"))
    assert (bed.informer.synced, bed.informer.absent, bed.informer.unavailable) == (True, True, "")
    assert bed.reported == [set()]
    bed.informer.note_failure(ApiUnavailableError("away"))
    assert bed.informer.absent
    bed.informer.note_failure(None)
    assert not bed.informer.absent


def test_the_objects_of_a_kind_that_went_are_gone(bed: Bed) -> None:
    bed.listed(gpu(1))
    bed.informer.note_failure(NotFoundError("no such kind"))
    assert (bed.informer.items, bed.reported) == ((), [{NAME}])


def test_a_missing_right_is_reported_once_and_leaves_what_is_known(caplog: pytest.LogCaptureFixture) -> None:
    bed = Bed(log=agent_log)
    bed.listed(gpu(1))
    with caplog.at_level("INFO", agent_log.name):
        bed.informer.note_failure(ForbiddenError("may not list"))
        bed.informer.note_failure(ForbiddenError("may not list"))
        assert (bed.informer.unavailable, bed.informer.items) == ("may not list", (gpu(1),))
        bed.informer.note_failure(None)
    assert bed.informer.unavailable == ""
    assert caplog.messages == ["may not list", "sriovgpudevices.devices.harvesterhci.io can be read again"]
    assert bed.reported == [set(), set()]


# -- following


class Script:
    """A stub for the watch: reports one object and one failure, then nothing more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[dict[str, Any]] = []
        monkeypatch.setattr(informers, "watch", self.watch)

    async def watch(self, api: Api, kind: type[Any], **asked: Any) -> AsyncGenerator[Any, None]:
        report = asked.pop("report")
        self.asked.append(asked)
        yield FullList((gpu(1),))
        report(ForbiddenError("may not watch"))
        await asyncio.sleep(60)


def test_what_is_selected_is_asked_for_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    script, ended = Script(monkeypatch), list[bool]()

    async def play() -> None:
        informer = Informer(SRIOVGPUDevice, name="one", labels="a=b")
        await informer.close()
        informer.start(cast(Api, None), lambda task: ended.append(task.cancelled()))
        await asyncio.sleep(0.01)
        assert (informer.items, informer.unavailable, ended) == ((gpu(1),), "may not watch", [])
        await informer.close()
        await asyncio.sleep(0)

    asyncio.run(play())
    assert ended == [True]
    selected = {"namespace": None, "name": "one", "labels": "a=b", "fields": None}
    assert script.asked == [{**selected, "timing": informers.KIND_TIMING}]


def test_who_takes_failures_gets_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[ApiError | None] = []
    Script(monkeypatch)

    async def play() -> None:
        informer = Informer(SRIOVGPUDevice, report=failures.append)
        informer.start(cast(Api, None), lambda _: None)
        await asyncio.sleep(0.01)
        await informer.close()
        assert informer.unavailable == ""

    asyncio.run(play())
    assert [each and each.brief for each in failures] == ["may not watch"]


def test_a_group_follows_its_own_and_asks_those_that_it_shares_too(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch)
    shared, own = Informer(ConfigMap, name="shared"), Informer(SRIOVGPUDevice, name="own")
    group = InformerGroup(own, shared=(shared,))

    async def play() -> None:
        following = asyncio.create_task(group.follow(cast(Api, None)))
        await asyncio.sleep(0.01)
        assert (group.synced, group.unsynced, group.unavailable) == (False, "configmaps", "may not watch")
        shared.apply(FullList(()))
        assert (group.synced, group.unsynced) == (True, "")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(play())
    assert [asked["name"] for asked in script.asked] == ["own"]
