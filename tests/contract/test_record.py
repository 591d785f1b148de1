"""Output of ``catalog check`` and ``catalog record`` on simulated nodes: none without differences, exact otherwise."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot.core.model import catalog
from aliquot.errors import BlockedError
from aliquot.hardware import catalog_recorder as record
from contract.conftest import Machine

Start = Callable[[str], Machine]

ROOT = Path(__file__).parents[2]


def build_catalog() -> Any:
    spec = importlib.util.spec_from_file_location("build_catalog", ROOT / "tools/build_catalog.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("template", ["a100-sxm4-40gb,t4", "h100-80gb-hbm3", "a30*2", "rtx-pro-6000"])
def test_a_machine_like_the_catalog_agrees(machine: Start, template: str) -> None:
    node = machine(template)
    node.node.set_mode(0, True)
    node.node.create(0, 0)
    report = record.check(node.open("shim"))
    assert report.differences == ()
    assert report.agrees
    assert len(report.checked) == 1
    assert not any("placements" in line for line in report.unchecked)


def test_with_mig_mode_off_placements_are_not_checked(machine: Start) -> None:
    report = record.check(machine("a30").open("shim"))
    assert report.agrees
    assert any("placements" in line for line in report.unchecked)


def test_535_can_check_nothing(machine: Start) -> None:
    report = record.check(machine("a30@535.183.01").open("shim"))
    assert report.checked == ()
    assert "lists no profiles" in report.unchecked[0]


def test_every_difference_is_found(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    true = catalog.family("a30-24gb")
    changes: list[dict[str, Any]] = [
        {"sm": 15},
        {"engines": {**true.profiles[1].engines, "dec": 3}},
        {"starts": (0,), "max_instances": 1},
        {"compute": (msgspec.structs.replace(true.profiles[3].compute[0], starts=(0,)), *true.profiles[3].compute[1:])},
        {"name": "4g.23gb", "memory_mib": 1},
    ]
    wrong = tuple(msgspec.structs.replace(p, **c) for p, c in zip(true.profiles, changes, strict=True))
    node = machine("a30*2")
    node.node.set_mode(0, True)
    node.node.create(0, true.profiles[3].id)
    backend = node.open("shim")
    monkeypatch.setattr(catalog, "family", lambda name: msgspec.structs.replace(true, profiles=wrong))
    found = record.check(backend)
    reported = {(d.profile, d.what): d.note for d in found.differences}
    names = [p.name for p in wrong]
    assert reported == {
        (names[0], "SM"): False,
        (names[1], "dec engines"): False,
        (names[2], "placements"): False,
        (names[2], "instances at most"): False,
        (names[3], "compute instance profile 0"): False,
        (names[4], "name"): True,
        (names[4], "memory (MiB)"): True,
    }
    assert not found.agrees


def test_a_missing_and_an_extra_profile(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    true = catalog.family("a30-24gb")
    first = msgspec.structs.replace(true.profiles[0], id=77, nvml_index=33, name="1g.6gb+odd")
    stale = msgspec.structs.replace(true, profiles=(first, *true.profiles[1:]))
    backend = machine("a30").open("shim")
    monkeypatch.setattr(catalog, "family", lambda name: stale)
    lines = list(map(str, record.check(backend).differences))
    assert "a30-24gb 1g.6gb+odd: profile is absent here, id 77 in the catalog" in lines
    assert "a30-24gb 1g.6gb: profile is id 14 here, absent in the catalog" in lines


@pytest.mark.parametrize("family", ["a100-40gb", "h100-80gb-sxm", "a30-24gb", "rtx-pro-6000-96gb", "b200-180gb"])
def test_a_recorded_table_is_the_catalogs(machine: Start, family: str) -> None:
    # The catalog's builder accepts the recorded table and returns the table that the GPU was simulated from.
    from aliquot.sim.template import slug

    known = catalog.family(family)
    node = machine(slug(known.products[0].name))
    node.node.set_mode(0, True)
    node.node.create(0, known.profiles[0].id)
    text = record.record(node.open("shim"), date="2026-08-01")
    document = yaml.safe_load(text)
    assert "2026-08-01" in text
    assert node.open("direct").read().driver in document["notes"][0]
    made = msgspec.convert(build_catalog().family(document), catalog.Family)
    assert made.name == family
    assert (made.memory_slices, made.compute_slices) == (known.memory_slices, known.compute_slices)
    assert made.mode == known.mode
    for profile in known.profiles:
        twin = made.by_id[profile.id]
        facts = (profile.name, profile.nvml_index, profile.max_instances, profile.placements, profile.attributes)
        assert (twin.name, twin.nvml_index, twin.max_instances, twin.placements, twin.attributes) == facts
        assert twin.confidence["placements"] == "captured"
    first = known.profiles[0]
    assert [(c.id, c.placements, c.default) for c in made.by_id[first.id].compute] == [
        (c.id, c.placements, c.default) for c in first.compute
    ]


def test_the_schema_is_that_of_the_reviewed_files(machine: Start) -> None:
    reviewed = yaml.safe_load((ROOT / "catalog/mig/a100-40gb.yaml").read_text())
    node = machine("a100-sxm4-40gb")
    node.node.set_mode(0, True)
    recorded = yaml.safe_load(record.record(node.open("shim"), date="2026-08-01", name="a100-again"))
    assert recorded["family"] == "a100-again"
    assert set(recorded) == set(reviewed)
    optional = {"since_driver", "note", "cuda_min", "cuda_confidence", "id_guess"}
    for key in ("geometry", "mode", "driver"):
        assert set(recorded[key]) == set(reviewed[key]) - optional
    ours, theirs = recorded["profiles"][0], reviewed["profiles"][0]
    assert set(ours) - optional == set(theirs) - optional
    assert set(ours["compute_instances"][0]) == set(theirs["compute_instances"][0])
    assert [p["nvml_name"] for p in recorded["profiles"]] == [p["nvml_name"] for p in reviewed["profiles"]]
    assert set(recorded["products"][0]) == set(reviewed["products"][1])


def test_nothing_to_record(machine: Start) -> None:
    with pytest.raises(BlockedError) as caught:
        record.record(machine("t4").open("shim"), date="2026-08-01")
    assert caught.value.next_step
    with pytest.raises(BlockedError):
        record.record(machine("a30@535.183.01").open("shim"), date="2026-08-01")


def test_without_nvml(machine: Start) -> None:
    with pytest.raises(BlockedError):
        record.check(machine("a30").open("direct"))
