"""Names in CDI files of any author, compared with the devices of a node."""

from __future__ import annotations

import pytest

from aliquot.containers.runtime.cdi_names import by_name, entries, name_of, stale
from unit.containers.runtime.nodes import all_devices, full_spec, nodes_of, spec, uuid

DEVICES = all_devices()
FIRST, SECOND = DEVICES[:2]


def test_the_uuid_goes_before_the_index() -> None:
    known = entries([("a.yaml", full_spec(DEVICES))])
    assert [name_of(d, known) for d in DEVICES] == [f"nvidia.com/gpu={d.uuid}" for d in DEVICES]


def test_a_file_of_nvidia_ctk_that_has_indices_alone() -> None:
    document = spec({d.index: nodes_of(d) for d in DEVICES}, kind="acme.com/gpu")
    known = entries([("a.json", document)])
    assert name_of(SECOND, known) == "acme.com/gpu=0:1"
    assert by_name(known, DEVICES)["0:1"] == SECOND.uuid


def test_a_place_goes_before_an_index() -> None:
    names = {"0:0": nodes_of(FIRST), "0000:07:00.0-3g.20gb-0": nodes_of(FIRST), "mig0:0": nodes_of(FIRST)}
    assert name_of(FIRST, entries([("a", spec(names))])) == "nvidia.com/gpu=0000:07:00.0-3g.20gb-0"


@pytest.mark.parametrize("wrong", [nodes_of(SECOND), nodes_of(FIRST)[:2], [*nodes_of(FIRST), *nodes_of(SECOND)], []])
def test_a_name_that_opens_something_else_is_none(wrong: list[str]) -> None:
    known = entries([("a", spec({FIRST.uuid: wrong}))])
    assert name_of(FIRST, known) == ""


def test_a_whole_gpu_in_mig_mode_and_all_are_no_device() -> None:
    everything = [p for d in DEVICES for p in nodes_of(d)]
    known = entries([("a", spec({"all": everything, "0": ["/dev/nvidia0"]}))])
    assert [name_of(d, known) for d in DEVICES] == [""] * 5
    assert stale(known, DEVICES) == ()


def test_another_simulated_nodes_file_is_not_ours() -> None:
    known = entries([("a", spec({FIRST.uuid: nodes_of(FIRST)}, simulated="/state/sim/n"))])
    assert name_of(FIRST, known) == ""
    assert name_of(FIRST, known, "/state/sim/n") == f"nvidia.com/gpu={FIRST.uuid}"
    assert FIRST.uuid not in {e.name for e in stale(known, (), "")}


def test_names_of_what_is_gone() -> None:
    known = entries([("a", full_spec(DEVICES))])
    assert stale(known, DEVICES) == ()
    left = tuple(d for d in DEVICES if d != FIRST)
    assert [e.name for e in stale(known, left)] == [FIRST.uuid, FIRST.index]
    # After a repartition, the same capabilities open another device, and the old UUID belongs to none.
    (rewritten,) = entries([("a", spec({uuid(0, 9): nodes_of(FIRST)}))])
    assert stale([rewritten], DEVICES) == (rewritten,)


def test_files_that_are_not_as_they_should_be() -> None:
    assert entries([("a", {"kind": "x/y", "devices": [7, {"name": 3}], "containerEdits": "no"})]) == ()
    (one,) = entries([("a", {"kind": "x/y", "devices": [{"name": "n", "containerEdits": {"deviceNodes": ["no"]}}]})])
    assert one.full == "x/y=n"
    assert not one.gpus
