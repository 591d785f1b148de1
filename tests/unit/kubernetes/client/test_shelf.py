"""What the agent knows of a kind: what comes late hides nothing newer, and our own writes are no news."""

from __future__ import annotations

import time

import pytest

from aliquot.kubernetes.client.errors import ForbiddenError, NotFoundError
from aliquot.kubernetes.client.informer import LATE_S, Informer
from aliquot.kubernetes.client.objects import ObjectMeta
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice, SRIOVGPUDeviceSpec


def gpu(
    version: int, *, enabled: bool = False, uid: str = "u", node: str = "n", ending: bool = False
) -> SRIOVGPUDevice:
    meta = ObjectMeta(
        name="n-000008000",
        uid=uid,
        resource_version=str(version),
        deletion_timestamp="2026-01-01T00:00:00Z" if ending else None,
    )
    return SRIOVGPUDevice(metadata=meta, spec=SRIOVGPUDeviceSpec("0000:08:00.0", node, enabled))


class Woken:
    def __init__(self) -> None:
        self.times = 0
        self.shelf = Informer(SRIOVGPUDevice, self, is_own=lambda item: item.spec.node_name == "n")

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def woken() -> Woken:
    return Woken()


def test_what_we_wrote_is_seen_at_once_and_its_echo_is_no_news(woken: Woken) -> None:
    woken.shelf._replace([gpu(1)])
    woken.shelf.record_write(gpu(2, enabled=True))
    before = woken.times
    woken.shelf._put(gpu(1))
    woken.shelf._put(gpu(2, enabled=True))
    assert woken.shelf.items == (gpu(2, enabled=True),)
    assert woken.times == before


def test_a_change_by_somebody_else_wakes(woken: Woken) -> None:
    woken.shelf._replace([gpu(1)])
    before = woken.times
    woken.shelf._put(gpu(3, enabled=True))
    assert woken.times == before + 1
    assert woken.shelf.by_name["n-000008000"].spec.enabled


def test_an_answer_that_comes_after_something_newer_hides_nothing(woken: Woken) -> None:
    woken.shelf._put(gpu(5, enabled=True))
    woken.shelf.record_write(gpu(4))
    assert woken.shelf.items[0].spec.enabled


def test_an_object_made_anew_under_its_name_is_another(woken: Woken) -> None:
    woken.shelf._put(gpu(5))
    woken.shelf._put(gpu(3, uid="another", enabled=True))
    assert woken.shelf.items[0].metadata.uid == "another"
    woken.shelf._drop(gpu(6, uid="u"))
    assert len(woken.shelf.items) == 1


def test_what_we_deleted_does_not_come_back_by_a_late_event(woken: Woken) -> None:
    woken.shelf._put(gpu(1))
    woken.shelf.record_deletion(gpu(1))
    woken.shelf._put(gpu(2))
    woken.shelf._replace([gpu(2)])
    assert woken.shelf.items == ()


def test_taking_the_last_finalizer_of_what_was_to_go_ends_it(woken: Woken) -> None:
    woken.shelf._put(gpu(1, ending=True))
    woken.shelf.record_write(gpu(2, ending=True))
    assert woken.shelf.items == ()


def test_other_nodes_objects_are_forgotten(woken: Woken) -> None:
    woken.shelf._replace([gpu(1, node="other"), gpu(2, uid="v")])
    assert [item.metadata.uid for item in woken.shelf.items] == ["v"]
    woken.shelf._put(gpu(3, uid="v", node="other"))
    assert woken.shelf.items == ()


def test_a_kind_that_the_cluster_does_not_have_is_known_and_absent(woken: Woken) -> None:
    woken.shelf._report(NotFoundError("no such kind"))
    assert (woken.shelf.synced, woken.shelf.absent, woken.shelf.unavailable) == (True, True, "")
    woken.shelf._report(None)
    woken.shelf._replace([])
    assert not woken.shelf.absent


def test_a_missing_right_is_told_and_leaves_what_is_known(woken: Woken) -> None:
    woken.shelf._replace([gpu(1)])
    woken.shelf._report(ForbiddenError("may not list"))
    assert woken.shelf.unavailable == "may not list"
    assert len(woken.shelf.items) == 1
    woken.shelf._report(None)
    assert woken.shelf.unavailable == ""


def test_a_store_that_went_back_to_a_backup_is_believed(woken: Woken) -> None:
    """Its versions are lower than those that we have seen: what the watch lists anew is the truth all the same."""
    woken.shelf._replace([gpu(7)])
    woken.shelf.record_write(gpu(8, enabled=True))
    woken.shelf._put(gpu(8, enabled=True))
    before = woken.times
    woken.shelf._put(gpu(3))
    assert not woken.shelf.items[0].spec.enabled
    assert woken.times == before + 1


def test_an_echo_that_never_comes_is_not_waited_for_for_ever(woken: Woken, monkeypatch: pytest.MonkeyPatch) -> None:
    woken.shelf._replace([gpu(7)])
    woken.shelf.record_write(gpu(8, enabled=True))
    later = time.monotonic() + LATE_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    woken.shelf._put(gpu(3))
    assert not woken.shelf.items[0].spec.enabled
