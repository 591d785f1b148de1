"""Events in their two forms: core/v1, in which they are stored, and events.k8s.io/v1."""

from __future__ import annotations

from typing import Any

from support.standin.answers import Cause
from support.standin.kinds import Kind

JSON = dict[str, Any]
NEW_GROUP = "events.k8s.io"
_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_DEFAULTS: JSON = {"source": {}, "firstTimestamp": None, "lastTimestamp": None, "reportingComponent": ""}
_DEFAULTS |= {"reportingInstance": "", "eventTime": None, "involvedObject": {}}


def stored(kind: Kind, value: JSON) -> JSON:
    """Return an event as the store keeps it."""
    if kind.group != NEW_GROUP:
        return value
    return {**_DEFAULTS, **{_NAMES.get(key, key): one for key, one in value.items()}, "apiVersion": "v1"}


def shown(kind: Kind, value: JSON) -> JSON:
    """Return an event as the clients of this kind see it."""
    if kind.group != NEW_GROUP or value.get("apiVersion") == kind.api_version:
        return value
    back = {old: new for new, old in _NAMES.items()}
    found = {back.get(key, key): one for key, one in value.items()}
    gone = [key for key, one in found.items() if one in (None, "") and not key.endswith(("Time", "Timestamp"))]
    for key in gone:
        del found[key]
    return {"deprecatedSource": {}, **found, "apiVersion": kind.api_version}


def check(new: JSON, old: JSON | None) -> list[Cause]:
    """Return the errors of an event in its stored form."""
    found: list[Cause] = []
    about = new.get("involvedObject", {}).get("namespace", "")
    if about and about != new["metadata"]["namespace"]:
        found.append(Cause.invalid("involvedObject.namespace", about, "does not match event.namespace"))
    return found


def check_new(new: JSON, old: JSON | None) -> list[Cause]:
    """Return the errors of an event in the new form, which requires more."""
    found = check(new, old)
    if old is not None:
        return found
    if not new.get("eventTime"):
        found.append(Cause.required("eventTime"))
    if new.get("eventTime"):
        names = ("reportingController", "reportingInstance", "action", "reason")
        found += [Cause.required(name) for name in names if not new.get(_NAMES.get(name, name))]
    if new.get("type") not in ("Normal", "Warning"):
        kind = new.get("type", "")
        found.append(Cause.invalid("type", kind, f"has invalid value: {kind}"))
    return found
