"""Drafts of objects, and the requests that change an existing object into its draft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot.kubernetes.client.object_base import KubeObject, OwnerReference
from aliquot.kubernetes.kinds.harvester import HarvesterSpec, HarvesterStatus
from aliquot.kubernetes.virtual_machines.harvester.node_view import JSON, ObjectChange

LONGEST_LABEL = 63


class Draft(msgspec.Struct, frozen=True):
    """The content that an object should have."""

    kind: type[KubeObject]
    name: str
    spec: HarvesterSpec | None
    """Only for a new object: afterwards it belongs to the user. None for a kind without a spec."""
    status: HarvesterStatus
    labels: Mapping[str, str | None] = {}
    """Only our labels; None for one that must be absent. Other labels stay."""
    annotations: Mapping[str, str | None] = {}
    """Only our annotations; None for one that must be absent. Other annotations stay."""
    owners: tuple[OwnerReference, ...] = ()
    """Only for a new object."""
    finalizers: tuple[str, ...] = ()
    why: str = ""


def changes_for(found: KubeObject | None, draft: Draft) -> list[ObjectChange]:
    """Return the requests that change the object into its draft; none if it matches."""
    if found is None:
        return _creation_changes(draft)
    changes = []
    meta = _metadata(found, draft)
    if meta:
        changes.append(_change("patch", draft, {"metadata": meta}, "its labels and annotations"))
    current: HarvesterStatus = getattr(found, "status")  # noqa: B009 - all our kinds have a status, KubeObject has none
    patch = merge_patch(plain(current), plain(draft.status))
    if patch:
        changes.append(_change("status", draft, {"status": patch}, _status_summary(patch, draft)))
    return changes


def _creation_changes(draft: Draft) -> list[ObjectChange]:
    meta: JSON = {"name": draft.name}
    meta |= {"labels": _set_values(draft.labels)} if _set_values(draft.labels) else {}
    meta |= {"annotations": _set_values(draft.annotations)} if _set_values(draft.annotations) else {}
    meta |= {"ownerReferences": plain(draft.owners)} if draft.owners else {}
    meta |= {"finalizers": list(draft.finalizers)} if draft.finalizers else {}
    head = {"apiVersion": draft.kind.TYPE.api_version, "kind": draft.kind.TYPE.kind}
    spec: JSON = {} if draft.spec is None else {"spec": plain(draft.spec)}
    creation = _change("create", draft, {**head, "metadata": meta, **spec}, draft.why or "it is new")
    status = plain(draft.status)
    return [creation, _change("status", draft, {"status": status}, "it is new")] if status else [creation]


def _change(verb: str, draft: Draft, body: JSON, why: str) -> ObjectChange:
    return ObjectChange(verb, draft.kind.TYPE.kind, draft.name, body, why=why)


def _status_summary(patch: JSON, draft: Draft) -> str:
    ready = next((c for c in draft.status.conditions if c.type == "Ready"), None)
    state = f" ({ready.reason})" if ready is not None else ""
    return f"its {', '.join(sorted(patch))}{state}"


def _metadata(found: KubeObject, draft: Draft) -> JSON:
    out: JSON = {}
    meta = found.metadata
    for key, now, wanted in (
        ("labels", meta.labels, draft.labels),
        ("annotations", meta.annotations, draft.annotations),
    ):
        patch = {name: value for name, value in wanted.items() if now.get(name) != value}
        out |= {key: patch} if patch else {}
    return out


def _set_values(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def labels(values: Mapping[str, str]) -> dict[str, str | None]:
    """Return the labels that Kubernetes accepts: with a longer value (a long node name) it would reject the whole
    object.
    """
    return {name: value for name, value in values.items() if len(value) <= LONGEST_LABEL}


def plain(value: Any) -> Any:
    """Convert a value to plain JSON, with lists instead of tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def merge_patch(current: JSON, wanted: JSON) -> JSON:
    """Return the merge patch (RFC 7386) from one object to another: it replaces whole lists, null removes a field."""
    patch: JSON = {name: None for name in current if name not in wanted}
    for name, value in wanted.items():
        before = current.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = merge_patch(before, value)
            patch |= {name: inner} if inner else {}
        elif value != before or name not in current:
            patch[name] = value
    return patch
