"""Parsing of nvidia-smi output from real hosts."""

from __future__ import annotations

import pytest

from aliquot.core.model import catalog
from aliquot.core.model.placement import Placement
from aliquot.hardware.nvidia_smi import list_output as lists
from system.sim.captures import answer
from system.sim.smi import Smi

A30 = "a30-535.183.01.txt"
A100 = "a100-pcie-80gb-515.86.01.txt"


def test_instances_of_an_a30() -> None:
    found = lists.parse_instances(answer(A30, "nvidia-smi mig -lgi", 2))
    assert [(i.gpu, i.instance, i.name, i.profile, str(i.place)) for i in found] == [
        (0, 3, "1g.6gb", 14, "0:1"),
        (0, 4, "1g.6gb", 14, "1:1"),
        (0, 2, "2g.12gb", 5, "2:2"),
    ]
    assert lists.parse_instances(answer(A30, "nvidia-smi mig -lgi")) == (), "No GPU instances found: Not Found"


def test_compute_instances_of_an_a100() -> None:
    found = lists.parse_compute_instances(answer(A100, "nvidia-smi mig -i 0 -gi 1 -lci"))
    assert [(i.instance, i.compute, i.name, i.profile, str(i.place)) for i in found] == [
        (1, 0, "1c.3g.40gb", 0, "0:1"),
        (1, 1, "1c.3g.40gb", 0, "1:1"),
    ]


def test_the_profile_of_a_double_memory_slice_has_its_compute_instance_by_another_id() -> None:
    row = "|   0      9       MIG 1g.20gb          7         0          0:1     |"
    assert lists.parse_compute_instances(row)[0].profile == 7


def test_gpus_and_mig_devices_of_an_a30() -> None:
    (gpu,) = lists.parse_gpus(answer(A30, "nvidia-smi -L", 1))
    assert (gpu.index, gpu.uuid) == (0, "GPU-1e44b340-5807-0dbe-62e6-343a6b8b8bcd")
    assert gpu.mig_devices[0] == (0, "MIG-1b8509c0-e60d-502d-8263-d434867998aa")
    assert [number for number, _ in gpu.mig_devices] == [0, 1, 2]


def test_a_name_that_fills_its_column() -> None:
    text = "GPU 0: NVIDIA X (UUID: GPU-1)\n  MIG 1g.24gb+me.allDevice  0: (UUID: MIG-2)\n"
    assert lists.parse_gpus(text)[0].mig_devices == ((0, "MIG-2"),)
    row = "|   0  MIG 1g.16gb+me.all1015     1/1        15.50      No     40     3     3   |"
    (profile,) = lists.parse_profiles(row, {})
    assert (profile.name, profile.id) == ("1g.16gb+me.all", 1015)


def test_profiles_and_placements_of_an_rtx_pro_6000() -> None:
    file = "rtx-pro-6000-se.txt"
    places = lists.parse_placements(answer(file, "nvidia-smi mig -i 0 -lgipp"))
    assert places[5] == (Placement(0, 6), Placement(6, 6))
    rows = lists.parse_profiles(answer(file, "nvidia-smi mig -i 0 -lgip"), places)
    family = catalog.family("rtx-pro-6000-96gb")
    known = {p.id: p for p in family.profiles}
    assert len(rows) == 11
    for row in rows:
        ours = known[row.id]
        assert (row.name, row.slices, row.count, row.engines, row.index) == (
            *(ours.name, ours.compute_slices, ours.max_instances, ours.engines, ours.nvml_index),
        )
        assert row.placements == ours.placements
        assert row.gfx == ("+gfx" in ours.name)


@pytest.mark.parametrize(
    ("file", "command", "family"),
    [
        ("h100-pcie-80gb-570.169.txt", "nvidia-smi mig -lgip", "h100-80gb-pcie"),
        (A30, "nvidia-smi mig -lgip", "a30-24gb"),
        ("a100-pcie-40gb-lgip.txt", "nvidia-smi mig -i 00000000:04:00.0 -lgip", "a100-40gb"),
        ("gh200-96gb.txt", "nvidia-smi mig -lgip", "h100-96gb"),
    ],
)
def test_profiles_as_captured_are_those_of_the_catalog(file: str, command: str, family: str) -> None:
    # Memory distinguishes two profiles of one slice: 1g.10gb and 1g.20gb have separate NVML indexes.
    rows = {r.id: r for r in lists.parse_profiles(answer(file, command), {})}
    assert rows
    for profile in catalog.family(family).profiles:
        if profile.id in rows:
            row = rows[profile.id]
            assert (row.index, row.slices, row.count) == (
                *(profile.nvml_index, profile.compute_slices, profile.max_instances),
            )
    assert len({r.index for r in rows.values()}) == len(rows)


def test_what_was_made() -> None:
    response = answer(A100, "nvidia-smi mig -i 0 -gi 1 -cci 1c.3g.40gb,1c.3g.40gb")
    assert lists.parse_created_id(response) == 0
    assert lists.parse_created_id(answer(A100, "nvidia-smi mig -i 0 -cgi 3g.40gb,3g.40gb")) == 1
    assert lists.parse_created_id("All done.") is None


def test_every_list_of_every_family_is_read_whole() -> None:
    for name in catalog.family_names():
        from aliquot.sim.template import slug

        family = catalog.family(name)
        node = Smi(slug(family.products[0].name))
        rows = lists.parse_profiles(node.ok("mig -lgip"), lists.parse_placements(node.ok("mig -lgipp")))
        ours = {p.id: (p.name, p.nvml_index, p.placements) for p in family.profiles}
        reported = {r.id: (r.name, r.index, r.placements) for r in rows}
        assert reported == {number: ours[number] for number in reported}, name
        assert len(reported) >= len(ours) - 3, "older drivers leave some out"
