"""The YAML reader: scalars of YAML 1.2, places, limits, and what is refused."""

from __future__ import annotations

import math
import time

import pytest

from aliquot.core.config.load import load
from aliquot.core.config.text import yaml_nodes as yaml
from aliquot.core.config.text.yaml_scalars import resolve
from aliquot.errors import ConfigError

TEXT = ["0000:08:00.0", "0000:17:00.0", "0000:c1:00.0", "no", "on", "off", "yes", "y", "1_000", "0b1", "1:30", "-", "+"]
TEXT += [
    "0x",
    "0xZZ",
    "1.2.3",
    "1e",
    "e5",
    ".",
    "2001-01-01",
    "GPU-1",
    "1g.5gb",
    "nUll",
    "0o8",
    "9" * 30,
    "1e5e5",
    "--1",
]


@pytest.mark.parametrize("text", TEXT)
def test_text_stays_text(text: str) -> None:
    assert resolve(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("NULL", None), ("true", True), ("FALSE", False),
        ("0", 0), ("-7", -7), ("+7", 7), ("007", 7), ("0x1F", 31), ("0o17", 15),
        ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("-1.5e3", -1500.0), ("2E-1", 0.2), ("-.inf", -math.inf),
    ],
)  # fmt: skip
def test_core_scalars(text: str, value: object) -> None:
    found = resolve(text)
    assert found == value
    assert type(found) is type(value)


def test_not_a_number() -> None:
    value = resolve(".nan")
    assert isinstance(value, float)
    assert math.isnan(value)


def root(text: str) -> yaml.Node:
    found = yaml.read(text, "f").root
    assert found is not None
    return found


def test_quoted_is_text() -> None:
    node = root("'7'")
    assert isinstance(node, yaml.Scalar)
    assert (node.value, node.plain) == ("7", False)


def test_places() -> None:
    node = root("a: 1\nb:\n  - x\n  - {c: ü, d: 2}\n")
    assert isinstance(node, yaml.Map)
    items = node.fields()["b"]
    assert isinstance(items, yaml.List)
    last = items.items[1]
    assert isinstance(last, yaml.Map)
    assert [(k.text, k.line, k.column) for k, _ in last.entries] == [("c", 4, 6), ("d", 4, 12)]


def test_json_is_yaml() -> None:
    node = root('{"version": "v1",\n\t"n": [1, true, null, "a\\u00e4\\/"]}')
    assert isinstance(node, yaml.Map)
    items = node.fields()["n"]
    assert isinstance(items, yaml.List)
    assert [i.value for i in items.items if isinstance(i, yaml.Scalar)] == [1, True, None, "aä/"]


def test_pure_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml as pyyaml

    text = "a: &x {p: 0000:08:00.0, q: [1, '2', ~]}\nb: *x\nc: |\n  two\n  lines\nd:\n"
    fast = yaml.read(text, "f")
    monkeypatch.delattr(pyyaml, "CSafeLoader", raising=False)
    assert yaml.read(text, "f") == fast


def test_duplicates_are_reported_and_the_last_counts() -> None:
    document = yaml.read("a: 1\nb: {x: 1, x: 2}\na: 3\n", "f")
    assert [(m.line, m.column) for m, _ in document.duplicates] == [(2, 11), (3, 1)]
    assert "first in line 1" in document.duplicates[1][1]
    assert isinstance(document.root, yaml.Map)
    last = document.root.fields()["a"]
    assert isinstance(last, yaml.Scalar)
    assert last.value == 3


def test_merge_keys_give_way_to_own_keys() -> None:
    node = root("base: &b {x: 1, y: 2}\nmore: &m {y: 9, z: 3}\nuse: {<<: [*b, *m], x: 7}\n")
    assert isinstance(node, yaml.Map)
    use = node.fields()["use"]
    assert isinstance(use, yaml.Map)
    assert {k.text: v.value for k, v in use.entries if isinstance(v, yaml.Scalar)} == {"x": 7, "y": 2, "z": 3}


def fault(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        yaml.read(text, "f")
    assert caught.value.exit_code == 2
    return "\n".join((caught.value.brief, *caught.value.details))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: [1, 2\nb: 3\n", "f:2", "not YAML"),
        ("a: b: c\n", "f:1:5", "not YAML"),
        ("a: !!python/object/apply:os.system [x]\n", "f:1:4", "tag"),
        ("a: !x 1\n", "f:1:4", "tag"),
        ("a: 1\n---\nb: 2\n", "f:2:1", "second YAML document"),
        ("a: *nowhere\n", "f:1:4", "alias"),
        ("a: &x [*x]\n", "f:1:8", "alias"),
        ("? [a, b]\n: c\n", "f:1:3", "cannot be a key"),
        ("a: {<<: 3}\n", "f:1:9", "<<"),
        ("[" * 60 + "]" * 60, "f:1:51", "nested deeper"),
    ],
)
def test_refused_with_its_place(text: str, place: str, words: str) -> None:
    answer = fault(text)
    assert place in answer
    assert words in answer


def test_binary_content() -> None:
    answer = fault("version: v1\nx: \x00\x01\n")
    assert "not a text file" in answer
    assert "line 2" in answer


def test_byte_order_mark_is_no_content() -> None:
    node = root("\ufeffa: 1\n")
    assert isinstance(node, yaml.Map)
    assert list(node.fields()) == ["a"]


def test_bomb_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    began = time.process_time()
    assert "more than 100000 values" in fault("\n".join(lines))
    assert time.process_time() - began < 1


def test_fifty_megabytes_are_refused_at_once() -> None:
    text = "a: 1\n" * 10_000_000
    began = time.process_time()
    assert "too big to be a configuration: 47.7 MiB" in fault(text)
    assert time.process_time() - began < 1


def test_many_small_values_are_refused_before_they_cost_much() -> None:
    never_closed = "[" + "[1,2]," * 500_000
    assert "more than 100000 values" in fault(never_closed)


def test_many_aliases_of_a_chain() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}, x]" for n in range(1, 1000)]
    assert "aliases counted" in fault("\n".join(lines))


@pytest.mark.parametrize("text", ["", "   \n", "# only a comment\n", "---\n", "null\n", "~"])
def test_empty_file(text: str) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        load(text, "f")


@pytest.mark.parametrize("text", ["7", "hello", "[a, b]", "- version: v1"])
def test_not_a_mapping(text: str) -> None:
    with pytest.raises(ConfigError, match="instead of a mapping"):
        load(text, "f")
