"""GRES types: as Slurm's NVML plugin forms them, and back."""

from __future__ import annotations

import pytest

from aliquot.core.model import catalog
from aliquot.slurm.gpus import gres_types as types
from support.factory import gpu, inventory, with_instances

NAMES = [
    ("a100-sxm4-40gb", "nvidia_a100-sxm4-40gb", "nvidia_a100", "a100"),
    ("a100-80gb-pcie", "nvidia_a100_80gb_pcie", "nvidia_a100_80gb_pcie", "a100_80gb_pcie"),
    ("a30", "nvidia_a30", "nvidia_a30", "a30"),
    ("h100-80gb-hbm3", "nvidia_h100_80gb_hbm3", "nvidia_h100_80gb_hbm3", "h100_80gb_hbm3"),
]


@pytest.mark.parametrize(("product", "whole", "full", "short"), NAMES)
def test_names_are_the_plugins_and_a_part_of_them(product: str, whole: str, full: str, short: str) -> None:
    layout_gpu = gpu(product)
    assert types.whole_type(layout_gpu, "full") == whole
    assert types.whole_type(layout_gpu) == short
    profile = catalog.family(layout_gpu.family or "").by_name
    name = next(iter(profile))
    assert types.slice_type(layout_gpu, name, "full") == f"{full}_{name}"
    for style in types.STYLES:
        assert types.slice_type(layout_gpu, name, style) in f"{full}_{name}"
        assert types.whole_type(layout_gpu, style) in whole


def test_a_compute_instance_that_shares_has_its_own_type() -> None:
    node = with_instances(inventory("a100-sxm4-40gb"), 0, "3g.20gb@4:1c.3g.20gb;2c.3g.20gb")
    instance = node.gpus[0].instances[0]
    found = [types.type_of(node.gpus[0], instance, c) for c in instance.compute_instances]
    assert found == ["a100_1c.3g.20gb", "a100_2c.3g.20gb"]
    assert types.type_of(node.gpus[0], instance, None) == "a100_3g.20gb"


@pytest.mark.parametrize("product", [row[0] for row in NAMES])
@pytest.mark.parametrize("style", types.STYLES)
def test_every_profile_comes_back(product: str, style: types.TypeStyle) -> None:
    layout_gpu = gpu(product)
    for profile in catalog.family(layout_gpu.family or "").by_name.values():
        for name in (profile.name, *(c.name for c in profile.compute)):
            assert types.profile_of(types.slice_type(layout_gpu, name, style), [layout_gpu]) == name
    assert types.profile_of(types.whole_type(layout_gpu, style), [layout_gpu]) is None


@pytest.mark.parametrize(
    "text", ["", "a100", "a100_9g.5gb", "h100_80gb_hbm3_1g.10gb", "3g.40gb", "a100_3g.20gb_x", "_"]
)
def test_what_no_gpu_here_can_have_is_nothing(text: str) -> None:
    assert types.profile_of(text, [gpu("a100-sxm4-40gb")]) is None


def test_without_gpus_nothing_is_known() -> None:
    assert types.profile_of("3g.20gb", []) is None
