"""The YAML writer."""

from __future__ import annotations

import pytest

from aliquot.core.config.formats.yaml_writer import natural, scalar, to_yaml
from aliquot.core.config.text import yaml_nodes as yaml


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("all", "all"), ("1g.5gb+me", "1g.5gb+me"), ("all-1g.24gb-me", "all-1g.24gb-me"), ("v1", "v1"),
        ("0x20B010DE", '"0x20B010DE"'), ("7", '"7"'), ("1.5", '"1.5"'), ("1_0", '"1_0"'), ("0o7", '"0o7"'),
        ("yes", '"yes"'), ("on", '"on"'), ("n", '"n"'), ("null", '"null"'), ("~", '"~"'), ("", '""'),
        ("0000:07:00.0", '"0000:07:00.0"'), ("0000:0f:00.0", '"0000:0f:00.0"'), ("2001-01-01", '"2001-01-01"'),
        ("a: b", "'a: b'"), ("a #b", "'a #b'"), ("it's", "'it''s'"), ("- a", "'- a'"), ("*a", "'*a'"), ("&a", "'&a'"),
        ("my label", "my label"), ("a\nb", '"a\\nb"'), ("a\tb", '"a\\tb"'), (" a", "' a'"), ("a ", "'a '"),
        ("a,b", "'a,b'"), ("a, b", "'a, b'"), ("[a]", "'[a]'"), ("<<", '"<<"'),
        ("-", "'-'"), ("---", "'---'"), ("...", "'...'"), ("ü", "'ü'"),
        (True, "true"), (False, "false"), (7, "7"), (None, "null"),
    ],
)  # fmt: skip
def test_scalars(value: object, text: str) -> None:
    assert scalar(value) == text
    for layout in (f"k: {text}", f"k: [{text}]", f"{text}: k"):
        root = yaml.read(layout, "f").root
        assert isinstance(root, yaml.Map)
        key, node = root.entries[0]
        found = key if layout.endswith("k") and not layout.startswith("k: ") else node
        found = found.items[0] if isinstance(found, yaml.List) else found
        assert isinstance(found, yaml.Scalar)
        assert found.value == value


def test_layout() -> None:
    document = {
        "a": {"devices": [0, 1], "empty": [], "none": {}, "pci": ("x",)},
        "b": [{"x": 1, "q": {"z": 2}}, "s", {}],
    }
    assert to_yaml(document) == (
        "a:\n  devices: [0, 1]\n  empty: []\n  none: {}\n  pci: [x]\nb:\n- x: 1\n  q:\n    z: 2\n- s\n- {}\n"
    )


@pytest.mark.parametrize(
    "ordered",
    [
        ("2", "10", "A", "a", "b"),
        ("a", "a1", "a01", "a9", "a10", "a100"),
        ("x100", "x101", "x1000"),
        ("1c.3g.20gb", "1g.5gb", "1g.10gb", "2g.10gb"),
        ("all-1g.5gb", "all-1g.5gb-me", "all-1g.5gb.me", "all-1g.10gb", "all-2g.1gb", "all-balanced"),
    ],
)
def test_natural_order(ordered: tuple[str, ...]) -> None:
    assert natural(reversed(ordered)) == list(ordered)
