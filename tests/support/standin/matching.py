"""Match requests to admission policies and webhooks."""

from __future__ import annotations

from typing import Any

from support.standin.call import Call
from support.standin.selectors import of_object
from support.standin.store import Store

JSON = dict[str, Any]
_OPERATIONS = {"create": "CREATE", "apply": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
_OPERATIONS["deletecollection"] = "DELETE"
EXEMPT = ("admissionregistration.k8s.io",)
"""Policies do not apply to policies, so that a wrong one can be reverted."""


def operation(call: Call, old: JSON | None) -> str:
    """Return CREATE, UPDATE, DELETE or CONNECT. An apply or update of an object that does not exist is a CREATE."""
    if call.verb in ("delete", "connect"):
        return call.verb.upper()
    return "UPDATE" if old is not None and call.verb != "create" else _OPERATIONS[call.verb] if old else "CREATE"


def matches(store: Store, call: Call, rules: JSON, new: JSON | None, old: JSON | None, *, key: str) -> bool:
    """Report whether the resource rules under ``key`` name this request and its selectors select the object.

    A rule without a named scope holds for every scope; an absent selector selects everything.
    """
    if call.group in EXEMPT:
        return False
    asked = operation(call, old)
    if not any(_rule(rule, call, asked) for rule in rules.get(key) or ()):
        return False
    if any(_rule(rule, call, asked) for rule in rules.get("excludeResourceRules") or ()):
        return False
    selector = rules.get("objectSelector") or {}
    labels = [(value.get("metadata", {}).get("labels") or {}) for value in (new, old) if value is not None]
    if not any(of_object(selector)(one) for one in labels):
        return False
    return _namespace(store, call, rules.get("namespaceSelector") or {})


def _namespace(store: Store, call: Call, selector: JSON) -> bool:
    name = call.namespace if call.kind.namespaced else call.name if call.kind.bucket == "namespaces." else ""
    if not name:
        return True
    found = store.get("namespaces.", "", name)
    return of_object(selector)((found or {"metadata": {}})["metadata"].get("labels") or {})


def _rule(rule: JSON, call: Call, asked: str) -> bool:
    names = rule.get("resourceNames")
    scope = rule.get("scope") or "*"
    return (
        _has(rule.get("operations"), asked)
        and _has(rule.get("apiGroups"), call.group)
        and _has(rule.get("apiVersions"), call.kind.version)
        and _resource(rule.get("resources") or [], call)
        and (not names or call.name in names)
        and scope in ("*", "Namespaced" if call.kind.namespaced else "Cluster")
    )


def _has(known: list[str] | None, wanted: str) -> bool:
    return "*" in (known or ()) or wanted in (known or ())


def _resource(known: list[str], call: Call) -> bool:
    plain, sub = call.kind.plural, call.subresource
    wanted = {f"{plain}/{sub}", f"{plain}/*", f"*/{sub}", "*/*"} if sub else {plain, "*", "*/*"}
    return bool(wanted & set(known))


def request(call: Call, uid: str, new: JSON | None, old: JSON | None) -> JSON:
    """Return the ``request`` of an AdmissionReview, which CEL also calls ``request``."""
    kind = {"group": call.group, "version": call.kind.version, "kind": call.kind.kind}
    resource = {"group": call.group, "version": call.kind.version, "resource": call.kind.plural}
    value = new if new is not None else old
    if call.verb == "connect":
        kind = {"group": "", "version": "v1", "kind": call.kind.subresources[call.subresource].kind}
    return {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        **({"subResource": call.subresource} if call.subresource else {}),
        "requestKind": kind,
        "requestResource": resource,
        "name": call.name or (value or {"metadata": {}})["metadata"].get("name", ""),
        **({"namespace": call.namespace} if call.kind.namespaced else {}),
        "operation": operation(call, old),
        "userInfo": call.caller.as_user_info(),
        "dryRun": call.dry,
        "object": new,
        "oldObject": old,
        "options": None,
    }
