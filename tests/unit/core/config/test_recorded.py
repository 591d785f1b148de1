"""Named configs from released products: each gives the geometry that it promises, on every GPU that it names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml as pyyaml

from aliquot.core.config.load import load
from aliquot.core.config.select.named_config import select
from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Inventory
from support.factory import gpu, inventory
from unit.core.config.helpers import counts

RECORDED = Path(__file__).parents[3] / "recorded" / "mig-parted"
EXPECTED: Any = pyyaml.load((RECORDED / "expected.yaml").read_text(), pyyaml.CSafeLoader)
CASES: list[dict[str, Any]] = EXPECTED["cases"]


def messages(desired_gpu: DesiredGpu) -> str | Counter[str]:
    return counts(desired_gpu) if desired_gpu.mig else "disabled"


def promised(text: str) -> str | Counter[str]:
    if text in ("disabled", "empty"):
        return text if text == "disabled" else Counter()
    return Counter({name: int(n) for name, _, n in (part.rpartition(":") for part in text.split(","))})


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['config']}-{c['node']}")
@pytest.mark.parametrize("compat", [False, True])
def test_promised_geometry(case: dict[str, Any], compat: bool) -> None:
    config = load((RECORDED / case["file"]).read_text(), case["file"], compat=compat)
    wanted = select(config, case["config"], inventory(case["node"]))
    assert wanted.failures == ()
    assert [messages(request) for request in wanted.gpus] == [promised(text) for text in case["want"]]


def test_every_named_config_has_a_case() -> None:
    for file in RECORDED.glob("*.yaml"):
        if file.name not in ("expected.yaml", "dgx-station.yaml"):
            names = load(file.read_text(), file.name).names
            assert set(names) == {c["config"] for c in CASES if c["file"] == file.name}


def station() -> Inventory:
    display = msgspec.structs.replace(gpu("tesla-t4", 3), product="NVIDIA DGX Display", pci_device="0x1FB010DE")
    node = inventory("a100-sxm4-80gb*5")
    return msgspec.structs.replace(node, gpus=(*node.gpus[:3], display, node.gpus[4]))


def test_display_gpu_is_named_and_left_alone() -> None:
    config = load((RECORDED / "dgx-station.yaml").read_text(), "dgx-station.yaml")
    wanted = select(config, "all-2g.20gb-dgx-station-80", station())
    assert (wanted.failures, [messages(w) for w in wanted.gpus]) == ((), [Counter({"2g.20gb": 3})] * 4)
    balanced = select(config, "balanced-k8s-dgx-station-80", station())
    assert balanced.failures == ()
    assert [messages(w) for w in balanced.gpus] == [
        "disabled", {"3g.40gb": 2}, {"2g.20gb": 3, "1g.10gb": 1}, {"1g.10gb": 7},
    ]  # fmt: skip
