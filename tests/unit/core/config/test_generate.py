"""Generated files: entries, names, filters and the balanced formula. Whole files are golden files.

To rewrite the golden files after an intended change: ``ALIQUOT_GOLDEN=write pytest tests/unit/core/config``.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.core.config.formats.yaml_writer import to_json, to_yaml
from aliquot.core.config.generate import generate
from aliquot.core.model import catalog
from aliquot.core.model.inventory import Inventory, Mig
from aliquot.core.model.profile import ProfileName
from aliquot.errors import BlockedError
from support.factory import inventory
from unit.core.config.helpers import counts, desired_for

GOLDEN = Path(__file__).parents[3] / "golden" / "config"

NODES = {
    "dgx-a100": ("a100-sxm4-40gb*8",),
    "a30x4": ("a30*4",),
    "a100-and-a30": ("a100-sxm4-40gb*2", "a30*2"),
    "h100-and-t4": ("h100-80gb-hbm3", "tesla-t4"),
    "h200-and-gb300": ("h200", "gb300"),
    "rtx-pro-6000": ("rtx-pro-6000-blackwell-server-edition*2",),
    "rtx-pro-5000": ("rtx-pro-5000-blackwell",),
}


@pytest.mark.parametrize("name", NODES)
def test_golden(name: str) -> None:
    text = to_yaml(generate(inventory(*NODES[name])))
    file = GOLDEN / f"generate-{name}.yaml"
    if os.environ.get("ALIQUOT_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()


def configs(node: Inventory) -> Any:
    document: Any = generate(node)
    assert document["version"] == "v1"
    return document["mig-configs"]


TABLES = {
    "a30": "1g.6gb 4, 1g.6gb+me 1, 2g.12gb 2, 2g.12gb+me 1, 4g.24gb 1",
    "a100-sxm4-40gb": "1g.5gb 7, 1g.5gb+me 1, 1g.10gb 4, 2g.10gb 3, 3g.20gb 2, 4g.20gb 1, 7g.40gb 1",
    "a100-sxm4-80gb": "1g.10gb 7, 1g.10gb+me 1, 1g.20gb 4, 2g.20gb 3, 3g.40gb 2, 4g.40gb 1, 7g.80gb 1",
    "h100-nvl": "1g.12gb 7, 1g.12gb+me 1, 1g.24gb 4, 2g.24gb 3, 3g.47gb 2, 4g.47gb 1, 7g.94gb 1",
    "gh200-480gb": "1g.12gb 7, 1g.12gb+me 1, 1g.24gb 4, 2g.24gb 3, 3g.48gb 2, 4g.48gb 1, 7g.96gb 1",
    "h200": "1g.18gb 7, 1g.18gb+me 1, 1g.35gb 4, 2g.35gb 3, 3g.71gb 2, 4g.71gb 1, 7g.141gb 1",
    "b200": "1g.23gb 7, 1g.23gb+me 1, 1g.45gb 4, 2g.45gb 3, 3g.90gb 2, 4g.90gb 1, 7g.180gb 1",
    "rtx-pro-6000-blackwell-server-edition": "1g.24gb 4, 1g.24gb+me 1, 1g.24gb+gfx 4, 1g.24gb+me.all 1, 1g.24gb-me 4, "
    "2g.48gb 2, 2g.48gb+gfx 2, 2g.48gb+me.all 1, 2g.48gb-me 2, 4g.96gb 1, 4g.96gb+gfx 1",
}
"""The tables of mig-parted's builder, as facts: profiles and their counts."""


@pytest.mark.parametrize("product", TABLES)
def test_one_config_per_profile(product: str) -> None:
    expected = {name: int(n) for name, n in (part.split() for part in TABLES[product].split(", "))}
    found = configs(inventory(product))
    for name, count in expected.items():
        assert found.pop(f"all-{name.replace('+', '.')}") == [
            {"devices": "all", "mig-enabled": True, "mig-devices": {name: count}}
        ]
    assert set(found) == {"all-disabled", "all-enabled", "all-balanced"}
    assert found["all-disabled"] == [{"devices": "all", "mig-enabled": False, "mig-devices": {}}]
    assert found["all-enabled"] == [{"devices": "all", "mig-enabled": True, "mig-devices": {}}]


def test_a30_counts_do_not_come_from_the_driver() -> None:
    family = catalog.family("a30-24gb")
    wrong = tuple(msgspec.structs.replace(p, max_instances=9) for p in family.profiles)
    node = inventory("a30")
    table = msgspec.structs.replace(family, profiles=wrong)
    assert configs(msgspec.structs.replace(node, tables=(table,))) == configs(node)


