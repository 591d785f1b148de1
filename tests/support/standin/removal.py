"""Deletion: in grace, behind finalizers, by eviction."""

from __future__ import annotations

from typing import Any

import msgspec

from support.standin import disruption, managed, objects, strategies
from support.standin.admission import Admission
from support.standin.answers import bad_request, conflict, forbidden
from support.standin.call import Call
from support.standin.store import clone
from support.standin.writes import Answer, Writes

JSON = dict[str, Any]
PERMANENT = ("default", "kube-public", "kube-system")


class Removal:
    """The verbs that delete objects."""

    def __init__(self, writes: Writes, admission: Admission) -> None:
        self.writes, self._admission = writes, admission

    def delete(self, call: Call) -> Answer:
        call, options = _with_options(call)
        return self.writes.retried(lambda: self._delete(call, self.writes.find(call), options))

    def _delete(self, call: Call, old: JSON, options: JSON) -> Answer:
        kind, meta = call.kind, old["metadata"]
        if kind.bucket == "namespaces." and meta["name"] in PERMANENT:
            raise forbidden(kind.plural, "", meta["name"], "this namespace may not be deleted")
        _check_preconditions(call, old, options)
        self._admission.validate(msgspec.structs.replace(call, verb="delete"), None, old)
        seconds, graceful = self._grace(call, old, options), strategies.of(kind).graceful
        value = _with_propagation(old, call, options)
        if call.dry:
            return 200, value
        if seconds or value["metadata"].get("finalizers") or kind.bucket == "namespaces.":
            return 200, self._begin(call, value, old, seconds)
        if graceful and meta.get("deletionGracePeriodSeconds") != 0:
            old = value = self.writes.put(call, objects.dying(value, 0), old)
        last = self.writes.remove(call, value, old)
        return 200, last if strategies.of(kind).returns_deleted else _success(call, value)

    def _grace(self, call: Call, value: JSON, options: JSON) -> int:
        """Return the seconds until the object may be deleted."""
        if not strategies.of(call.kind).graceful:
            return 0
        asked = options.get("gracePeriodSeconds", call.query.get("gracePeriodSeconds"))
        seconds = int(asked if asked is not None else value["spec"].get("terminationGracePeriodSeconds", 30))
        over = value.get("status", {}).get("phase") in ("Succeeded", "Failed")
        return 0 if over or not value["spec"].get("nodeName") else max(seconds, 0)

    def _begin(self, call: Call, value: JSON, old: JSON, seconds: int) -> JSON:
        """Mark the object as being deleted. A later deletion can only shorten the wait."""
        meta = value["metadata"]
        if "deletionTimestamp" in meta and meta.get("deletionGracePeriodSeconds", 0) <= seconds:
            return value
        marked = objects.dying(value, seconds)
        if call.kind.bucket == "namespaces.":
            marked["metadata"].pop("deletionGracePeriodSeconds")
            marked["status"] = {**marked["status"], "phase": "Terminating"}
        return self.writes.put(call, marked, old)

    def collection(self, call: Call, found: list[JSON]) -> None:
        """Delete each of these."""
        call, options = _with_options(call)
        for value in found:
            meta = value["metadata"]
            one = msgspec.structs.replace(call, name=meta["name"], namespace=meta.get("namespace", ""))
            self.writes.retried(lambda one=one: self._delete(one, self.writes.find(one), options))  # type: ignore[misc]

    def evict(self, call: Call) -> Answer:
        """Delete a pod if its disruption budgets allow it."""
        body = call.decoded() or {}
        if body.get("metadata", {}).get("name", call.name) != call.name:
            raise bad_request("name in URL does not match name in Eviction object")
        options = body.get("deleteOptions") or {}
        call = _as_requested(call, options)
        self._admission.validate(call, body, None)
        with self.writes.store.changed:
            pod = self.writes.find(call)
            self._spend(call, pod)
            _check_preconditions(call, pod, options)
            if not call.dry and "deletionTimestamp" not in pod["metadata"]:
                self.writes.store.put(call.kind.bucket, disruption.targeted(pod, managed.now()))
        self.writes.retried(lambda: self._delete(call, self.writes.find(call), options))
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _spend(self, call: Call, pod: JSON) -> None:
        """Use one eviction of the pod's budget.

        Raises:
            RefusalError: 429, the budget is used up
        """
        found = disruption.budgets(self.writes.store, pod)
        if not found or disruption.unguarded(pod):
            return
        refused = disruption.refusal(pod, found)
        if refused is not None:
            raise refused
        if disruption.is_ready(pod) and not call.dry:
            budget = disruption.spent(found[0], call.name, managed.now())
            node, owner = {"ref": "policy.v1.PodDisruptionBudget"}, disruption.OWNER
            managed.update(node, found[0], budget, owner, managed.reset("status", status=True))
            self.writes.store.put("poddisruptionbudgets.policy", budget)


def _with_options(call: Call) -> tuple[Call, JSON]:
    """Return the options in the body of a deletion, and the call as they request it."""
    options = (call.decoded() if call.body else {}) or {}
    return _as_requested(call, options), options


def _as_requested(call: Call, options: JSON) -> Call:
    """Return the call as a dry run if its options request one: deletions have no parameter for it in their address."""
    dry = options.get("dryRun") == ["All"]
    return msgspec.structs.replace(call, query={**call.query, "dryRun": "All"}) if dry else call


def _check_preconditions(call: Call, value: JSON, options: JSON) -> None:
    """Refuse the deletion unless the object is the requested one.

    Raises:
        RefusalError: 409
    """
    meta = value["metadata"]
    for name, text in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = (options.get("preconditions") or {}).get(name)
        if wanted is not None and wanted != meta[name]:
            raise conflict(call.kind.kind, call.group, meta["name"], _precondition(text, wanted, meta[name]))


def _precondition(what: str, wanted: str, have: str) -> str:
    since = "been deleted and then recreated" if what == "UID" else "been modified"
    text = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({have})"
    return f"{text}. The object might have {since}"


def _with_propagation(value: JSON, call: Call, options: JSON) -> JSON:
    """Add finalizers for foreground and orphan deletion, which a collector removes."""
    policy = options.get("propagationPolicy", call.query.get("propagationPolicy"))
    name = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(policy or "")
    if name is None or name in (value["metadata"].get("finalizers") or []):
        return value
    marked = clone(value)
    marked["metadata"].setdefault("finalizers", []).append(name)
    return marked


def _success(call: Call, value: JSON) -> JSON:
    details: JSON = {"name": value["metadata"]["name"], "group": call.group, "kind": call.kind.plural}
    details["uid"] = value["metadata"]["uid"]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: one for key, one in details.items() if one},
    }
