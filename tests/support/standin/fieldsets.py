"""Sets of field paths, as ``managedFields`` keep them.

A path is a tuple of ``f:name``, ``k:{"key":"value"}``, ``v:value``.
Lists and maps that the schema calls atomic are one field; map-lists are addressed by their keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from support.standin import schema as schemas

JSON = dict[str, Any]
Path = tuple[str, ...]
Fields = frozenset[Path]


def encode(fields: Fields) -> JSON:
    """Encode fields as ``fieldsV1``."""
    tree: JSON = {}
    for path in sorted(fields):
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node["."] = {}
    return _tidy(tree)


def _tidy(node: JSON) -> JSON:
    """Return a member without children as ``{}``. One with children contains a ``.``."""
    if set(node) == {"."}:
        return {}
    return {key: {} if key == "." else _tidy(value) for key, value in node.items()}


def decode(tree: JSON, path: Path = ()) -> Fields:
    """Decode fields from ``fieldsV1``."""
    found: set[Path] = set()
    for key, value in tree.items():
        if key == ".":
            found.add(path)
        elif value:
            found |= decode(value, (*path, key))
        else:
            found.add((*path, key))
    return frozenset(found)


def ancestors(fields: Fields) -> Fields:
    """Return the fields and everything above them."""
    return frozenset(path[:n] for path in fields for n in range(1, len(path) + 1))


def relation(node: JSON) -> str:
    """Return how a value of this schema is merged: ``list-map``, ``list-set``, ``map`` or ``atomic``."""
    found = schemas.resolve(node)
    kind = found.get("type")
    if kind == "array":
        how = node.get("list") or found.get("list") or "atomic"
        return how if how == "atomic" else f"list-{how}"
    if kind == "object" and "FieldsV1" not in found.get("name", ""):
        return "atomic" if (node.get("map") or found.get("map")) == "atomic" else "map"
    return "atomic"


def relation_of(node: JSON, value: Any) -> str:
    """Return ``relation``; if the schema states nothing, maps are merged and lists are not."""
    if schemas.resolve(node).get("type", "any") == "any":
        return "map" if isinstance(value, dict) and not node.get("ref") else "atomic"
    how = relation(node)
    wanted = dict if how == "map" else list
    return how if how == "atomic" or isinstance(value, wanted) else "atomic"


def element(node: JSON, value: Any) -> str:
    """Return the path element of a list's item."""
    if relation(node) == "list-set":
        return f"v:{_compact(value)}"
    found = {"list": "map", **schemas.resolve(node), **node}
    entry = schemas.resolve(schemas.items(node)).get("properties", {})
    keys = {key: value.get(key, entry.get(key, {}).get("default")) for key in sorted(found["keys"])}
    return f"k:{_compact({k: v for k, v in keys.items() if v is not None})}"


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def children(node: JSON, value: Any) -> Iterator[tuple[str, Any, JSON]]:
    """Return path element, value and schema of the direct children."""
    how = relation_of(node, value)
    if how == "map":
        for name, one in value.items():
            yield f"f:{name}", one, schemas.child(node, name)
    elif how.startswith("list-"):
        for one in value:
            yield element(node, one), one, schemas.items(node)


def of(node: JSON, value: Any, path: Path = ()) -> Fields:
    """Return the fields that an applied object claims."""
    how = relation_of(node, value)
    if how == "atomic":
        return frozenset((path,)) if path else frozenset()
    found: set[Path] = set()
    for part, one, entry in children(node, value):
        here = (*path, part)
        found |= of(entry, one, here)
        named = part.startswith("f:") and schemas.is_struct_field(node, part[2:])
        if not named or one is None or one == {}:
            found.add(here)
    return frozenset(found)


MISSING: Any = type("Missing", (), {"__bool__": lambda _: False})()
"""A missing field, which differs from a null."""


def changes(node: JSON, old: Any, new: Any, path: Path = ()) -> tuple[Fields, Fields, Fields]:
    """Return the fields added, modified and removed."""
    values = [one for one in (new, old) if one is not MISSING and one is not None]
    how = relation_of(node, values[0]) if values else "atomic"
    empty = not old and not new and how.startswith("list-")
    if how == "atomic" or empty or any(relation_of(node, one) != how for one in values):
        here = frozenset((path,))
        if old is MISSING:
            return here, frozenset(), frozenset()
        if new is MISSING:
            return frozenset(), frozenset(), here
        return frozenset(), here if old != new else frozenset(), frozenset()
    before = {part: (one, entry) for part, one, entry in children(node, old)} if old else {}
    after = {part: (one, entry) for part, one, entry in children(node, new)} if new else {}
    added: Fields = frozenset((path,)) if old is MISSING and path else frozenset()
    removed: Fields = frozenset((path,)) if new is MISSING and path else frozenset()
    modified: Fields = frozenset()
    for part in {**before, **after}:
        was, entry = before.get(part, (MISSING, None))
        is_now, entry = after.get(part, (MISSING, entry))
        more = changes(entry or schemas.ANY, was, is_now, (*path, part))
        added, modified, removed = added | more[0], modified | more[1], removed | more[2]
    return added, modified, removed
