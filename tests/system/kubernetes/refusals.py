"""Requests that the agent and the controller must not make, with words of each refusal ("" if RBAC's own words
suffice).
"""

from __future__ import annotations

import msgspec

from aliquot.kubernetes.gpu import names
from system.kubernetes.agent_rights import (
    CONTROLLER,
    EVENTS,
    LEASES,
    MAPS,
    NS,
    OTHER_NODE,
    OWN_NODE,
    Environment,
    config_map,
    event,
    eviction,
    hint,
    lease,
)
from system.kubernetes.api_user import Answer

DRY = "?dryRun=All"


class Try(msgspec.Struct, frozen=True):
    """``pod`` is created first if one is needed: name, node, namespace. The path is then below it."""

    what: str
    words: str
    method: str
    path: str
    body: object = None
    pod: tuple[str, str, str] | None = None
    unbound: bool = False

    def __call__(self, environment: Environment, who: str, query: str = "") -> Answer:
        client = (
            environment.controller if who == CONTROLLER else environment.unbound if self.unbound else environment.agent
        )
        path = environment.pod(*self.pod) + self.path if self.pod else self.path
        return client.ask(self.method, path + query, self.body)


def on_node(what: str, words: str, body: object, node: str = OWN_NODE, *, unbound: bool = False) -> Try:
    return Try(what, words, "PATCH", f"/api/v1/nodes/{node}", body, unbound=unbound)


def label(name: str, value: str | None) -> object:
    return {"metadata": {"labels": {name: value}}}


def note(name: str) -> object:
    return {"metadata": {"annotations": {name: "x"}}}


OWN_POD, REMOTE_POD = ("near", OWN_NODE, "default"), ("far", OTHER_NODE, "default")
DNS_POD = ("dns", OWN_NODE, "kube-system")
TAINT = {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}
POD_RANGE = {"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}}
FINALIZER = {"metadata": {"finalizers": ["a.b/c"]}}
OWNED = {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "gone"}]}}
"""The garbage collector deletes objects with a missing owner, so an account that may write this may delete."""
CORDON = {"spec": {"unschedulable": True}}
ACCOUNT = f"/api/v1/namespaces/{NS}"
SETTINGS = f"{MAPS}/{names.SETTINGS_MAP}"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_NODE, _REQUEST, _LABELS = (
    "its own node",
    f"never {names.CONFIG_LABEL}",
    "only labels nvidia.com/* and *.aliquot.dev/*",
)
_PODS = "only its own events about pods"
_MAP = "<node>-mig-config"

