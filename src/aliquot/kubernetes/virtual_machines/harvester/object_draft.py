"""From what an object should say to the requests that make it say so: nothing where it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot.kubernetes.client.object_base import KubeObject, OwnerReference
from aliquot.kubernetes.kinds.harvester import HarvesterSpec, HarvesterStatus
from aliquot.kubernetes.virtual_machines.harvester.node_view import JSON, ObjectChange

LONGEST_LABEL = 63


class Draft(msgspec.Struct, frozen=True):
    """What an object should say. ``labels`` and ``annotations`` are those that are ours, None for one that must not be
    there; others stay. ``spec`` and ``owners`` are for an object that is not there yet: afterwards they are the user's.
    """

    kind: type[KubeObject]
    name: str
    spec: HarvesterSpec
    status: HarvesterStatus
    labels: Mapping[str, str | None] = {}
    annotations: Mapping[str, str | None] = {}
    owners: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    why: str = ""


def changes_for(found: KubeObject | None, draft: Draft) -> list[ObjectChange]:
    """The requests from what is to what should be."""
    if found is None:
        return _creation_changes(draft)
    changes = []
    meta = _metadata(found, draft)
    if meta:
        changes.append(_change("patch", draft, {"metadata": meta}, "its labels and annotations"))
    current: HarvesterStatus = getattr(found, "status")  # noqa: B009 - every kind of ours has one, KubeObject itself does not
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
    creation = _change("create", draft, {**head, "metadata": meta, "spec": plain(draft.spec)}, draft.why or "it is new")
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
    """Labels that Kubernetes takes: a longer value (of a long node name) would have the whole object refused."""
    return {name: value for name, value in values.items() if len(value) <= LONGEST_LABEL}


def plain(value: Any) -> Any:
    """A value as JSON has it: lists, no tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def merge_patch(current: JSON, wanted: JSON) -> JSON:
    """The merge patch (RFC 7386) from one object to another: lists are replaced whole, null removes."""
    patch: JSON = {name: None for name in current if name not in wanted}
    for name, value in wanted.items():
        before = current.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = merge_patch(before, value)
            patch |= {name: inner} if inner else {}
        elif value != before or name not in current:
            patch[name] = value
    return patch
