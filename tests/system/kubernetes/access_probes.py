"""Probes of the permissions of each account of ours, one request each: the rights of RBAC with the admission policies.

``refusals`` has what the agent and the controller must not do in the product's own ways. Here are the ways round:
server-side apply, other kinds of patches, reviews, tokens, impersonation, and the accounts of the page and of people.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.kubernetes.gpu import names
from support.standin.patching import APPLY
from system.kubernetes.agent_rights import EVENTS, LEASES, MAPS, NS, OTHER_NODE, OWN_NODE, config_map, event, lease

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
ALLOWED = ""
DRY = "?dryRun=All"
NODE, PAGE_PODS = f"/api/v1/nodes/{OWN_NODE}", f"/api/v1/namespaces/{NS}/pods"
POD = "/api/v1/namespaces/default/pods/near"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
MAY, MAY_I = (f"/apis/authorization.k8s.io/v1/{kind}" for kind in ("subjectaccessreviews", "selfsubjectaccessreviews"))
ASKS: Any = {"spec": {"user": "ann", "resourceAttributes": {"verb": "get", "resource": "nodes"}}}
_SELF: Any = {"spec": {"resourceAttributes": {"verb": "get", "resource": "nodes"}}}
ROLES = "/apis/rbac.authorization.k8s.io/v1"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
RBAC = "cannot"
"""Words of every refusal by RBAC."""


class Probe(msgspec.Struct, frozen=True):
    """``refusal`` are words of the refusal, or ALLOWED if there is none."""

    who: str
    what: str
    refusal: str
    method: str
    path: str
    body: Any = None
    media: str = "application/json"
    headers: dict[str, str] = {}


def applied(path: str, body: Any) -> dict[str, Any]:
    """Return a server-side apply, which is a patch, and creates an object that does not exist."""
    return {
        "method": "PATCH",
        "path": f"{path}?fieldManager=probe&force=true&dryRun=All",
        "body": body,
        "media": APPLY,
    }


def node(name: str = OWN_NODE, **metadata: Any) -> Any:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name} | metadata}


def _map(name: str) -> dict[str, Any]:
    return applied(f"{MAPS}/{name}", config_map(name, a="b"))


def _lease(name: str) -> dict[str, Any]:
    return applied(f"{LEASES}/{name}", lease(name))


def _patch(body: Any, media: str, path: str = NODE) -> dict[str, Any]:
    return {"method": "PATCH", "path": path + DRY, "body": body, "media": media}


def _post(path: str, body: Any, dry: bool = True) -> dict[str, Any]:
    return {"method": "POST", "path": path + (DRY if dry else ""), "body": body}


def _get(path: str) -> dict[str, Any]:
    return {"method": "GET", "path": path}


_EVICT = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "near", "namespace": "default"}}
_DNS = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "dns", "namespace": "kube-system"}}
_REQUEST = f"never {names.CONFIG_LABEL}"
_STATE = {"metadata": {"labels": {names.STATE_LABEL: "pending"}}}
_NO_REQUEST = [{"op": "remove", "path": f"/metadata/labels/{names.CONFIG_LABEL.replace('/', '~1')}"}]
_AS_ADMIN = {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}
_POD_BODY = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}

PROBES = (
    Probe("agent", "applies a label to its node", ALLOWED, **applied(NODE, node(labels={names.STATE_LABEL: "failed"}))),
    Probe("agent", "applies its own request", _REQUEST, **applied(NODE, node(labels={names.CONFIG_LABEL: "x"}))),
    Probe(
        "agent",
        "applies to another node",
        "only its own node",
        **applied(f"/api/v1/nodes/{OTHER_NODE}", node(OTHER_NODE, labels={names.STATE_LABEL: "failed"})),
    ),
    Probe("agent", "applies a node that is not there", RBAC, **applied("/api/v1/nodes/made", node("made"))),
    Probe("agent", "applies a pod", RBAC, **applied("/api/v1/namespaces/default/pods/p", _POD_BODY)),
    Probe("agent", "applies its own document, which is not there", ALLOWED, **_map(f"{OWN_NODE}-gpus")),
    Probe("agent", "applies another node's document", "<node>-mig-config", **_map(f"{OTHER_NODE}-gpus")),
    Probe("agent", "applies the settings", "<node>-mig-config", **_map(names.SETTINGS_MAP)),
    Probe("agent", "removes its request by a JSON patch", _REQUEST, **_patch(_NO_REQUEST, JSON_PATCH)),
    Probe("agent", "cordons by a strategic patch", ALLOWED, **_patch({"spec": {"unschedulable": True}}, STRATEGIC)),
    Probe("agent", "evicts a pod of its node", ALLOWED, **_post(f"{POD}/eviction", _EVICT)),
    Probe(
        "agent",
        "evicts from kube-system",
        "may not evict pods of kube-system",
        **_post("/api/v1/namespaces/kube-system/pods/dns/eviction", _DNS),
    ),
    Probe("unbound", "evicts", "bound to its pod", **_post(f"{POD}/eviction", _EVICT)),
    Probe("unbound", "writes its document", "<node>-mig-config", **_map(f"{OWN_NODE}-gpus")),
    Probe("unbound", "reads nodes", ALLOWED, **_get("/api/v1/nodes")),
    Probe("agent", "reads all pods", ALLOWED, **_get("/api/v1/pods")),
    Probe("agent", "changes a pod", RBAC, **_patch(_STATE, MERGE, POD)),
    Probe("agent", "writes an event about its node", ALLOWED, **_post(EVENTS, event(OWN_NODE))),
    Probe("agent", "makes a lease", RBAC, **_post(LEASES, lease("a"))),
    Probe("agent", "deletes all ConfigMaps", RBAC, method="DELETE", path=MAPS),
    Probe("agent", "makes a role", RBAC, **_post(f"{ROLES}/clusterroles", {"metadata": {"name": "r"}, "rules": []})),
    Probe("agent", "acts as another", RBAC, method="GET", path="/api/v1/nodes", headers=_AS_ADMIN),
    Probe(
        "agent",
        "asks what it may",
        ALLOWED,
        **_post(MAY_I, _SELF, dry=False),
    ),
    Probe("agent", "asks what others may", RBAC, **_post(MAY, ASKS, dry=False)),
    Probe("agent", "asks whose token one is", RBAC, **_post(TOKENS, {"spec": {"token": "x"}}, dry=False)),
    Probe("controller", "applies what it publishes, which is not there", ALLOWED, **_map(names.EFFECTIVE_MAP)),
    Probe("controller", "applies another ConfigMap", RBAC, **_map("other")),
    Probe("controller", "applies its lease, which is not there", ALLOWED, **_lease("aliquot-controller")),
    Probe("controller", "applies another lease", RBAC, **_lease("other")),
    Probe("controller", "replaces a node", RBAC, method="PUT", path=NODE + DRY, body=node()),
    Probe("controller", "changes a node's status", RBAC, **_patch({"status": {}}, MERGE, f"{NODE}/status")),
    Probe("controller", "reads the pods that wait", ALLOWED, **_get("/api/v1/pods?fieldSelector=spec.nodeName%3D")),
    Probe("controller", "changes webhooks", RBAC, **_patch({"webhooks": []}, MERGE, f"{HOOKS}/x")),
    Probe("page", "reads nodes", ALLOWED, **_get("/api/v1/nodes")),
    Probe("page", "changes a node", RBAC, **_patch(_STATE, MERGE)),
    Probe("page", "asks whose token one is", ALLOWED, **_post(TOKENS, {"spec": {"token": "x"}}, dry=False)),
    Probe("page", "asks what others may", ALLOWED, **_post(MAY, ASKS, dry=False)),
    Probe("page", "reads what agents publish", ALLOWED, **_get(MAPS)),
    Probe("page", "reads ConfigMaps elsewhere", RBAC, **_get("/api/v1/namespaces/default/configmaps")),
    Probe("page", "reads the agents' pods", ALLOWED, **_get(PAGE_PODS)),
    Probe("page", "reads other pods", RBAC, **_get("/api/v1/pods")),
    Probe("page", "reads past changes", ALLOWED, **_get(EVENTS)),
    Probe("page", "reads secrets", RBAC, **_get(f"/api/v1/namespaces/{NS}/secrets")),
    Probe("page", "acts as another", RBAC, method="GET", path="/api/v1/nodes", headers=_AS_ADMIN),
    Probe("looks", "reads nodes", ALLOWED, **_get("/api/v1/nodes")),
    Probe("looks", "changes a node", RBAC, **_patch(_STATE, MERGE)),
    Probe("changes", "labels a node", ALLOWED, **_patch({"metadata": {"labels": {names.CONFIG_LABEL: "x"}}}, MERGE)),
    Probe("changes", "deletes a node", RBAC, method="DELETE", path=NODE + DRY),
    Probe("changes", "applies a node's own config, which is not there", ALLOWED, **_map(f"{OWN_NODE}-own-config")),
    Probe("changes", "deletes a ConfigMap", RBAC, method="DELETE", path=f"{MAPS}/{names.SETTINGS_MAP}{DRY}"),
    Probe("patches", "applies a ConfigMap that is there", ALLOWED, **_map(names.SETTINGS_MAP)),
    Probe("patches", "applies a ConfigMap that is not there", "forbidden", **_map("not-there")),
)
