"""Server-side apply: merge the statement of a manager into the object, track which manager states which field, refuse
conflicts.
"""

from __future__ import annotations

from typing import Any

import msgspec

from support.standin import fieldsets, managed
from support.standin import schema as schemas
from support.standin.answers import RefusalError
from support.standin.fieldsets import Fields, Path
from support.standin.managed import Claim, Claims, Owner

JSON = dict[str, Any]


def apply(
    node: JSON, blank: JSON, live: JSON, stated: JSON, owner: Owner, *, force: bool, without: tuple[str, ...]
) -> JSON:
    """Return the merged object, managedFields included. ``blank`` is an object of this kind without any statement.

    Raises:
        RefusalError: 409, another manager states another value of a field and ``force`` is not set
    """
    claims = managed.read(live) or _before_first(node, blank, live, owner, without)
    wanted = managed.stripped(fieldsets.of(node, stated), without)
    before = claims[owner].fields if owner in claims else frozenset()
    merged = merge(node, live, stated)
    merged = _prune(node, merged, before, wanted, {o: c for o, c in claims.items() if o != owner})
    added, modified, removed = (managed.stripped(part) for part in fieldsets.changes(node, live, merged))
    conflicts = {o: c.fields & (modified | added) for o, c in claims.items() if o != owner}
    conflicts = {o: fields for o, fields in conflicts.items() if fields}
    allowed = _from_client_side(node, live, owner)
    disputed = {o: fields - allowed for o, fields in conflicts.items() if fields - allowed}
    if disputed and not force:
        raise _conflict(disputed)
    result: Claims = {}
    for other, claim in claims.items():
        if other != owner:
            left = claim.fields - conflicts.get(other, frozenset()) - removed
            result[other] = msgspec.structs.replace(claim, fields=left)
    same = owner in claims and before == wanted and not (added or modified or removed)
    result[owner] = Claim(wanted, claims[owner].time if same else managed.now())
    managed.write(merged, result)
    if owner.manager == "kubectl" and _LAST in (live["metadata"].get("annotations") or {}):
        annotations = {**merged["metadata"]["annotations"], _LAST: msgspec.json.encode(stated).decode()}
        merged["metadata"] = {**merged["metadata"], "annotations": annotations}
    return merged


_LAST = "kubectl.kubernetes.io/last-applied-configuration"


def _from_client_side(node: JSON, live: JSON, owner: Owner) -> Fields:
    """Return the fields that ``kubectl apply`` stated last and that still hold: ``--server-side`` takes them over."""
    text = (live["metadata"].get("annotations") or {}).get(_LAST)
    if owner.manager != "kubectl" or not text:
        return frozenset()
    last = msgspec.json.decode(text)
    modified = fieldsets.changes(node, last, live)[1]
    return fieldsets.of(node, last) - modified


def _before_first(node: JSON, blank: JSON, live: JSON, owner: Owner, without: tuple[str, ...]) -> Claims:
    """Return the claim of ``before-first-apply`` to the fields of an object before its first apply."""
    fields = managed.stripped(fieldsets.changes(node, blank, live)[0], without)
    if "uid" not in live["metadata"] or not fields:
        return {}
    return {Owner("before-first-apply", "Update", owner.version): Claim(fields, managed.now())}


def merge(node: JSON, old: Any, new: Any) -> Any:
    """Merge new over old, by the schema."""
    how = fieldsets.relation_of(node, new)
    if how == "map" and isinstance(old, dict):
        result = dict(old)
        for name, value in new.items():
            result[name] = merge(schemas.child(node, name), old.get(name), value)
        return result
    if how.startswith("list-") and isinstance(old, list):
        return _merge_list(node, old, new)
    return new


def _merge_list(node: JSON, old: list[Any], new: list[Any]) -> list[Any]:
    """Merge lists. Items keep the order of the statement; others stay where they were."""
    stated = {fieldsets.element(node, one): one for one in new}
    have = {fieldsets.element(node, one): one for one in old}
    entry = schemas.items(node)
    result = [merge(entry, one, stated[key]) if key in stated else one for key, one in have.items()]
    return result + [one for key, one in stated.items() if key not in have]


def _prune(node: JSON, merged: JSON, before: Fields, wanted: Fields, others: Claims) -> JSON:
    """Remove what this manager stated before and no longer does, unless another manager states it."""
    kept = fieldsets.ancestors(wanted)
    for claim in others.values():
        kept |= fieldsets.ancestors(claim.fields)
    for path in sorted(before - kept, key=len):
        merged = _without(node, merged, path)
    return merged


def _without(node: JSON, value: Any, path: Path) -> Any:
    part, rest = path[0], path[1:]
    if isinstance(value, dict):
        name = part[2:]
        if name not in value:
            return value
        if rest:
            return {**value, name: _without(schemas.child(node, name), value[name], rest)}
        return {key: one for key, one in value.items() if key != name}
    if isinstance(value, list):
        entry = schemas.items(node)
        rows = [(fieldsets.element(node, one), one) for one in value]
        if rest:
            return [_without(entry, one, rest) if key == part else one for key, one in rows]
        return [one for key, one in rows if key != part]
    return value


def _conflict(conflicts: dict[Owner, Fields]) -> RefusalError:
    causes, blocks = [], []
    count = sum(len(fields) for fields in conflicts.values())
    for owner in sorted(conflicts, key=lambda o: o.manager):  # the real server's order of causes is not known
        who = _named(owner)
        fields = sorted(shown(path) for path in conflicts[owner])
        message = f"conflict with {who}"
        causes += [{"reason": "FieldManagerConflict", "message": message, "field": field} for field in fields]
        plural = "conflicts" if len(fields) > 1 or len(conflicts) > 1 else "conflict"
        blocks.append(f"{plural} with {who}" + (":\n- " + "\n- ".join(fields) if count > 1 else f": {fields[0]}"))
    noun = "conflict" if count == 1 else "conflicts"
    text = f"Apply failed with {count} {noun}: " + "\n".join(blocks)
    return RefusalError(409, "Conflict", text, {"causes": causes})


def _named(owner: Owner) -> str:
    text = f'"{owner.manager}"'
    if owner.subresource:
        text += f' with subresource "{owner.subresource}"'
    if owner.operation == "Update":
        text += f" using {owner.version}"
    return text


def shown(path: Path) -> str:
    """Return a path as text, such as ``.metadata.labels.a`` or ``.spec.containers[name="c"].image``."""
    text = ""
    for part in path:
        kind, rest = part[0], part[2:]
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = msgspec.json.decode(rest)
            text += "[" + ",".join(f"{k}={msgspec.json.encode(v).decode()}" for k, v in sorted(keys.items())) + "]"
        else:
            text += f"[={rest}]"
    return text
