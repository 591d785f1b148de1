"""Requests about access: tokens, roles, reviews."""

# ruff: noqa: E501  one request per line reads better than what wrapping makes of it

from __future__ import annotations

from typing import Any

from tools.apiserver.steps import JSON, MAPS, NODES, PODS, config_map, create, delete, get, node, patch, pod

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ACCOUNTS = "/api/v1/namespaces/gpu/serviceaccounts"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ME = {"kind": "ServiceAccount", "namespace": "gpu", "name": "agent"}


def _role(kind: str, name: str, *rules: JSON) -> JSON:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "rules": list(rules),
    }


def _binding(kind: str, name: str, role: str, role_kind: str = "ClusterRole") -> JSON:
    found = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}
    return {**found, "roleRef": reference, "subjects": [_ME]}


def _may(what: str, **attributes: str) -> JSON:
    body: JSON = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    body["spec"] = {"resourceAttributes": attributes}
    return create(what, _REVIEWS, body, token="{{token}}", accept="application/json")


def access() -> list[JSON]:
    """Return the requests of a service account that gains rights step by step."""
    mine: dict[str, Any] = {"token": "{{token}}"}
    reader = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
    patcher = {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}
    named = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cm"], "verbs": ["get", "update"]}
    evicter = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    roles = "/namespaces/default/roles"
    return [
        get("nobody", NODES, token=""),
        get("a bad token", NODES, token="bad"),
        get("the version is for everybody", "/version", token=""),
        get("groups are not", "/apis", token=""),
        create("namespace", "/api/v1/namespaces", {"metadata": {"name": "gpu"}}),
        create("account", _ACCOUNTS, {"metadata": {"name": "agent"}}),
        create("token", f"{_ACCOUNTS}/agent/token", {"spec": {}}, save={"token": "status.token"}),
        create("token of an unknown account", f"{_ACCOUNTS}/nobody/token", {"spec": {}}),
        get("no role: list", NODES, **mine),
        get("no role: get", f"{NODES}/n1", **mine),
        get("no role: in a namespace", f"{MAPS}/cm", **mine),
        get("no role: another group", "/apis/apps/v1/namespaces/default/daemonsets", **mine),
        get("no role: what is not there", "/api/v1/nothing", **mine),
        get("no role: another version", "/apis/nothing.io/v1/things", **mine),
        create("no role: create", MAPS, config_map(), **mine),
        patch("no role: status", f"{NODES}/n1/status", {}, **mine),
        delete("no role: collection", PODS, **mine),
        create("no role: evict", f"{PODS}/a/eviction", {}, **mine),
        get("a path", "/metrics", **mine),
        get("discovery", "/api", **mine),
        _may("may not list", verb="list", resource="nodes"),
        create("node", NODES, node()),
        create("config map", MAPS, config_map()),
        create("pod", PODS, pod("a")),
        create("reader", f"{_RBAC}/clusterroles", _role("ClusterRole", "reader", reader, patcher)),
        create("bound", f"{_RBAC}/clusterrolebindings", _binding("ClusterRoleBinding", "reader", "reader")),
        get("list now", NODES, **mine, until=200),
        get("get now", f"{NODES}/n1", **mine),
        patch("status now", f"{NODES}/n1/status", {"metadata": {"labels": {"a": "b"}}}, **mine),
        patch("not the node", f"{NODES}/n1", {"metadata": {"labels": {"a": "b"}}}, **mine),
        _may("may list", verb="list", resource="nodes"),
        _may("may patch status", verb="patch", resource="nodes", subresource="status"),
        create("named", f"{_RBAC}{roles}", _role("Role", "named", named)),
        create("named, bound", f"{_RBAC}/namespaces/default/rolebindings", _binding("RoleBinding", "named", "named", "Role")),
        get("its name", f"{MAPS}/cm", **mine, until=200),
        get("another name", f"{MAPS}/other", **mine),
        get("no name", MAPS, **mine),
        get("another namespace", "/api/v1/namespaces/kube-system/configmaps/cm", **mine),
        _may("may get by name", verb="get", resource="configmaps", name="cm", namespace="default"),
        _may("may not by another", verb="get", resource="configmaps", name="x", namespace="default"),
        create("evicter", f"{_RBAC}/clusterroles", _role("ClusterRole", "evicter", evicter)),
        create("evicter in a namespace", f"{_RBAC}/namespaces/default/rolebindings", _binding("RoleBinding", "evicter", "evicter")),
        create("evict", f"{PODS}/a/eviction", {"metadata": {"name": "a"}}, **mine, until=201),
        delete("but not delete", f"{PODS}/a", **mine),
        patch("a role reference is fixed", f"{_RBAC}/clusterrolebindings/reader", {"roleRef": {"name": "evicter"}}),
        create("who am I", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, **mine),
        create("whose token", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "{{token}}"}}),
        create("no token", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "bad"}}),
        create("may somebody", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"user": "system:serviceaccount:gpu:agent", "resourceAttributes": {"verb": "list", "resource": "nodes"}}}),
        create("a token for a pod", f"{_ACCOUNTS}/agent/token", {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "none"}}}),
        delete("the account goes", f"{_ACCOUNTS}/agent"),
        get("and its token with it", NODES, **mine, until=401),
        create("unknown account", f"{_ACCOUNTS}", {"metadata": {"name": "a_b"}}),
    ]  # fmt: skip
