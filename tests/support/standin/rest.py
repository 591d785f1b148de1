"""The verbs on stored objects: create, get, list, update, patch, bind."""

from __future__ import annotations

from typing import Any

import msgspec

from support.standin import apply as server_side
from support.standin import events, managed, objects, patching, rbac, selectors, strategies
from support.standin import schema as schemas
from support.standin.admission import Admission
from support.standin.answers import Cause, RefusalError, conflict, forbidden, invalid, not_found
from support.standin.call import Call
from support.standin.pages import page
from support.standin.store import clone
from support.standin.writes import Answer, Writes

JSON = dict[str, Any]
_NEEDED = "is required for apply patch"


class Rest:
    """Reading and changing."""

    def __init__(self, writes: Writes, admission: Admission) -> None:
        self.writes, self._store, self._admission = writes, writes.store, admission

    def get(self, call: Call) -> Answer:
        return 200, self.writes.find(call)

    def list(self, call: Call) -> Answer:
        chosen = self.selected(call)
        namespace = call.home or None
        with self._store.changed:
            rows = self._store.items(call.kind.bucket, namespace)
            revision = self._store.revision
        items, meta = page([row for row in rows if chosen(row)], call.query, revision)
        return 200, {
            "kind": f"{call.kind.kind}List",
            "apiVersion": call.kind.api_version,
            "metadata": meta,
            "items": items,
        }

    def selected(self, call: Call) -> selectors.Matches:
        """Return the test of the query's selectors."""
        by_label = selectors.labels(call.query.get("labelSelector", ""))
        own = tuple(row["jsonPath"] for row in (call.kind.custom or {}).get("selectableFields") or ())
        by_field = selectors.fields(
            call.query.get("fieldSelector", ""),
            call.kind.bucket,
            selectable=own,
            regarding=call.group == events.NEW_GROUP,
            custom=call.kind.custom is not None,
        )
        return lambda value: by_label(value) and by_field(value)

    def create(self, call: Call) -> Answer:
        return self._create(call, objects.decode(call, call.decoded()))

    def _create(self, call: Call, value: JSON) -> Answer:
        self._check_namespace(call, value["metadata"].get("name", ""))
        objects.complete_new(call, value)
        owner = managed.Owner(call.manager, "Update", call.kind.api_version)
        if call.verb != "apply":
            managed.update(schemas.root(call.kind), objects.blank(call.kind), value, owner, self._kept(call))
        strategies.of(call.kind).on_create(value)
        strategies.of(call.kind).admit(value)
        value = self._admission.mutate(call, value, None)
        objects.validate(call, value, None)
        if call.verb != "create":
            self._may_create(call)
        self._admission.validate(call, value, None)
        return 201, self.writes.put(call, events.stored(call.kind, value), None)

    def _may_create(self, call: Call) -> None:
        """Require the right to create for an apply or update of an object that does not exist."""
        where = {"namespace": call.namespace, "name": call.name}
        if not rbac.allows_resource(self._store, call.caller, "create", call.group, call.kind.plural, **where):
            why = rbac.refusal_text(msgspec.structs.replace(call, verb="create"))
            raise forbidden(call.kind.plural, call.group, call.name, why)

    def _kept(self, call: Call) -> tuple[str, ...]:
        rules = strategies.of(call.kind)
        return managed.reset(call.subresource, status=rules.status or rules.keeps_status)

    def _check_namespace(self, call: Call, name: str) -> None:
        if not call.kind.namespaced:
            return
        found = self._store.get("namespaces.", "", call.namespace)
        if found is None:
            raise not_found("namespaces", "", call.namespace)
        if found.get("status", {}).get("phase") == "Terminating":
            why = f"unable to create new content in namespace {call.namespace} because it is being terminated"
            refused = forbidden(call.kind.plural, call.group, name, why)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {call.namespace} is being terminated",
                "field": "metadata.namespace",
            }
            (refused.details or {})["causes"] = [cause]
            raise refused

    def update(self, call: Call) -> Answer:
        return self.writes.retried(lambda: self._update(call, objects.decode(call, call.decoded())))

    def _update(self, call: Call, value: JSON) -> Answer:
        old = self._store.get(call.kind.bucket, call.home, call.name)
        if old is None:
            if strategies.of(call.kind).create_on_update and not call.subresource:
                return self._create(call, value)
            raise not_found(call.kind.plural, call.group, call.name)
        return 200, self._replace(call, old, value, applied=False)

    def _replace(self, call: Call, old: JSON, value: JSON, *, applied: bool) -> JSON:
        """Store a changed object. If nothing changed, write nothing."""
        stored, old = old, events.shown(call.kind, old)
        objects.complete_update(call, old, value)
        if not applied:
            owner = managed.Owner(call.manager, "Update", call.kind.api_version, call.subresource)
            managed.update(schemas.root(call.kind), old, value, owner, self._kept(call))
        if not call.subresource:
            strategies.of(call.kind).admit(value)
        value = self._admission.mutate(call, value, old)
        objects.validate(call, value, old)
        self._admission.validate(call, value, old)
        if same(old, value):
            return stored
        value = events.stored(call.kind, value)
        if "deletionTimestamp" in value["metadata"] and self._may_go(value):
            return value if call.dry else self.writes.remove(call, value, stored)
        return self.writes.put(call, value, stored)

    def _may_go(self, value: JSON) -> bool:
        """Report whether an object whose deletion was requested has no finalizers and no wait left."""
        meta = value["metadata"]
        return not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")

    def patch(self, call: Call) -> Answer:
        return self.writes.retried(lambda: self._patch(call))

    def _patch(self, call: Call) -> Answer:
        media = patching.media_of(call)
        old = self._store.get(call.kind.bucket, call.home, call.name)
        if media == patching.APPLY:
            return self._apply(call, old)
        if old is None:
            raise not_found(call.kind.plural, call.group, call.name)
        patched = patching.patched(call, media, clone(events.shown(call.kind, old)))
        try:
            value = objects.decode(call, patched)
        except RefusalError as refusal:
            raise patching.unfit(refusal, patched) from None
        return 200, self._replace(call, old, value, applied=False)

    def _apply(self, call: Call, old: JSON | None) -> Answer:
        if not call.query.get("fieldManager"):
            raise invalid("PatchOptions", "meta.k8s.io", "", [Cause.required("fieldManager", _NEEDED)])
        body = call.decoded()
        stated = objects.stated(call, body)
        owner = managed.Owner(call.manager, "Apply", call.kind.api_version, call.subresource)
        blank = objects.blank(call.kind)
        live = clone(events.shown(call.kind, old)) if old is not None else blank
        force = call.query.get("force") == "true"
        merged = server_side.apply(
            schemas.root(call.kind), blank, live, stated, owner, force=force, without=self._kept(call)
        )
        managed_fields = merged["metadata"].pop("managedFields", None)
        value = objects.decode(msgspec.structs.replace(call, query={}), merged)
        if managed_fields:
            value["metadata"]["managedFields"] = managed_fields
        if old is None:
            if call.subresource:
                raise not_found(call.kind.plural, call.group, call.name)
            return self._create(msgspec.structs.replace(call, verb="apply"), value)
        return 200, self._replace(call, old, value, applied=True)

    def bind(self, call: Call) -> Answer:
        """Put a pod on a node."""
        target = (call.decoded() or {}).get("target") or {}
        with self._store.changed:
            old = self.writes.find(call)
            pod = clone(old)
            if pod["spec"].get("nodeName"):
                why = f'pod {call.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
                raise conflict("pods/binding", "", call.name, why)
            pod["spec"]["nodeName"] = target.get("name", "")
            scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
            scheduled["lastTransitionTime"] = managed.now()
            pod["status"].setdefault("conditions", []).append(scheduled)
            self.writes.put(call, pod, old)
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def same(old: JSON, new: JSON) -> bool:
    """Report whether only times of managedFields differ."""
    return _untimed(old) == _untimed(new)


def _untimed(value: JSON) -> JSON:
    meta = dict(value["metadata"])
    rows = [{k: v for k, v in row.items() if k != "time"} for row in meta.pop("managedFields", None) or []]
    return {**value, "metadata": {**meta, "managedFields": rows}}