def test_other_counts_do_come_from_the_driver() -> None:
    family = catalog.family("a100-40gb")
    fewer = tuple(msgspec.structs.replace(p, max_instances=2) for p in family.profiles)
    table = msgspec.structs.replace(family, profiles=fewer)
    node = msgspec.structs.replace(inventory("a100-sxm4-40gb"), tables=(table,))
    assert configs(node)["all-1g.5gb"][0]["mig-devices"] == {"1g.5gb": 2}


def slots(*profiles: str) -> Inventory:
    """Build a node with one GPU of an invented family, with ``NAME:COUNT`` for each profile."""
    base = catalog.family("rtx-pro-5000-48gb")
    made = []
    for text in profiles:
        name, _, count = text.partition(":")
        made.append(msgspec.structs.replace(base.profiles[0], name=name, max_instances=int(count)))
    node = inventory("rtx-pro-5000-blackwell")
    return msgspec.structs.replace(node, tables=(msgspec.structs.replace(base, profiles=tuple(made)),))


@pytest.mark.parametrize(
    ("profiles", "balanced"),
    [
        (("1g.5gb:7", "2g.10gb:3", "3g.20gb:2", "7g.40gb:1"), {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}),
        (("1g.10gb:4", "1g.5gb:7", "2g.10gb:3", "3g.20gb:2", "7g.40gb:1"), {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}),
        (("1g.6gb:4", "2g.12gb:2", "4g.24gb:1"), {"1g.6gb": 2, "2g.12gb": 1}),
        (("1g.12gb:1", "1g.12gb+me:1", "1g.12gb-me:3", "2g.24gb-me:1", "4g.48gb:1", "4g.48gb+gfx:1"), None),
        (("1g.5gb:7", "2g.10gb:3", "7g.40gb:1"), None),
        (("1g.24gb:2", "2g.48gb:1"), None),
        (("1g.24gb+gfx:2", "2g.48gb+gfx:1"), None),
    ],
)
def test_balanced_formula(profiles: tuple[str, ...], balanced: dict[str, int] | None) -> None:
    found = configs(slots(*profiles))
    if balanced is None:
        assert "all-balanced" not in found
    else:
        assert found["all-balanced"] == [{"devices": "all", "mig-enabled": True, "mig-devices": balanced}]


def test_filters_only_where_there_are_several_kinds() -> None:
    a100, a30 = "0x20B010DE", "0x20B710DE"
    found = configs(inventory("a30", "a100-sxm4-40gb", "tesla-t4"))
    assert found["all-1g.5gb"][0]["device-filter"] == [a100]
    assert [e["device-filter"] for e in found["all-balanced"]] == [[a100], [a30]]
    assert "device-filter" not in found["all-disabled"][0]
    assert "device-filter" not in found["all-enabled"][0]
    lone = configs(inventory("a30*2", "tesla-t4"))
    assert not any("device-filter" in entry for entries in lone.values() for entry in entries)


def test_one_name_with_two_counts() -> None:
    found = configs(inventory("h200", "gb300"))["all-1g.35gb"]
    assert [(e["device-filter"], e["mig-devices"]) for e in found] == [
        (["0x233510DE"], {"1g.35gb": 4}),
        (["0x31C210DE"], {"1g.35gb": 7}),
    ]
    shared = configs(inventory("h100-pcie", "a100-sxm4-80gb"))["all-1g.10gb"]
    assert [e["device-filter"] for e in shared] == [["0x20B210DE", "0x233110DE"]]


def test_nothing_to_generate() -> None:
    with pytest.raises(BlockedError, match="no GPU of this node can be partitioned"):
        generate(inventory("tesla-t4"))
    node = inventory("tesla-t4")
    unknown = msgspec.structs.replace(node.gpus[0], mig=Mig(capable=True))
    with pytest.raises(BlockedError, match="no MIG profiles are known"):
        generate(msgspec.structs.replace(node, gpus=(unknown,)))


@pytest.mark.parametrize("family", catalog.family_names())
def test_every_generated_config_is_a_request_that_its_node_understands(family: str) -> None:
    node = inventory(family)
    text = to_yaml(generate(node))
    for name, (entry, *rest) in configs(node).items():
        assert rest == []
        wanted = desired_for(text, node, name)
        assert wanted.failures == ()
        (request,) = wanted.gpus
        assert counts(request) == Counter(entry["mig-devices"])
        assert request.mig == entry["mig-enabled"]
        assert {len(i.compute) for i in request.instances or ()} <= {1}
        assert all(ProfileName.parse(n) for n in entry["mig-devices"])


def test_json_reads_back_as_the_same_document() -> None:
    document = generate(inventory("a100-sxm4-40gb", "a30"))
    text = to_json(document)
    assert msgspec.json.decode(text) == document
    names = list(msgspec.json.decode(text)["mig-configs"])
    assert names == sorted(names)
