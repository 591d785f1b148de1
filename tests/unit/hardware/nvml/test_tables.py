"""The catalog against a driver's list: no notes if they agree, and a named difference if they do not."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.placement import Placement
from aliquot.hardware.nvml.profiles import GpuProfileRow
from aliquot.hardware.nvml.table_from_rows import compute_profiles, family_from_rows, profile_name
from aliquot.hardware.nvml.tables import correct_family
from unit.hardware.nvml.rows import rows_of

A100 = catalog.family("a100-40gb")
KNOWN_MEMORY = [name for name in catalog.family_names() if all(p.memory_mib for p in catalog.family(name).profiles)]


def with_row(profile_id: int, **changes: object) -> tuple[GpuProfileRow, ...]:
    return tuple(msgspec.structs.replace(r, **changes) if r.id == profile_id else r for r in rows_of(A100))


@pytest.mark.parametrize("name", catalog.family_names())
@pytest.mark.parametrize("placements", [True, False])
def test_a_driver_that_agrees_changes_nothing(name: str, placements: bool) -> None:
    family = catalog.family(name)
    assert correct_family(family, rows_of(family, placements=placements)) == (None, ())


def test_a_driver_that_lists_nothing_changes_nothing() -> None:
    assert correct_family(A100, ()) == (None, ())


def test_memory_is_never_compared() -> None:
    assert correct_family(A100, with_row(19, memory_mib=4800)) == (None, ())


def test_another_name_makes_the_catalogs_an_alias_everywhere() -> None:
    changed, notes = correct_family(A100, with_row(20, name="1g.6gb+me"))
    assert changed is not None
    assert notes == ()
    assert changed.by_id[20].name == "1g.6gb+me"
    assert changed.by_name["1g.5gb+me"].id == 20
    assert changed.by_id[20].default_compute.name == "1g.6gb+me"
    assert [r.profiles for r in changed.rules if r.kind == "at-most"] == [("1g.6gb+me",)]
    assert changed.source == "nvml"


def test_other_numbers_are_the_drivers_with_a_note() -> None:
    changed, notes = correct_family(A100, with_row(14, count=2, placements=(Placement(0, 2), Placement(4, 2))))
    assert changed is not None
    assert changed.by_id[14].max_instances == 2
    assert changed.by_id[14].starts == (0, 4)
    assert notes == (
        "a100-40gb: the driver's values for 2g.10gb differ from the catalog and are used: aliquot catalog check",
    )


def test_a_driver_with_other_engines_everywhere_is_one_line() -> None:
    rows = tuple(msgspec.structs.replace(row, engines={**row.engines, "jpeg": 5}) for row in rows_of(A100))
    changed, notes = correct_family(A100, rows)
    assert changed is not None
    assert {profile.engines["jpeg"] for profile in changed.profiles} == {5}
    assert len(notes) == 1
    assert all(profile.name in notes[0] for profile in A100.profiles)


def test_a_profile_that_the_driver_does_not_offer_is_gone_with_a_note() -> None:
    changed, notes = correct_family(A100, tuple(r for r in rows_of(A100) if r.id != 15))
    assert changed is not None
    assert 15 not in changed.by_id
    assert notes == ("a100-40gb: this driver does not offer 1g.10gb (it needs R525 or later)",)
    _, notes = correct_family(A100, tuple(r for r in rows_of(A100) if r.id not in (14, 9)))
    assert notes == ("a100-40gb: this driver does not offer 2g.10gb, 3g.20gb",)


def test_a_profile_with_an_index_from_the_future_is_taken_and_reported() -> None:
    new = GpuProfileRow(
        23, 77, "1g.5gb+new", 1, 2, 14, dict.fromkeys(catalog.ENGINES, 0), 4864, False, False, (Placement(3, 1),)
    )
    changed, notes = correct_family(A100, (*rows_of(A100), new))
    assert changed is not None
    assert changed.by_id[77].placements == (Placement(3, 1),)
    assert changed.by_id[77].attributes == ("new",)
    assert any("id 77" in note for note in notes)


def test_a_guessed_id_is_replaced_by_the_real_one() -> None:
    family = catalog.family("rtx-6000d-84gb")
    rows = tuple(msgspec.structs.replace(r, id=r.id - 960) for r in rows_of(family))
    changed, _ = correct_family(family, rows)
    assert changed is not None
    assert [p.id for p in changed.profiles] == [p.id - 960 for p in family.profiles]


@pytest.mark.parametrize("name", KNOWN_MEMORY)
def test_an_unknown_gpu_gets_the_geometry_that_the_catalog_has(name: str) -> None:
    # A known family, presented as unknown: ids, slices and placements match the reviewed table.
    known = catalog.family(name)
    made = family_from_rows("nvml-x", rows_of(known), known.architecture, "0x00000000")
    assert (made.memory_slices, made.compute_slices) == (known.memory_slices, known.compute_slices)
    for profile in known.profiles:
        twin = made.by_id[profile.id]
        assert twin.placements == profile.placements
        assert twin.name == profile.name
        assert twin.attributes == profile.attributes
        assert twin.default_compute.compute_slices == profile.compute_slices
    assert made.mode == known.mode


@pytest.mark.parametrize("name", [n for n in KNOWN_MEMORY if catalog.family(n).memory_slices in (4, 8)])
def test_placements_are_inferred_while_mig_mode_is_off(name: str) -> None:
    known = catalog.family(name)
    made = family_from_rows("nvml-x", rows_of(known, placements=False), known.architecture, "0x00000000")
    assert "placements" in made.estimates
    assert {p.id: p.placements for p in made.profiles} == {p.id: p.placements for p in known.profiles}


@pytest.mark.parametrize("name", ["a100-40gb", "a100-80gb", "h100-80gb-sxm", "a30-24gb"])
def test_names_follow_from_memory_where_a_driver_tells_none(name: str) -> None:
    family = catalog.family(name)
    total = family.products[0].memory_mib
    assert total is not None
    rows = rows_of(family)
    assert {r.id: profile_name(r, total) for r in rows} == {r.id: r.name for r in rows}


@pytest.mark.parametrize("slices", [1, 2, 3, 4, 7, 8])
def test_compute_profiles_have_one_default_and_fit(slices: int) -> None:
    made = compute_profiles("x", slices, 10)
    assert [c.compute_slices for c in made if c.default] == [slices]
    assert len({c.id for c in made}) == len(made)
    assert all(p.start + p.size <= max(slices, 1) for c in made for p in c.placements)
