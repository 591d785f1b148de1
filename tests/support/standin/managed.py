"""Field managers, kept up to date at every write as the real server does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from support.standin import fieldsets
from support.standin.fieldsets import Fields
from support.standin.schema import stamp

JSON = dict[str, Any]

_META = ("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields")
_STRIPPED = {("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in _META)}
_STRIPPED |= {("f:metadata", "f:resourceVersion")}
"""Fields without a manager."""


class Owner(msgspec.Struct, frozen=True):
    """A line of managedFields, without its fields and its time."""

    manager: str
    operation: str
    version: str
    subresource: str = ""


class Claim(msgspec.Struct, frozen=True):
    fields: Fields
    time: str


Claims = dict[Owner, Claim]


def read(value: JSON) -> Claims:
    """Read the claims from an object's metadata."""
    found: Claims = {}
    for row in value["metadata"].get("managedFields") or []:
        owner = Owner(row.get("manager", ""), row["operation"], row["apiVersion"], row.get("subresource", ""))
        found[owner] = Claim(fieldsets.decode(row.get("fieldsV1") or {}), row.get("time", ""))
    return found


def write(value: JSON, claims: Claims) -> None:
    """Write the claims to an object's metadata."""
    order = sorted(claims.items(), key=lambda pair: (pair[0].operation, pair[1].time, pair[0].manager))
    rows = [_row(owner, claim) for owner, claim in order if claim.fields]
    value["metadata"].pop("managedFields", None)
    if rows:
        value["metadata"]["managedFields"] = rows


def _row(owner: Owner, claim: Claim) -> JSON:
    row: JSON = {"manager": owner.manager, "operation": owner.operation, "apiVersion": owner.version}
    row.update(time=claim.time, fieldsType="FieldsV1", fieldsV1=fieldsets.encode(claim.fields))
    if owner.subresource:
        row["subresource"] = owner.subresource
    return row


def now() -> str:
    return stamp(datetime.now(UTC))


def reset(subresource: str, *, status: bool) -> tuple[str, ...]:
    """Return the top-level fields that a write through this subresource cannot change, so does not manage."""
    if subresource == "status":
        return ("f:spec",)
    return ("f:status",) if status else ()


def stripped(fields: Fields, without: tuple[str, ...] = ()) -> Fields:
    return frozenset(path for path in fields if path not in _STRIPPED and path[0] not in without)


def update(node: JSON, old: JSON, new: JSON, owner: Owner, without: tuple[str, ...]) -> None:
    """Record in ``new`` that an update by ``owner`` made it from ``old``; claims are those of ``old``.

    Sending ``managedFields: [{}]`` or an empty list gives up all fields, as the API documents. An object without any
    manager stays so until the first apply.
    """
    given = new["metadata"].get("managedFields")
    if given is not None and (given == [] or given == [{}]):
        new["metadata"].pop("managedFields")
        return
    claims = read(old)
    if not claims and "uid" in old["metadata"]:
        new["metadata"].pop("managedFields", None)
        return
    added, modified, removed = (stripped(part, without) for part in fieldsets.changes(node, old, new))
    touched = added | modified
    result: Claims = {}
    for other, claim in claims.items():
        left = claim.fields - removed if other == owner else claim.fields - removed - modified
        result[other] = msgspec.structs.replace(claim, fields=left)
    mine = result.get(owner, Claim(frozenset(), now()))
    if touched - mine.fields or (modified and owner in claims):
        result[owner] = Claim(mine.fields | touched, now())
    write(new, result)
