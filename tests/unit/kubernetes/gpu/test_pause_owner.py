"""Ownership of a pause: which agent may restore the operands."""

from __future__ import annotations

import json

import msgspec

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import OPERANDS, NodeMarks, NodePatch, PauseRecord, pause, restore
from aliquot.kubernetes.gpu.pause_owner import PauseOwner

PLUGIN = f"{names.DEPLOY_PREFIX}device-plugin"
ME = PauseOwner("me", "1:10", "boot-1", "process 1")
SAME_LOCK = PauseOwner("other", "1:10", "boot-1", "process 2")
OTHER_LOCK = PauseOwner("other", "1:11", "boot-1", "process 3")
OTHER_BOOT = PauseOwner("other", "1:11", "boot-0", "process 4")


def test_an_agent_undoes_its_own_and_what_a_dead_one_left() -> None:
    assert ME.may_undo(ME)
    assert ME.may_undo(None), "versions before owners"
    assert ME.may_undo(SAME_LOCK), "it held the lock that this agent holds"
    assert ME.may_undo(OTHER_BOOT)
    assert not ME.may_undo(OTHER_LOCK)


def test_without_a_lock_only_what_has_no_owner() -> None:
    assert PauseOwner().may_undo(None)
    assert not PauseOwner().may_undo(SAME_LOCK)
    assert not PauseOwner().may_undo(OTHER_BOOT)


def paused(owner: PauseOwner | None) -> NodeMarks:
    record = PauseRecord({PLUGIN: "true"}, False, "wish", 1.0, owner)
    return NodeMarks({PLUGIN: names.PAUSED}, {names.PAUSE_ANNOTATION: msgspec.json.encode(record).decode()})


def test_the_record_of_another_living_agent_is_neither_replaced_nor_undone() -> None:
    assert pause(paused(OTHER_LOCK), OPERANDS, requested="new", owner=ME) == NodePatch()
    assert restore(paused(OTHER_LOCK), ME) == NodePatch()


def test_a_dead_agents_record_is_taken_over() -> None:
    patch = pause(paused(SAME_LOCK), OPERANDS, requested="wish", owner=ME)
    assert patch.labels == {}
    assert json.loads(patch.annotations[names.PAUSE_ANNOTATION] or "")["owner"]["agent"] == "me"
    assert restore(paused(SAME_LOCK), ME).labels == {PLUGIN: "true"}


class Before(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record as versions before owners read and write it."""

    previous: dict[str, str] = msgspec.field(name="former", default_factory=dict)
    cordoned: bool = False
    request: str = msgspec.field(name="wish", default="")
    since: float = 0.0


def test_an_older_agent_reads_the_record_and_drops_its_owner() -> None:
    text = paused(OTHER_LOCK).annotations[names.PAUSE_ANNOTATION]
    read = msgspec.json.decode(text, type=Before)
    assert read.previous == {PLUGIN: "true"}
    again = NodeMarks({PLUGIN: names.PAUSED}, {names.PAUSE_ANNOTATION: msgspec.json.encode(read).decode()})
    assert restore(again, ME).labels == {PLUGIN: "true"}