AGENT_MAY_NOT = (
    on_node("another node", _NODE, note(names.STATUS_ANNOTATION), OTHER_NODE),
    on_node("its node, with an unbound token", _NODE, note(names.STATUS_ANNOTATION), unbound=True),
    on_node("its own request", _REQUEST, label(names.CONFIG_LABEL, "all-1g.5gb")),
    on_node("removing its own request", _REQUEST, label(names.CONFIG_LABEL, None)),
    on_node("its own request for vGPUs", _REQUEST, label(names.VGPU_CONFIG_LABEL, "default")),
    on_node("labels of others", _LABELS, label("node-role.kubernetes.io/control-plane", "")),
    on_node("removing labels of others", _LABELS, label("zone", None)),
    on_node("annotations of others", "only annotations aliquot.dev/*", note("a.b/c")),
    on_node("GPUs out of bounds", f"never {names.RESERVED_ANNOTATION}", note(names.RESERVED_ANNOTATION)),
    on_node("taints", "may cordon its node", TAINT),
    on_node("the addresses of its pods", "may cordon its node", POD_RANGE),
    on_node("who provides it", "may cordon its node", {"spec": {"providerID": "x://y"}}),
    on_node(
        "cordon, and the addresses of its pods", "may cordon its node", {"spec": POD_RANGE["spec"] | CORDON["spec"]}
    ),
    on_node("finalizers", "may cordon its node", FINALIZER),
    on_node("an owner that is not there", "may cordon its node", OWNED),
    Try("node status", "", "PATCH", f"/api/v1/nodes/{OWN_NODE}/status", {"status": {}}),
    Try("replacing nodes", "", "PUT", f"/api/v1/nodes/{OWN_NODE}", {}),
    Try("deleting nodes", "", "DELETE", f"/api/v1/nodes/{OWN_NODE}"),
    Try("making nodes", "", "POST", "/api/v1/nodes", {"metadata": {"name": "n"}}),
    Try("pods of another node", _NODE, "DELETE", "", pod=REMOTE_POD),
    Try("pods of its node, with an unbound token", _NODE, "DELETE", "", pod=OWN_POD, unbound=True),
    Try("all pods at once", "", "DELETE", "/api/v1/namespaces/default/pods"),
    Try("making pods", "", "POST", f"{ACCOUNT}/pods", {}),
    Try("entering pods", "", "POST", "/exec?command=sh", pod=OWN_POD),
    Try("another node's ConfigMap", _MAP, "POST", MAPS, config_map(f"{OTHER_NODE}-mig-config")),
    Try("another node's document", _MAP, "POST", MAPS, config_map(f"{OTHER_NODE}-gpus")),
    Try("a config of its node's own", _MAP, "POST", MAPS, config_map(f"{OWN_NODE}-own-config")),
    Try("the settings", _MAP, "PATCH", SETTINGS, {"data": {"a": "b"}}),
    Try("ConfigMaps elsewhere", "", "GET", "/api/v1/namespaces/default/configmaps"),
    Try("deleting ConfigMaps", "", "DELETE", SETTINGS),
    Try("events about others", _NODE, "POST", EVENTS, event(OTHER_NODE)),
    Try("events about pods", _NODE, "POST", EVENTS, event(OWN_NODE, "Pod")),
    Try("secrets", "", "GET", f"{ACCOUNT}/secrets"),
    Try("secrets of all", "", "GET", "/api/v1/secrets"),
    Try("tokens", "", "POST", f"{ACCOUNT}/serviceaccounts/{CONTROLLER}/token", {"spec": {}}),
    Try("bindings", "", "POST", BINDINGS, {}),
    Try("policies", "", "DELETE", f"{POLICIES}/aliquot-agent-nodes"),
    Try("leases", "", "GET", f"{LEASES}/aliquot-controller"),
    Try("ClusterPolicy", "", "GET", "/apis/nvidia.com/v1/clusterpolicies"),
)
CONTROLLER_MAY_NOT = (
    on_node("other labels", "change only the labels", label(names.STATE_LABEL, "success")),
    on_node("other annotations", "change only the annotation", note(names.STATUS_ANNOTATION)),
    on_node("cordons", "the spec of a node", CORDON, OTHER_NODE),
    on_node("taints", "the spec of a node", TAINT, OTHER_NODE),
    on_node("an owner that is not there", "the spec of a node", OWNED),
    Try("other ConfigMaps", "write only", "POST", MAPS, config_map("other")),
    Try("the settings", "", "PATCH", SETTINGS, {"data": {}}),
    Try("other leases", "write only", "POST", LEASES, lease("other")),
    Try("reading other leases", "", "GET", f"{LEASES}/other"),
    Try("listing leases", "", "GET", LEASES),
    Try("reading one pod", "", "GET", "", pod=OWN_POD),
    Try("changing pods", "", "PATCH", "", note("a.b/c"), pod=OWN_POD),
    Try("events about nodes", _PODS, "POST", EVENTS, hint("gpu-1", kind="Node")),
    Try("events in another's name", _PODS, "POST", EVENTS, hint("far", reportingComponent="kubelet")),
    Try("events of other reasons", _PODS, "POST", EVENTS, hint("far", reason="Evicted")),
    Try("reading events", "", "GET", EVENTS),
    Try("deleting pods", "", "DELETE", "", pod=OWN_POD),
    Try("secrets", "", "GET", f"{ACCOUNT}/secrets"),
    Try("writing ClusterPolicy", "", "PATCH", "/apis/nvidia.com/v1/clusterpolicies/x", {}),
    Try("deleting nodes", "", "DELETE", f"/api/v1/nodes/{OWN_NODE}"),
)
EVICTIONS = (
    Try("evicting from kube-system", "kube-system", "POST", "/eviction", eviction("dns", "kube-system"), DNS_POD),
    Try("evicting, unbound", "bound to its pod", "POST", "/eviction", eviction("far", "default"), REMOTE_POD, True),
)
