"""Whole label sets of several nodes. ``ALIQUOT_GOLDEN=write pytest tests/unit/kubernetes`` rewrites the files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aliquot.core.config.settings import MigStrategy
from aliquot.kubernetes.gpu.gfd_labels import labels
from support.simnodes import Node

FOLDER = Path(__file__).parents[3] / "golden/labels"
WRITE = os.environ.get("ALIQUOT_GOLDEN") == "write"

NODES: dict[str, tuple[str, MigStrategy, list[tuple[str, str]]]] = {
    "dgx-a100-single-3g": ("dgx-a100", "single", [("all", "3g.20gb*2")]),
    "dgx-a100-single-invalid": ("dgx-a100", "single", [("0-3", "3g.20gb*2")]),
    "dgx-a100-none": ("dgx-a100", "none", []),
    "h100-mixed-balanced": ("dgx-h100", "mixed", [("all", "1g.10gb*2,2g.20gb,3g.40gb")]),
    "a100-mixed-compute-instances": ("a100-sxm4-40gb*2", "mixed", [("0", "1c.3g.20gb*3,1g.5gb+me")]),
    "two-products-mixed": ("a30,a100-sxm4-40gb*2,tesla-t4", "mixed", [("0", "1g.6gb*4"), ("1", "3g.20gb*2")]),
    "rtx-pro-6000-max-q-single": ("rtx-pro-6000-blackwell-max-q-workstation-edition", "single", [("all", "1g.24gb*4")]),
    "gb200-none": ("gb200*4", "none", []),
}


@pytest.mark.parametrize("name", NODES)
def test_whole_label_sets(name: str) -> None:
    template, strategy, cuts = NODES[name]
    node = Node(template)
    for gpus, desired_gpu in cuts:
        node.cut(gpus, desired_gpu)
    found = labels(*node.read(), strategy, now=1_700_000_000)
    text = "".join(f"{label}={value}\n" for label, value in sorted(found.items()))
    path = FOLDER / f"{name}.txt"
    if WRITE:
        path.write_text(text)
    assert text == path.read_text()
