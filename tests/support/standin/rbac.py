"""Role-based access control, evaluated from the Roles and bindings that the store holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from support.standin.call import SYSTEM, Call, Caller
from support.standin.store import Store

JSON = dict[str, Any]
_GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
_EVERYBODY = (
    {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        "verbs": ["create"],
    },
    {
        "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*",
                            "/readyz", "/version", "/version/"],
        "verbs": ["get"],
    },
)  # fmt: skip
"""What a real server's built-in roles (system:basic-user, system:discovery) let every authenticated user do."""


def allows_resource(
    store: Store, caller: Caller, verb: str, group: str, resource: str, *, namespace: str = "", name: str = ""
) -> bool:
    """Report whether some rule lets the caller do this. ``resource`` may be ``pods/eviction``."""
    return why(store, caller, verb, group, resource, namespace=namespace, name=name) is not None


def why(
    store: Store, caller: Caller, verb: str, group: str, resource: str, *, namespace: str = "", name: str = ""
) -> str | None:
    """Return the binding that lets the caller do this, or None if none does."""
    if MASTERS in caller.groups:
        return ""
    for rule, binding in _bound(store, caller, namespace):
        if (
            verb_of(rule, verb)
            and _has(rule.get("apiGroups"), group)
            and _covers(rule.get("resources") or [], resource)
            and (not rule.get("resourceNames") or name in rule["resourceNames"])
        ):
            return _reported(binding, caller) if binding else ""
    return None


def allows_path(store: Store, caller: Caller, verb: str, path: str) -> bool:
    """Report whether some rule lets the caller read a path that is not a resource."""
    if MASTERS in caller.groups:
        return True
    return any(
        verb_of(rule, verb) and any(_matches(path, pattern) for pattern in rule.get("nonResourceURLs") or [])
        for rule in rules(store, caller, "")
    )


def verb_of(rule: JSON, verb: str) -> bool:
    return _has(rule.get("verbs"), verb)


def _has(known: list[str] | None, wanted: str) -> bool:
    return wanted in (known or []) or "*" in (known or [])


def _covers(known: list[str], resource: str) -> bool:
    _, slash, subresource = resource.partition("/")
    return resource in known or "*" in known or bool(slash and f"*/{subresource}" in known)


def _matches(path: str, pattern: str) -> bool:
    return pattern == path or pattern == "*" or (pattern.endswith("*") and path.startswith(pattern[:-1]))


def rules(store: Store, caller: Caller, namespace: str) -> Iterator[JSON]:
    """Return every rule that holds for the caller in this namespace ("" for cluster-scoped objects)."""
    return (rule for rule, _ in _bound(store, caller, namespace))


def _bound(store: Store, caller: Caller, namespace: str) -> Iterator[tuple[JSON, JSON | None]]:
    """Return each rule with its binding, or None for the rules of every user."""
    if "system:authenticated" in caller.groups:
        for rule in _EVERYBODY:
            yield rule, None
    for binding in store.items(f"clusterrolebindings.{_GROUP}"):
        if _names(binding, caller, ""):
            for rule in _role(store, binding, ""):
                yield rule, binding
    if namespace:
        for binding in store.items(f"rolebindings.{_GROUP}", namespace):
            if _names(binding, caller, namespace):
                for rule in _role(store, binding, namespace):
                    yield rule, binding


def _reported(binding: JSON, caller: Caller) -> str:
    """Return why something is allowed, in the server's words."""
    meta, ref = binding["metadata"], binding["roleRef"]
    name = f"{meta['name']}/{meta['namespace']}" if meta.get("namespace") else meta["name"]
    subject = next(s for s in binding["subjects"] if _names({"subjects": [s]}, caller, meta.get("namespace", "")))
    who = f"{subject['name']}/{subject['namespace']}" if subject["kind"] == "ServiceAccount" else subject["name"]
    message = f'{binding["kind"]} "{name}" of {ref["kind"]} "{ref["name"]}" to {subject["kind"]} "{who}"'
    return f"RBAC: allowed by {message}"


def _names(binding: JSON, caller: Caller, namespace: str) -> bool:
    for subject in binding.get("subjects") or []:
        kind, name = subject["kind"], subject["name"]
        if kind == "ServiceAccount":
            where = subject.get("namespace") or namespace
            if caller.name == f"{SYSTEM}{where}:{name}":
                return True
        elif (kind == "User" and caller.name == name) or (kind == "Group" and name in caller.groups):
            return True
    return False


def _role(store: Store, binding: JSON, namespace: str) -> list[JSON]:
    ref = binding["roleRef"]
    if ref["kind"] == "ClusterRole":
        role = store.get(f"clusterroles.{_GROUP}", "", ref["name"])
        selectors = ((role or {}).get("aggregationRule") or {}).get("clusterRoleSelectors")
        if role and selectors:
            return [*(role.get("rules") or []), *_aggregated(store, selectors)]
    else:
        role = store.get(f"roles.{_GROUP}", namespace, ref["name"])
    found: list[JSON] = (role or {}).get("rules") or []
    return found


def _aggregated(store: Store, wanted: list[JSON]) -> Iterator[JSON]:
    from support.standin.selectors import of_object

    for role in store.items(f"clusterroles.{_GROUP}"):
        if any(of_object(one)(role["metadata"].get("labels") or {}) for one in wanted):
            yield from role.get("rules") or []


def refusal_text(call: Call) -> str:
    """Return why a call is forbidden, in the server's words."""
    where = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
    return (
        f'User "{call.caller.name}" cannot {call.verb} resource "{call.resource}" in API group "{call.group}" {where}'
    )
