"""Convert a request's body to an object that may be stored: decoding, defaults, the fixed metadata, validation."""

from __future__ import annotations

import secrets
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from support.standin import crds, metadata, schema, strategies
from support.standin.answers import Cause, RefusalError, bad_request, conflict, invalid
from support.standin.call import Call
from support.standin.kinds import Kind
from support.standin.store import clone

JSON = dict[str, Any]
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def decode(call: Call, body: Any, kind: Kind | None = None) -> JSON:
    """Return the canonical object of this kind.

    Raises:
        RefusalError: 400, not such an object, or unknown fields under ``fieldValidation=Strict``
    """
    kind = kind or call.kind
    if not isinstance(body, dict):
        raise call.unrecognized("json: cannot unmarshal array into Go value of type struct")
    if kind.custom is not None and not (body.get("kind") and body.get("apiVersion")):
        which = "Kind" if not body.get("kind") else "apiVersion"
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            f"Object '{which}' is missing in '{call.body.decode()}' ({call.body.decode()})"
        )
    answer = (body.get("apiVersion") or kind.api_version, body.get("kind") or kind.kind)
    if answer != (kind.api_version, kind.kind):
        raise _other_kind(kind, *answer, (body.get("metadata") or {}).get("name", ""))
    decoder = schema.Decoder(f"{kind.kind}/{kind.version}")
    body = {"metadata": {}, **body}
    value: JSON = decoder.read(schema.root(kind), body) if kind.custom is None else crds.decode(kind, body, decoder)
    strict = call.query.get("fieldValidation", "Warn") == "Strict"
    if decoder.unknown and strict:
        faults = ", ".join(f'unknown field "{name}"' for name in decoder.unknown)
        raise decoder.refuse(f"strict decoding error: {faults}")
    return {**value, "kind": kind.kind, "apiVersion": kind.api_version}


def _other_kind(kind: Kind, version: str, name: str, object_name: str) -> RefusalError:
    if kind.custom is not None:
        fault = Cause.invalid("kind", name, f"must be {kind.kind}")
        return invalid(name, kind.group, object_name, [fault])
    prefix = version.rpartition("/")[2]
    return bad_request(
        f'{name} in version "{prefix}" cannot be handled as a {kind.kind}: '
        f"converting ({prefix}.{name}) to ({kind.group or 'core'}.{kind.kind}): unknown conversion"
    )


def blank(kind: Kind) -> JSON:
    """Return an empty object of this kind, as the server's own types have it."""
    found: JSON = {"metadata": {}}
    if kind.custom is None:
        found = schema.Decoder(kind.kind).read(schema.root(kind), found)
    return {**found, "apiVersion": kind.api_version, "kind": kind.kind}


def complete_new(call: Call, value: JSON) -> None:
    """Fill in the fields of a new object that only the server decides."""
    meta, rules = value["metadata"], strategies.of(call.kind)
    if call.kind.namespaced:
        if meta.setdefault("namespace", call.namespace) != call.namespace:
            text = "the namespace of the provided object does not match the namespace sent on the request"
            raise bad_request(text)
    elif meta.pop("namespace", None):
        raise bad_request("namespace cannot be specified for a cluster-scoped object")
    if not meta.get("name") and meta.get("generateName"):
        tail = "".join(secrets.choice(_LETTERS) for _ in range(5))
        meta["name"] = meta["generateName"][:58] + tail
    if meta.get("resourceVersion"):
        raise RefusalError(500, "", "resourceVersion should not be set on objects to be created")
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
        meta.pop(name, None)
    meta["uid"] = str(uuid.uuid4())
    meta["creationTimestamp"] = schema.stamp(datetime.now(UTC))
    if rules.generation:
        meta["generation"] = 1
    if rules.status:
        _reset_status(call.kind, value)
    rules.fill(value)


def _reset_status(kind: Kind, value: JSON) -> None:
    """Reset a status to the state before its first write."""
    value.pop("status", None)
    if kind.custom is None:
        fresh = blank(kind)
        if "status" in fresh:
            value["status"] = fresh["status"]


def complete_update(call: Call, old: JSON, value: JSON) -> None:
    """Restore what this update may not change, and count the spec's generation.

    Raises:
        RefusalError: 409, made from another version of the object; 400, another name
    """
    meta, before, kind = value["metadata"], old["metadata"], call.kind
    rules = strategies.of(kind)
    _check_identity(call, meta)
    given = meta.get("resourceVersion", "")
    if given and given != before["resourceVersion"]:
        raise conflict(kind.plural, kind.group, call.name)
    if not given and not rules.unconditional and call.verb == "update":
        fault = Cause.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(kind.plural, kind.group, call.name, [fault])
    if meta.get("uid") not in (None, "", before["uid"]):
        if call.verb == "patch":
            raise invalid(
                kind.kind, kind.group, call.name, [Cause.invalid("metadata.uid", meta["uid"], "field is immutable")]
            )
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {before['uid']}"
        raise conflict(kind.plural, kind.group, call.name, _STORAGE + why)
    for name in ("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion"):
        _restore(meta, before, name)
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        _restore(meta, before, name)
    _restrict(call, old, value)
    rules.fill(value)
    rules.on_update(value, old)
    if rules.generation and spec_of(kind, old) != spec_of(kind, value):
        meta["generation"] = before.get("generation", 0) + 1


