"""The union of a CustomResourceDefinition in the cluster and ours, for when another program wrote its own over ours.

Each start of pcidevices does that. What the cluster's definition has stays as it is: versions, fields, limits and
columns that a newer Harvester added, and values in which both differ. Only what it lacks is added from ours. A field
that has another type there is not touched. A field of a status gets no limit that it lacks: a newer Harvester may
report words that we do not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

JSON = dict[str, Any]
_LIST_KEYS = {"versions": "name", "additionalPrinterColumns": "name", "x-kubernetes-validations": "rule"}
"""Lists of objects, each known by one of its keys."""
_SETS = ("enum", "required", "shortNames", "categories")
"""Lists of words, of which a definition may have more than we know."""
_LIMITS = ("enum", "pattern", "format", "minimum", "maximum", "minLength", "maxLength", "required")


def unite(live: Mapping[str, Any], ours: Mapping[str, Any]) -> JSON:
    """Return the definition to apply: the group, names, scope and versions of ``live``, with the parts that it lacks.

    It applies only to this version of ``live``. The version that is stored stays the same.
    """
    meta = live["metadata"]
    spec = {key: value for key, value in live["spec"].items() if key in ours["spec"]}
    identity = {key: meta[key] for key in ("name", "resourceVersion", "uid") if key in meta}
    return {"metadata": identity, "spec": _unite(spec, _not_stored(ours["spec"], live["spec"]))}


def missing_parts(live: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what ``live`` lacks of ours, each once: a field (``status.conditions``), a column, or a rule of a field.

    Empty if it lacks nothing.
    """
    return tuple(dict.fromkeys(_missing(live["spec"], unite(live, ours)["spec"], "")))


def _not_stored(ours: Mapping[str, Any], live: Mapping[str, Any]) -> JSON:
    """Return our spec for a cluster that stores another version. Exactly one version of a kind is stored."""
    known = {each["name"] for each in live["versions"]}
    versions = [each if each["name"] in known else {**each, "storage": False} for each in ours["versions"]]
    return {**ours, "versions": versions}


def _unite(live: JSON, ours: Mapping[str, Any], in_status: bool = False) -> JSON:
    if _is_another_type(live, ours):
        return live
    found = dict(live)
    for key, value in ours.items():
        if key not in live:
            # a field may be called like a limit: its value is then a schema
            found |= {} if in_status and key in _LIMITS and not isinstance(value, dict) else {key: value}
        elif isinstance(value, dict) and isinstance(live[key], dict):
            found[key] = _unite(live[key], value, in_status or (key == "status" and "properties" in value))
        elif isinstance(value, list) and isinstance(live[key], list):
            found[key] = _unite_lists(key, live[key], value)
    return found


def _is_another_type(live: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    types = (live.get("type"), ours.get("type"))
    return all(isinstance(each, str) for each in types) and types[0] != types[1]


def _unite_lists(key: str, live: Sequence[Any], ours: Sequence[Any]) -> list[Any]:
    if key in _SETS:
        return [*live, *(each for each in ours if each not in live)]
    if key not in _LIST_KEYS:
        return list(live)
    by_name = {each[_LIST_KEYS[key]]: each for each in ours}
    known = {each[_LIST_KEYS[key]] for each in live}
    united = [_unite(each, by_name.get(each[_LIST_KEYS[key]], {})) for each in live]
    return [*united, *(each for name, each in by_name.items() if name not in known)]


def _missing(live: Any, united: Any, path: str) -> Iterator[str]:
    """Yield the parts that ``united`` has beyond ``live``, whose order of lists it keeps. ``path`` is the field."""
    if isinstance(united, dict):
        for key, value in united.items():
            inside = _field_path(path, key)
            if key not in live:
                yield from _names(key, value, inside)
            else:
                yield from _missing(live[key], value, inside)
    elif isinstance(united, list):
        for before, after in zip(live, united, strict=False):
            yield from _missing(before, after, path)
        yield from (_item_name(each, path) for each in united[len(live) :])


_FIELD = "."


def _field_path(path: str, key: str) -> str:
    """Return the path one key further. The field's own name follows ``properties``, which ends a path with a dot."""
    if path.endswith(_FIELD):
        return path + key
    if key == "properties":
        return path + _FIELD
    return path


def _names(key: str, value: Any, path: str) -> Iterator[str]:
    if key == "properties" and path.endswith(_FIELD):
        yield from (f"{path}{name}".strip(_FIELD) for name in value)
    elif key in _LIST_KEYS and isinstance(value, list):
        yield from (_item_name(each, path) for each in value)
    else:
        yield path.strip(_FIELD) or key


def _item_name(item: Any, path: str) -> str:
    if isinstance(item, dict) and "jsonPath" in item:
        return f"column {item['name']}"
    if isinstance(item, dict) and "name" in item:
        return f"version {item['name']}"
    return path.strip(_FIELD) or str(item)
