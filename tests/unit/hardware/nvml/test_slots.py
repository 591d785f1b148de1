"""Mirrored slots: the swapped halves of a board show in the ids of its instances."""

from __future__ import annotations

import pytest

from aliquot.core.model import catalog
from aliquot.core.model.inventory import GpuInstance
from aliquot.hardware.nvml.partition_ids import slots_mirrored


def instance(id: int, placement: str) -> GpuInstance:
    return GpuInstance(id=id, profile="x", profile_id=0, placement=placement)


@pytest.mark.parametrize(
    ("family", "id", "placement", "expected"),
    [
        ("a100-40gb", 7, "0:1", False),
        ("a100-40gb", 13, "6:1", False),
        ("a100-40gb", 11, "0:1", True),
        ("a100-40gb", 14, "3:1", True),
        ("a100-40gb", 1, "0:4", False),
        ("a100-40gb", 1, "4:4", True),
        ("a100-40gb", 2, "0:4", True),
        ("a100-40gb", 5, "4:2", False),
        ("a100-40gb", 5, "0:2", True),
        ("a100-40gb", 0, "0:8", None),
        ("a30-24gb", 4, "1:1", False),
        ("a30-24gb", 4, "3:1", True),
        ("rtx-pro-6000-96gb", 5, "6:3", False),
        ("rtx-pro-6000-96gb", 2, "6:6", False),
        ("a100-40gb", 99, "0:1", None),
    ],
)
def test_swapped(family: str, id: int, placement: str, expected: bool | None) -> None:
    assert slots_mirrored(catalog.family(family), [instance(id, placement)]) is expected


def test_an_empty_gpu_does_not_tell() -> None:
    assert slots_mirrored(catalog.family("a100-40gb"), []) is None


def test_the_whole_gpu_does_not_tell_but_the_next_may() -> None:
    assert slots_mirrored(catalog.family("a100-40gb"), [instance(0, "0:8"), instance(8, "5:1")]) is True
