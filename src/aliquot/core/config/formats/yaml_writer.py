"""A writer of YAML whose output equals that of mig-parted's own writer, byte for byte.

Map keys stay in their order (`natural` sorts them as that writer does), lists in block style are not indented, and the
values of ``devices`` and ``device-filter`` are in flow style. Source: behaviour of gopkg.in/yaml.v2.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cmp_to_key, lru_cache

Value = object

_FLOW = ("devices", "device-filter", "pci", "uuid", "compute")
_PLAIN = re.compile(r"[A-Za-z0-9_./+\-]([A-Za-z0-9_./+@()=*\-: ]*[A-Za-z0-9_./+@()=*\-])?")
_NOT_TEXT = re.compile(
    r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])*(\.[0-9_]*)?([eE][-+]?[0-9]+)?"
    r"|0[xob][0-9a-fA-F_]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|\.[0-9_]+([eE][-+]?[0-9]+)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*"
    r"|~|null|Null|NULL|<<"
    r"|[yYnN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|true|True|TRUE|false|False|FALSE"
)


def to_yaml(document: Mapping[str, Value], flow: Collection[str] = _FLOW) -> str:
    """Write a document of mappings, lists, text, numbers and booleans. ``flow``: keys whose lists are in flow style."""
    return "\n".join(_map(document, "", flow)) + "\n"


def to_json(document: Mapping[str, Value]) -> str:
    """Write a mig-parted document as its JSON writer does: indented by two blanks, names in byte order."""
    import json

    return json.dumps(_by_bytes(document), indent=2, ensure_ascii=False)


def _by_bytes(value: Value, depth: int = 0) -> Value:
    """Return the document with named configs (second level) and profiles (below an entry) in byte order."""
    if isinstance(value, list | tuple):
        return [_by_bytes(item, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        return value
    keys = sorted(value) if depth in (1, 4) else list(value)
    return {key: _by_bytes(value[key], depth + 1) for key in keys}


def natural(names: Iterable[str]) -> list[str]:
    """Sort names as mig-parted's writer does. Embedded numbers compare as numbers, so that ``all-1g.5gb`` comes before
    ``all-1g.10gb``. Other characters come before letters.
    """
    return sorted(sorted(names), key=cmp_to_key(_compare))


def _compare(first: str, second: str) -> int:
    for n, (x, y) in enumerate(zip(first, second, strict=False)):
        if x == y:
            continue
        if x.isalpha() or y.isalpha():
            return (x > y) - (x < y) if x.isalpha() and y.isalpha() else (1 if x.isalpha() else -1)
        inside = "0" in (x, y) and first[:n].rstrip("0")[-1:].isdigit()
        left, right = _digits(first, n), _digits(second, n)
        ours, theirs = (int(("1" if inside else "") + d) if d or inside else 0 for d in (left, right))
        if ours != theirs:
            return -1 if ours < theirs else 1
        return len(left) - len(right) or (x > y) - (x < y)
    return len(first) - len(second)


def _digits(text: str, start: int) -> str:
    end = start
    while end < len(text) and text[end].isdigit():
        end += 1
    return text[start:end]


def _map(document: Mapping[str, Value], indent: str, flow: Collection[str]) -> list[str]:
    lines: list[str] = []
    for key, value in document.items():
        head = f"{indent}{scalar(key)}:"
        if isinstance(value, str):  # the most frequent case first: the other type checks take longer than writing it
            lines.append(f"{head} {_text(value)}")
        elif isinstance(value, Mapping) and value:
            lines += [head, *_map(value, indent + "  ", flow)]
        elif isinstance(value, list | tuple) and value and key not in flow:
            lines += [head, *_list(value, indent, flow)]
        else:
            lines.append(f"{head} {_flow(value)}")
    return lines


def _list(items: Sequence[Value], indent: str, flow: Collection[str]) -> list[str]:
    lines: list[str] = []
    for item in items:
        if isinstance(item, Mapping) and item:
            first, *rest = _map(item, indent + "  ", flow)
            lines += [f"{indent}- {first.lstrip()}", *rest]
        else:
            lines.append(f"{indent}- {_flow(item)}")
    return lines


def _flow(value: Value) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(v) for v in value) + "]"
    return scalar(value)


def scalar(value: Value) -> str:
    """Write one value so that every version of YAML reads it back unchanged."""
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return _text(str(value))


@lru_cache(maxsize=1024)
def _text(text: str) -> str:
    looks_sexagesimal = text[:1].isdigit() and ":" in text
    if _NOT_TEXT.fullmatch(text) or not text or not text.isprintable() or looks_sexagesimal:
        return _quoted(text)
    marks = text == "-" or text.startswith(("- ", "---", "...")) or ": " in text
    if _PLAIN.fullmatch(text) and not marks:
        return text
    return "'" + text.replace("'", "''") + "'"


def _quoted(text: str) -> str:
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    return short or (f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}")
