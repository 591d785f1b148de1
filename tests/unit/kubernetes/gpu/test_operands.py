"""Operands that a plan affects, paused and restored as JSON merge patches of a node."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.plan import plan
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import (
    OPERANDS,
    VM_OPERANDS,
    NodeMarks,
    NodePatch,
    Operand,
    PauseRecord,
    merge_patches,
    operands_for,
    pause,
    restore,
)
from support.factory import inventory, with_instances

ALL = {operand.label: "true" for operand in OPERANDS}
PLUGIN, EXPORTER, DCGM = (names.DEPLOY_PREFIX + n for n in ("device-plugin", "dcgm-exporter", "dcgm"))


def merged(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386) as the API server does."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def patched(node: NodeMarks, patch: NodePatch) -> NodeMarks:
    """Return the node after the server has applied the real patch, through JSON."""
    document = {"metadata": {"labels": node.labels, "annotations": node.annotations}, "spec": {}}
    if node.unschedulable:
        document["spec"]["unschedulable"] = True  # type: ignore[assignment]
    after = merged(document, json.loads(json.dumps(patch.body())))
    metadata = after["metadata"]
    return NodeMarks(metadata["labels"], metadata["annotations"], after.get("spec", {}).get("unschedulable", False))


def test_the_operands_of_vms_have_their_own_word_and_are_restored_as_the_others() -> None:
    plugin, validator = (operand.label for operand in VM_OPERANDS)
    before = NodeMarks({plugin: "true", validator: "false", PLUGIN: "true"}, {})
    paused = patched(before, pause(before, VM_OPERANDS))
    assert paused.labels == {plugin: "paused-for-vgpu-change", validator: "false", PLUGIN: "true"}
    assert pause(paused, VM_OPERANDS) == NodePatch()
    assert patched(paused, restore(paused)) == before
    # What NVIDIA's manager has paused before it was replaced
    left = NodeMarks({plugin: "paused-for-vgpu-change", validator: "paused-for-vgpu-change"}, {})
    assert restore(left).labels == {plugin: "true", validator: "true"}
    assert patched(left, pause(left, VM_OPERANDS)).labels == left.labels


def desired_state(node: Inventory, profile: int | None, *, mig: bool = True) -> Desired:
    wanted = () if profile is None else (DesiredInstance(profile, "", (0,)),)
    return Desired((DesiredGpu(node.gpus[0].pci, mig, wanted),))


def named(operands: tuple[Operand, ...]) -> list[str]:
    return [operand.name for operand in operands]


def test_nothing_to_do_pauses_nothing() -> None:
    node = inventory("a100-sxm4-40gb", enabled=True)
    assert operands_for(plan(node, desired_state(node, None))) == ()


def test_other_instances_pause_what_looks_once() -> None:
    node = with_instances(inventory("a100-sxm4-40gb", enabled=True), 0, "1g.5gb@0")
    made = plan(node, desired_state(node, None))
    assert made.destroyed == 1
    assert named(operands_for(made)) == ["device-plugin", "gpu-feature-discovery", "dcgm-exporter", "client"]


@pytest.mark.parametrize("product", ["a100-sxm4-40gb", "h100-80gb-hbm3"])
def test_a_mode_change_pauses_what_keeps_gpus_open(product: str) -> None:
    # Covers a mode change with a reset (Ampere) and without one (Hopper).
    node = inventory(product)
    made = plan(node, desired_state(node, None))
    assert made.changes
    assert operands_for(made) == OPERANDS


def test_only_operands_that_run_here_are_paused() -> None:
    node = NodeMarks({PLUGIN: "true", EXPORTER: "false", "other": "x"})
    patch = pause(node, OPERANDS, requested="all-1g.5gb", now=12.0)
    assert patch.labels == {PLUGIN: names.PAUSED}
    after = patched(node, patch)
    assert after.pause_record == PauseRecord({PLUGIN: "true"}, False, "all-1g.5gb", 12.0)
    assert patched(after, restore(after)) == node


def test_what_was_left_paused_without_a_record_is_healed() -> None:
    node = NodeMarks(
        {PLUGIN: names.PAUSED, DCGM: "false", names.DEPLOY_PREFIX + "other": names.PAUSED, "x": names.PAUSED}
    )
    healed = {PLUGIN: "true", DCGM: "false", names.DEPLOY_PREFIX + "other": "true", "x": names.PAUSED}
    assert patched(node, restore(node)).labels == healed
    held = patched(node, pause(node, OPERANDS))
    assert held.labels == node.labels
    assert patched(held, restore(held)).labels == healed


def test_what_changed_meanwhile_is_left() -> None:
    node = NodeMarks({PLUGIN: "true", EXPORTER: "true", DCGM: "true"})
    held = patched(node, pause(node, OPERANDS))
    del held.labels[DCGM]
    meddled = msgspec.structs.replace(held, labels={**held.labels, EXPORTER: "false"})
    assert patched(meddled, restore(meddled)).labels == {PLUGIN: "true", EXPORTER: "false"}


def test_a_second_pause_keeps_what_the_first_recorded() -> None:
    # The agent died between the pause and the change, and starts again with a request that needs less or more.
    node = NodeMarks({PLUGIN: "custom", DCGM: "true"})
    first = patched(node, pause(node, OPERANDS[:1], requested="a", now=1.0))
    second = patched(first, pause(first, OPERANDS, requested="b", now=2.0))
    assert second.pause_record == PauseRecord({PLUGIN: "custom", DCGM: "true"}, False, "b", 1.0)
    assert not pause(second, OPERANDS, requested="b", now=3.0)
    assert patched(second, restore(second)) == node


def test_an_operand_switched_on_again_meanwhile_is_paused_with_its_new_value() -> None:
    node = NodeMarks({PLUGIN: "true"})
    held = patched(node, pause(node, OPERANDS))
    changed = msgspec.structs.replace(held, labels={PLUGIN: "mine"})
    again = patched(changed, pause(changed, OPERANDS))
    assert again.labels == {PLUGIN: names.PAUSED}
    assert patched(again, restore(again)).labels == {PLUGIN: "mine"}


@pytest.mark.parametrize("cordon", [False, True])
def test_a_pause_that_was_undone_is_made_again(cordon: bool) -> None:
    # The operands have their previous values again. The record is unchanged, but the pause must be made again.
    paused = patched(NodeMarks(ALL, {}), pause(NodeMarks(ALL, {}), OPERANDS, requested="w", now=1.0, cordon=cordon))
    undone = msgspec.structs.replace(paused, labels=paused.labels | {PLUGIN: "true"}, unschedulable=False)
    assert patched(undone, pause(undone, OPERANDS, requested="w", now=2.0, cordon=cordon)) == paused
    assert not pause(paused, OPERANDS, requested="w", now=2.0, cordon=cordon)


def test_a_record_that_cannot_be_read_is_removed() -> None:
    for text in ("", "{", "[]", '{"former": 3}'):
        node = NodeMarks({PLUGIN: names.PAUSED, DCGM: "false"}, {names.PAUSE_ANNOTATION: text})
        assert patched(node, restore(node)) == NodeMarks({PLUGIN: "true", DCGM: "false"})


def test_only_our_cordon_is_lifted() -> None:
    theirs = NodeMarks(ALL, {}, True)
    held = patched(theirs, pause(theirs, OPERANDS, cordon=True))
    assert held.pause_record is not None
    assert not held.pause_record.cordoned
    assert patched(held, restore(held)) == theirs
    free = NodeMarks(ALL)
    ours = patched(free, pause(free, (), cordon=True))
    assert ours.unschedulable
    again = patched(ours, pause(ours, OPERANDS, cordon=True))
    assert patched(again, restore(again)) == free


def test_a_patch_can_be_tied_to_what_was_read_and_carry_more() -> None:
    patch = merge_patches(pause(NodeMarks(ALL), OPERANDS[:1]), NodePatch({names.STATE_LABEL: "pending"}))
    body = patch.body("41")
    assert body["metadata"]["resourceVersion"] == "41"
    assert body["metadata"]["labels"] == {PLUGIN: names.PAUSED, names.STATE_LABEL: "pending"}
    assert NodePatch().body() == {}


VALUES = st.sampled_from(["true", "false", "", "mine"])
LABELS = st.dictionaries(st.sampled_from([*ALL, "unrelated"]), VALUES)
NODES = st.builds(NodeMarks, LABELS, st.dictionaries(st.sampled_from(["note"]), st.text()), st.booleans())
PAUSES = st.lists(st.tuples(st.sets(st.sampled_from(OPERANDS)), st.booleans(), st.sampled_from("ab")), max_size=4)


@given(NODES, PAUSES)
def test_law_restore_undoes_any_pauses(node: NodeMarks, pauses: list[tuple[set[Operand], bool, str]]) -> None:
    # However many runs paused and died, one restore returns the node to its state. A second one has nothing to do.
    now = node
    for operands, cordon, text in pauses:
        now = patched(now, pause(now, operands, cordon=cordon, requested=text))
        for operand in operands:
            assert now.labels.get(operand.label) in (None, "false", names.PAUSED)
            assert (operand.label in now.labels) == (operand.label in node.labels)
        assert {k for k, v in now.labels.items() if v == "false"} == {k for k, v in node.labels.items() if v == "false"}
        assert not pause(now, operands, cordon=cordon, requested=text, now=9.0)
    now = patched(now, restore(now))
    assert now == node
    assert not restore(now)


@given(NODES, st.sets(st.sampled_from(OPERANDS)), st.dictionaries(st.sampled_from(list(ALL)), VALUES))
def test_law_restore_never_overwrites_a_foreign_change(
    node: NodeMarks, operands: set[Operand], edits: dict[str, str]
) -> None:
    held = patched(node, pause(node, operands))
    meddled = msgspec.structs.replace(held, labels={**held.labels, **edits})
    after = patched(meddled, restore(meddled))
    assert {k: after.labels[k] for k in edits} == edits
    assert {k: v for k, v in after.labels.items() if k not in edits} == {
        k: v for k, v in node.labels.items() if k not in edits
    }


@given(st.dictionaries(st.sampled_from(list(ALL)), st.sampled_from(["true", "false", names.PAUSED])), st.text())
def test_law_nothing_stays_paused(labels: dict[str, str], record: str) -> None:
    node = NodeMarks(labels, {names.PAUSE_ANNOTATION: record})
    after = patched(node, restore(node))
    assert names.PAUSED not in after.labels.values()
    assert not after.annotations
