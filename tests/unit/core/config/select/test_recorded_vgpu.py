"""The example file of vgpu-device-manager: each request in it is accepted or refused according to the tables of
types.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml as pyyaml

from aliquot.core.config.load import load
from aliquot.core.config.select.named_config import select
from aliquot.core.config.select.vgpu_lookup import find_type
from aliquot.core.config.text.vgpu_request import VgpuRequest, without_mig_attribute
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.actions import CreateVgpu
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.plan import plan
from aliquot.errors import ConfigError
from unit.core.config.vgpu_nodes import board, hosting, node

RECORDED = Path(__file__).parents[4] / "recorded" / "vgpu-device-manager"
FACTS: Any = pyyaml.load((RECORDED / "pairs.yaml").read_text(), pyyaml.CSafeLoader)

Pair = tuple[str, int]


def pair(text: str) -> Pair:
    name, _, count = text.rpartition(":")
    return name, int(count)


CARDS: dict[str, list[Pair]] = {
    prefix: [pair(f"{prefix}-{part}") for part in text.split()] for prefix, text in FACTS["configs"].items()
}
DEFAULT: list[tuple[str, Pair]] = [(line.split()[0], pair(line.split()[1])) for line in FACTS["default"]]

NO_TABLE = {
    "V100L": 8, "V100S": 10, "V100X": 8, "RTX6000P": 13, "RTX8000P": 17,
    "DC": 6,
}  # fmt: skip
"""Pairs whose product is in no table, by product. One of the RTX8000P is doubtful (8 of 4C next to 12 of 4Q). The six
of DC are types of boards with 72, 48 or 32 GB, which share the name with RTX PRO 6000.
"""


def text() -> str:
    """Return the example file, in flow style."""
    lines = ["version: v1", "vgpu-configs:"]
    for name, count in (p for pairs in CARDS.values() for p in pairs):
        lines.append(f"  {name}: [{{devices: all, vgpu-devices: {{{name}: {count}}}}}]")
    lines.append("  default:")
    for device, (name, count) in DEFAULT:
        lines.append(f'  - {{devices: all, device-filter: "{device}", vgpu-devices: {{{name}: {count}}}}}')
    return "\n".join(lines) + "\n"


CONFIG = load(text(), "example.yaml")


def owners(name: str) -> list[tuple[VgpuTable, VgpuType]]:
    """Return the products that have a type, ignoring the MIG attribute of the name."""
    request = VgpuRequest(name, 0, 0, base_name=without_mig_attribute(name))
    return [(table, found) for table in vgpu.tables() if (found := find_type(table, request)) is not None]


def with_(table: VgpuTable) -> Inventory:
    return Inventory(node="one", gpus=(board(table),))


def test_the_file_is_read_as_it_is() -> None:
    assert len(CONFIG.names) == 711
    assert sum(len(pairs) for pairs in CARDS.values()) == 710


@pytest.mark.parametrize("prefix", CARDS)
def test_each_pair_on_each_card_that_has_it(prefix: str) -> None:
    unknown = 0
    for name, count in CARDS[prefix]:
        found = owners(name)
        if not found:
            unknown += 1
            with pytest.raises(ConfigError) as raised:
                select(CONFIG, name, node("A2"))
            assert f"no GPU has a vGPU type {name}" in raised.value.details[0]
        for table, each in found:
            wanted = select(CONFIG, name, with_(table))
            if each.id is None:
                assert [f.rule for f in wanted.failures] == ["TYPE_WITHOUT_ID"]
                continue
            assert wanted.failures == (), name
            (request,) = wanted.gpus
            assert Counter((v.type_id, v.type) for v in request.vgpus or ()) == {(each.id, each.name): count}
            assert bool(request.mig) == each.mig_backed
            assert len(request.instances or ()) == (-(-count // each.per_instance) if each.mig_backed else 0)
            assert count == each.max, name
    assert unknown == NO_TABLE.get(prefix, 0)


WHOLE_ON_NVSWITCH = {"NVIDIA B200X-180C", "NVIDIA B300X-269C"}
"""Whole GPUs of boards whose NVSwitches are not PCI functions: they need a fabric partition."""


@pytest.mark.parametrize("prefix", CARDS)
def test_each_pair_fits_and_one_more_does_not(prefix: str) -> None:
    for name, count in CARDS[prefix]:
        for table, each in owners(name):
            if each.id is None:
                continue
            for framework in ("sriov-mdev", "vendor-vfio"):
                inventory = hosting(with_(table), enabled=True, framework=framework)
                made = plan(inventory, select(CONFIG, name, inventory))
                if each.name in WHOLE_ON_NVSWITCH:
                    assert [b.rule for b in made.blockers] == ["FABRIC"], (name, table.name)
                    continue
                assert (made.blockers, made.changes) == ((), True), (name, table.name)
                assert Counter(a.type for a in made.actions if isinstance(a, CreateVgpu)) == {each.name: count}
                one_more = (
                    f"version: v1\nvgpu-configs: {{c: [{{devices: all, vgpu-devices: {{{name}: {count + 1}}}}}]}}"
                )
                over = plan(inventory, select(load(one_more, "f"), None, inventory))
                assert [b.rule for b in over.blockers] == ["MAX_VGPUS"], (name, table.name)


def test_the_default_config_on_every_card_that_it_names() -> None:
    # A filter of the file may be the id of two boards. The type determines which of the two an entry is for.
    judged = 0
    for table in vgpu.tables():
        named = [p for device, p in DEFAULT if device == table.pci_device]
        mine = [(n, c, t) for n, c in named for owner, t in owners(n) if owner == table]
        if not mine:
            continue
        ((name, count, each),) = mine
        wanted = select(CONFIG, "default", with_(table))
        if each.id is None:
            assert [f.rule for f in wanted.failures] == ["TYPE_WITHOUT_ID"], name
        else:
            assert wanted.failures == (), name
            assert Counter(v.type for v in wanted.gpus[0].vgpus or ()) == {each.name: count}
        judged += 1
    assert judged == 46