_STORAGE = "StorageError: invalid object, Code: 4, AdditionalErrorMsg: "


def _check_identity(call: Call, meta: JSON) -> None:
    if meta.get("name", call.name) != call.name:
        text = f"the name of the object ({meta['name']}) does not match the name on the URL ({call.name})"
        raise bad_request(text)
    if call.kind.namespaced and meta.get("namespace", call.namespace) != call.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _restore(meta: JSON, before: JSON, name: str) -> None:
    if name in before:
        meta[name] = before[name]
    else:
        meta.pop(name, None)


def _restrict(call: Call, old: JSON, value: JSON) -> None:
    """Restrict a status write to the status, and any other write to everything but the status."""
    rules = strategies.of(call.kind)
    if call.subresource == "status":
        for key in old:
            if key not in ("status", "metadata"):
                value[key] = old[key]
        if call.kind.custom is not None:
            value["metadata"] = {**old["metadata"], "managedFields": value["metadata"].get("managedFields")}
    elif rules.status or rules.keeps_status:
        value.pop("status", None)
        if "status" in old:
            value["status"] = old["status"]


def spec_of(kind: Kind, value: JSON) -> JSON:
    """Return the fields that count for the generation: all except metadata and a separately written status."""
    skipped = {"metadata", "apiVersion", "kind"}
    if kind.custom is None or "status" in kind.subresources:
        skipped.add("status")
    return {key: one for key, one in value.items() if key not in skipped}


def validate(call: Call, value: JSON, old: JSON | None) -> None:
    """Refuse an invalid object.

    Raises:
        RefusalError: 422 with one cause per error
    """
    found = metadata.causes(call.kind, value)
    if old is not None:
        found += _new_finalizers(old, value)
    found += strategies.of(call.kind).check(value, old)
    if found:
        raise invalid(call.kind.kind, call.group, value["metadata"].get("name", ""), found)


def _new_finalizers(old: JSON, value: JSON) -> list[Cause]:
    if "deletionTimestamp" not in old["metadata"]:
        return []
    before = set(old["metadata"].get("finalizers") or ())
    new = [one for one in value["metadata"].get("finalizers") or () if one not in before]
    if not new:
        return []
    listed = "{" + ", ".join(f'"{one}"' for one in new) + "}"
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{listed}"
    return [Cause.forbidden("metadata.finalizers", why)]


def dying(value: JSON, seconds: int) -> JSON:
    """Return the object after its deletion was requested."""
    copy = clone(value)
    meta = copy["metadata"]
    meta["deletionTimestamp"] = schema.stamp(datetime.now(UTC) + timedelta(seconds=seconds))
    meta["deletionGracePeriodSeconds"] = seconds
    if "generation" in meta and "deletionTimestamp" not in value["metadata"]:
        meta["generation"] += 1
    return copy


def stated(call: Call, body: Any) -> JSON:
    """Return the statement of a server-side apply: decoded, without the server's defaults.

    Raises:
        RefusalError: 400, not such an object, or it names managedFields
    """
    if not isinstance(body, dict):
        raise bad_request("error decoding patch: not an object")
    if not body.get("apiVersion") or not body.get("kind"):
        raise bad_request("invalid object type: /, Kind=")
    full = _typed(call, body)
    meta = full["metadata"]
    if meta.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    _check_identity(call, meta)
    given: JSON = _only(full, body)
    given["metadata"].pop("resourceVersion", None)
    return given


def _typed(call: Call, body: JSON) -> JSON:
    """Decode an object and require that every field is declared.

    Raises:
        RefusalError: 500, as the real server has it
    """
    name = body["metadata"].get("name", "") if isinstance(body.get("metadata"), dict) else ""
    what = (
        f"failed to create typed patch object (/{name}; {call.kind.group}/{call.kind.version}, Kind={call.kind.kind})"
    )
    decoder = schema.Decoder(call.kind.kind)
    try:
        crds.decode(call.kind, body, decoder) if call.kind.custom else decoder.read(schema.root(call.kind), body)
    except RefusalError as refusal:
        raise RefusalError(500, "", f"{what}: {refusal.message}") from None
    if decoder.unknown:
        raise RefusalError(500, "", f"{what}: .{decoder.unknown[0]}: field not declared in schema")
    return decode(call, body)


def _only(value: Any, given: Any) -> Any:
    """Return the decoded value, limited to the given fields."""
    if isinstance(value, dict) and isinstance(given, dict):
        return {key: _only(one, given[key]) for key, one in value.items() if key in given}
    if isinstance(value, list) and isinstance(given, list) and len(value) == len(given):
        return [_only(a, b) for a, b in zip(value, given, strict=True)]
    return value
