"""Exports: mig-parted's way to merge GPUs, and Aliquot's format with placements."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.core.config.export import export, export_native
from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.core.model.inventory import Inventory
from support.factory import inventory, with_instances


def entries(node: Inventory, label: str = "current") -> Any:
    document: Any = export(node, label)
    assert document["version"] == "v1"
    assert list(document["mig-configs"]) == [label]
    return document["mig-configs"][label]


def off(**more: object) -> dict[str, object]:
    return {**more, "mig-enabled": False, "mig-devices": {}}


def cut(**more: object) -> dict[str, object]:
    return {**more, "mig-enabled": True, "mig-devices": {"1g.5gb": 1, "3g.20gb": 1}}


A100, A30 = "0x20B010DE", "0x20B710DE"
PARTS = ("3g.20gb@4", "1g.5gb@0")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (inventory("a100-sxm4-40gb*3"), [off(devices="all")]),
        (inventory("a100-sxm4-40gb", "tesla-t4"), [off(devices="all")]),
        (with_instances(inventory("a100-sxm4-40gb*3"), 1, *PARTS), [off(devices=[0, 2]), cut(devices=[1])]),
        (
            with_instances(inventory("a100-sxm4-40gb", "a30*2"), 0, *PARTS),
            [
                cut(**{"device-filter": A100, "devices": "all"}),
                off(**{"device-filter": A30, "devices": "all"}),
            ],
        ),
        (
            with_instances(inventory("a100-sxm4-40gb*2", "a30"), 0, *PARTS),
            [
                cut(**{"device-filter": A100, "devices": [0]}),
                off(**{"device-filter": [A100, A30], "devices": [1, 2]}),
            ],
        ),
    ],
)
def test_merging(node: Inventory, expected: object) -> None:
    found = entries(node)
    assert found == expected
    keys = ("device-filter", "devices", "mig-enabled", "mig-devices")
    assert all(list(e) == [k for k in keys if k in e] for e in found)


def test_several_types_that_are_alike_are_all() -> None:
    node = inventory("a100-sxm4-40gb", "a30", "h100-pcie")
    node = with_instances(node, 2, "7g.80gb@0")
    assert entries(node) == [
        off(**{"device-filter": [A100, A30], "devices": "all"}),
        {"device-filter": "0x233110DE", "devices": "all", "mig-enabled": True, "mig-devices": {"7g.80gb": 1}},
    ]


def test_compute_instances_count_and_orphans_do_not_show() -> None:
    node = with_instances(inventory("a100-sxm4-40gb"), 0, "3g.20gb@4:1c.3g.20gb;1c.3g.20gb", "3g.20gb@0:")
    assert entries(node, "mine") == [{"devices": "all", "mig-enabled": True, "mig-devices": {"1c.3g.20gb": 2}}]


def test_text_of_an_export() -> None:
    node = with_instances(inventory("a100-sxm4-40gb*2", "a30"), 0, *PARTS)
    assert to_yaml(export(node)) == (
        "version: v1\n"
        "mig-configs:\n"
        "  current:\n"
        '  - device-filter: "0x20B010DE"\n'
        "    devices: [0]\n"
        "    mig-enabled: true\n"
        "    mig-devices:\n"
        "      1g.5gb: 1\n"
        "      3g.20gb: 1\n"
        '  - device-filter: ["0x20B010DE", "0x20B710DE"]\n'
        "    devices: [1, 2]\n"
        "    mig-enabled: false\n"
        "    mig-devices: {}\n"
    )


def test_native_export_keeps_placements() -> None:
    node = with_instances(inventory("a100-sxm4-40gb*3", "tesla-t4"), 0, *PARTS)
    node = with_instances(node, 2, "3g.20gb@4:1c.3g.20gb;1c.3g.20gb", "1g.5gb@2:")
    assert to_yaml(export_native(node)) == (
        "version: aliquot/v1\n"
        "configs:\n"
        "  current:\n"
        "  - gpus:\n"
        '      pci: ["0000:07:00.0"]\n'
        "    mig:\n"
        "    - 1g.5gb@0\n"
        "    - 3g.20gb@4\n"
        "  - gpus:\n"
        '      pci: ["0000:0f:00.0"]\n'
        "    mig: disabled\n"
        "  - gpus:\n"
        '      pci: ["0000:47:00.0"]\n'
        "    mig:\n"
        "    - profile: 1g.5gb\n"
        "      placement: 2\n"
        "      compute: []\n"
        "    - profile: 3g.20gb\n"
        "      placement: 4\n"
        "      compute: [1c.3g.20gb@0, 1c.3g.20gb@1]\n"
    )
