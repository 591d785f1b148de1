"""The verbs on stored objects: create, get, list, update, patch, delete, and the subresources that write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from standin import apply as server_side
from standin import disruption, managed, objects, patches, selectors, strategic, strategies
from standin import schema as schemas
from standin.admission import Admission
from standin.answers import (
    Refusal,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    not_found,
    unsupported_media,
)
from standin.call import Call
from standin.pages import page
from standin.store import Store, clone

JSON = dict[str, Any]
Answer = tuple[int, JSON]
_PATCHES = (
    "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, "
    "application/apply-patch+yaml, application/apply-patch+cbor"
)
_MERGED_HERE = ("application/json-patch+json", "application/merge-patch+json")


class Rest:
    """Every write is one step under the store's lock, admission included."""

    def __init__(self, store: Store, admission: Admission, written: Callable[[Call, JSON], None]) -> None:
        self._store, self._admission, self._written = store, admission, written

    def find(self, call: Call) -> JSON:
        found = self._store.get(call.kind.bucket, call.home, call.name)
        if found is None:
            raise not_found(call.kind.plural, call.group, call.name)
        return found

    def get(self, call: Call) -> Answer:
        return 200, self.find(call)

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
        """The test that the query's selectors make."""
        by_label = selectors.labels(call.query.get("labelSelector", ""))
        own = tuple(row["jsonPath"] for row in (call.kind.custom or {}).get("selectableFields") or ())
        by_field = selectors.fields(
            call.query.get("fieldSelector", ""),
            call.kind.bucket,
            selectable=own,
            regarding=call.group == "events.k8s.io",
        )
        return lambda value: by_label(value) and by_field(value)

    def create(self, call: Call) -> Answer:
        value = objects.decode(call, call.decoded())
        with self._store.changed:
            return self._create(call, value)

    def _create(self, call: Call, value: JSON) -> Answer:
        self._check_namespace(call)
        objects.complete_new(call, value)
        value = self._admission.mutate(call, value, None)
        objects.validate(call, value, None)
        empty = {"apiVersion": call.kind.api_version, "kind": call.kind.kind, "metadata": {}}
        if call.kind.custom is None:
            empty = objects.decode(msgspec.structs.replace(call, query={}), empty)
        owner = managed.Owner(call.manager, "Update", call.kind.api_version)
        if call.verb != "apply":
            managed.update(schemas.root(call.kind), empty, value, owner, self._kept(call))
        self._admission.validate(call, value, None)
        bucket, meta = call.kind.bucket, value["metadata"]
        if self._store.get(bucket, meta.get("namespace", ""), meta["name"]) is not None:
            raise already_exists(call.kind.plural, call.group, meta["name"])
        return 201, self._put(call, value)

    def _kept(self, call: Call) -> tuple[str, ...]:
        return managed.reset(call.subresource, status=strategies.of(call.kind).status)

    def _check_namespace(self, call: Call) -> None:
        if not call.kind.namespaced:
            return
        found = self._store.get("namespaces.", "", call.namespace)
        if found is None:
            raise not_found("namespaces", "", call.namespace)
        if found.get("status", {}).get("phase") == "Terminating":
            why = f"unable to create new content in namespace {call.namespace} because it is being terminated"
            refused = forbidden(call.kind.plural, call.group, call.name, why)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {call.namespace} is being terminated",
                "field": "metadata.namespace",
            }
            (refused.details or {})["causes"] = [cause]
            raise refused

    def _put(self, call: Call, value: JSON) -> JSON:
        if call.dry:
            return value
        stored = self._store.put(call.kind.bucket, value)
        self._written(call, stored)
        return stored

    def update(self, call: Call) -> Answer:
        value = objects.decode(call, call.decoded())
        with self._store.changed:
            old = self._store.get(call.kind.bucket, call.home, call.name)
            if old is None:
                if strategies.of(call.kind).create_on_update and not call.subresource:
                    return self._create(call, value)
                raise not_found(call.kind.plural, call.group, call.name)
            return 200, self._replace(call, old, value, applied=False)

    def _replace(self, call: Call, old: JSON, value: JSON, *, applied: bool) -> JSON:
        """Store a changed object; nothing is written when nothing changed."""
        objects.complete_update(call, old, value)
        value = self._admission.mutate(call, value, old)
        objects.validate(call, value, old)
        if not applied:
            owner = managed.Owner(call.manager, "Update", call.kind.api_version, call.subresource)
            managed.update(schemas.root(call.kind), old, value, owner, self._kept(call))
        self._admission.validate(call, value, old)
        if same(old, value):
            return old
        if "deletionTimestamp" in value["metadata"] and self._may_go(value):
            return value if call.dry else self._remove(call, value)
        return self._put(call, value)

    def _may_go(self, value: JSON) -> bool:
        """Whether nothing holds back an object whose deletion was asked for."""
        meta = value["metadata"]
        return not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")

    def patch(self, call: Call) -> Answer:
        media = call.content_type.partition(";")[0].strip()
        with self._store.changed:
            old = self._store.get(call.kind.bucket, call.home, call.name)
            if media == "application/apply-patch+yaml":
                return self._apply(call, old)
            if old is None:
                raise not_found(call.kind.plural, call.group, call.name)
            value = objects.decode(call, self._patched(call, media, clone(old)))
            return 200, self._replace(call, old, value, applied=False)

    def _patched(self, call: Call, media: str, old: JSON) -> Any:
        if media == "application/strategic-merge-patch+json" and call.kind.custom is None:
            return strategic.apply(old, self._patch_body(call), schemas.root(call.kind))
        if media not in _MERGED_HERE:
            known = (
                _PATCHES
                if call.kind.custom is None
                else _PATCHES.replace("application/strategic-merge-patch+json, ", "")
            )
            raise unsupported_media(known)
        try:
            body = msgspec.json.decode(call.body)
        except msgspec.DecodeError as error:
            raise patches.decode_refusal(error) from None
        return patches.json_patch(old, body) if media == _MERGED_HERE[0] else patches.merge(old, body)

    def _patch_body(self, call: Call) -> JSON:
        try:
            body = msgspec.json.decode(call.body)
        except msgspec.DecodeError as error:
            raise patches.decode_refusal(error) from None
        if not isinstance(body, dict):
            raise bad_request("error decoding patch: not an object")
        return body

    def _apply(self, call: Call, old: JSON | None) -> Answer:
        if "fieldManager" not in call.query:
            raise bad_request(
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            )
        body = call.decoded()
        stated = objects.stated(call, body)
        owner = managed.Owner(call.manager, "Apply", call.kind.api_version, call.subresource)
        empty = {"apiVersion": call.kind.api_version, "kind": call.kind.kind, "metadata": {"name": call.name}}
        live = clone(old) if old is not None else empty
        force = call.query.get("force") == "true"
        merged = server_side.apply(schemas.root(call.kind), live, stated, owner, force=force, without=self._kept(call))
        managed_fields = merged["metadata"].pop("managedFields", None)
        value = objects.decode(msgspec.structs.replace(call, query={}), merged)
        if managed_fields:
            value["metadata"]["managedFields"] = managed_fields
        if old is None:
            if call.subresource:
                raise not_found(call.kind.plural, call.group, call.name)
            return self._create(msgspec.structs.replace(call, verb="apply"), value)
        return 200, self._replace(call, old, value, applied=True)

    def delete(self, call: Call) -> Answer:
        options = call.decoded() if call.body else {}
        with self._store.changed:
            return self._delete(call, self.find(call), options or {})

    def _delete(self, call: Call, value: JSON, options: JSON) -> Answer:
        kind, meta = call.kind, value["metadata"]
        for name, text in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted = (options.get("preconditions") or {}).get(name)
            if wanted is not None and wanted != meta[name]:
                why = f"Precondition failed: {text} in precondition: {wanted}, {text} in object meta: {meta[name]}"
                raise conflict(kind.plural, kind.group, meta["name"], why)
        self._admission.validate(msgspec.structs.replace(call, verb="delete"), None, value)
        seconds = self._grace(call, value, options)
        value = _with_propagation(value, call, options)
        if call.dry:
            return 200, value
        if seconds or meta.get("finalizers") or value["metadata"].get("finalizers") or kind.bucket == "namespaces.":
            return 200, self._begin(call, value, seconds)
        last = self._remove(call, value)
        return 200, last if strategies.of(kind).returns_deleted else _success(call, value)

    def _grace(self, call: Call, value: JSON, options: JSON) -> int:
        """Seconds until the object may go."""
        if not strategies.of(call.kind).graceful:
            return 0
        asked = options.get("gracePeriodSeconds", call.query.get("gracePeriodSeconds"))
        seconds = int(asked if asked is not None else value["spec"].get("terminationGracePeriodSeconds", 30))
        over = value.get("status", {}).get("phase") in ("Succeeded", "Failed")
        return 0 if over or not value["spec"].get("nodeName") else max(seconds, 0)

    def _begin(self, call: Call, value: JSON, seconds: int) -> JSON:
        """The object stays, marked; a later deletion can only shorten the wait."""
        meta = value["metadata"]
        if "deletionTimestamp" in meta:
            if meta.get("deletionGracePeriodSeconds", 0) <= seconds:
                return value
            if not seconds and not meta.get("finalizers"):
                return self._remove(call, value)
        marked = objects.dying(value, seconds)
        if call.kind.bucket == "namespaces.":
            marked["metadata"].pop("deletionGracePeriodSeconds")
            marked["status"] = {**marked["status"], "phase": "Terminating"}
        return self._put(call, marked)

    def _remove(self, call: Call, value: JSON) -> JSON:
        last = self._store.remove(call.kind.bucket, value)
        self._written(call, last)
        return last

    def delete_collection(self, call: Call) -> Answer:
        _, found = self.list(call)
        options = call.decoded() if call.body else {}
        for value in found["items"]:
            one = msgspec.structs.replace(call, name=value["metadata"]["name"])
            if call.kind.namespaced:
                one = msgspec.structs.replace(one, namespace=value["metadata"]["namespace"])
            with self._store.changed:
                self._delete(one, value, options or {})
        return 200, found

    def evict(self, call: Call) -> Answer:
        """Delete a pod if its disruption budgets allow it."""
        body = call.decoded() or {}
        options = body.get("deleteOptions") or {}
        with self._store.changed:
            pod = self.find(call)
            found = disruption.budgets(self._store, pod)
            if found and not disruption.unguarded(pod):
                refused = disruption.refusal(pod, found)
                if refused is not None:
                    raise refused
                if disruption.is_ready(pod) and not call.dry:
                    spent = disruption.spent(found[0], call.name, managed.now())
                    self._store.put("poddisruptionbudgets.policy", spent)
            self._delete(call, pod, options)
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def bind(self, call: Call) -> Answer:
        """Put a pod on a node."""
        target = (call.decoded() or {}).get("target") or {}
        with self._store.changed:
            pod = clone(self.find(call))
            if pod["spec"].get("nodeName"):
                why = f'pod {call.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
                raise conflict("pods/binding", "", call.name, why)
            pod["spec"]["nodeName"] = target.get("name", "")
            scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
            scheduled["lastTransitionTime"] = managed.now()
            pod["status"].setdefault("conditions", []).append(scheduled)
            self._put(call, pod)
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def same(old: JSON, new: JSON) -> bool:
    """Whether only times of managedFields differ."""
    return _untimed(old) == _untimed(new)


def _untimed(value: JSON) -> JSON:
    meta = dict(value["metadata"])
    rows = [{k: v for k, v in row.items() if k != "time"} for row in meta.pop("managedFields", None) or []]
    return {**value, "metadata": {**meta, "managedFields": rows}}


def _with_propagation(value: JSON, call: Call, options: JSON) -> JSON:
    """Foreground and orphan deletion are finalizers that a collector takes off."""
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


__all__ = ["Refusal", "Rest"]
