"""Strategic merge patch: lists are merged by the keys that the schema names.

Directives understood: ``$patch: replace|delete|merge``, ``$deleteFromPrimitiveList/<field>``,
``$setElementOrder/<field>``, ``$retainKeys``.
"""

from __future__ import annotations

from typing import Any

from support.standin import schema as schemas
from support.standin.answers import RefusalError

JSON = dict[str, Any]
_DELETE, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"


def apply(target: JSON, patch: JSON, node: JSON) -> JSON:
    """Return the patched object.

    Raises:
        RefusalError: 500, an unknown directive, or an element of a merged list without its key
    """
    directive = patch.get("$patch")
    if directive == "replace":
        return {k: v for k, v in patch.items() if k != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise RefusalError(500, "", f"unknown patch type: {directive} in map: {_go_map(patch)}")
    result = dict(target)
    if "$retainKeys" in patch:
        result = {k: v for k, v in result.items() if k in patch["$retainKeys"]}
    orders = {key.removeprefix(_ORDER): order for key, order in patch.items() if key.startswith(_ORDER)}
    for key, value in patch.items():
        if key.startswith(_DELETE):
            field = key.removeprefix(_DELETE)
            result[field] = [one for one in result.get(field) or [] if one not in value]
        elif not key.startswith("$"):
            _field(result, key, value, schemas.child(node, key))
            if isinstance(result.get(key), list) and "merge" in _strategies(schemas.child(node, key)):
                orders.setdefault(key, value)
    for field, order in orders.items():
        if isinstance(result.get(field), list):
            result[field] = _ordered(result[field], order, target.get(field) or [], schemas.child(node, field))
    return result


def _strategies(node: JSON) -> list[str]:
    return (node.get("patch") or "").split(",")


def _field(result: JSON, key: str, value: Any, node: JSON) -> None:
    if value is None:
        result.pop(key, None)
        return
    merges = "merge" in _strategies(node)
    if isinstance(value, dict) and node.get("patch") != "replace":
        before = result.get(key)
        if value.get("$patch") == "delete":
            result.pop(key, None)
        else:
            result[key] = apply(before if isinstance(before, dict) else {}, value, node)
    elif isinstance(value, list) and merges:
        result[key] = _list(result.get(key) or [], value, node)
    else:
        result[key] = value


def _list(before: list[Any], patch: list[Any], node: JSON) -> list[Any]:
    key = node.get("merge_key")
    if key is None:
        return [*before, *(one for one in dict.fromkeys(patch) if one not in before)]
    if any(isinstance(one, dict) and one.get("$patch") == "replace" and key not in one for one in patch):
        return [one for one in patch if "$patch" not in one]
    result, entry = list(before), schemas.items(node)
    for one in patch:
        if key not in one:
            raise RefusalError(500, "", f"map: {_go_map(one)} does not contain declared merge key: {key}")
        at = next((n for n, have in enumerate(result) if have.get(key) == one[key]), None)
        if one.get("$patch") == "delete":
            result = [have for have in result if have.get(key) != one[key]]
        elif at is None:
            result.append(apply({}, one, entry))
        else:
            result[at] = apply(result[at], one, entry)
    return result


def _go_map(value: JSON) -> str:
    return "map[" + " ".join(f"{k}:{v}" for k, v in sorted(value.items())) + "]"


def _ordered(have: list[Any], order: list[Any], before: list[Any], node: JSON) -> list[Any]:
    """Return the elements named by the patch in its order, and others in the server's order. If the server knows both,
    its order decides which comes next, else the patch goes first.
    """
    key = node.get("merge_key")

    def name(one: Any) -> Any:
        return one.get(key) if key and isinstance(one, dict) else one

    names, known = [name(one) for one in order], [name(one) for one in before]
    left = sorted((one for one in have if name(one) in names), key=lambda one: names.index(name(one)))
    right = [one for one in have if name(one) not in names]
    result: list[Any] = []
    while left and right:
        one, other = name(left[0]), name(right[0])
        behind = one in known and other in known and known.index(one) > known.index(other)
        result.append(right.pop(0) if behind else left.pop(0))
    return result + left + right
