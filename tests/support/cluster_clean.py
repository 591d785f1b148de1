"""Clean a real server between tests, without controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.cluster import Cluster

JSON = dict[str, Any]
_OWN = ("default", "kube-node-lease", "kube-public", "kube-system")
_CLUSTER_WIDE = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/api/v1/nodes",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/resource.k8s.io/v1/deviceclasses",
)
_EVERYWHERE = (
    "/api/v1/pods",
    "/api/v1/configmaps",
    "/api/v1/events",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/api/v1/services",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/controllerrevisions",
    "/apis/batch/v1/jobs",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/resource.k8s.io/v1/resourceclaims",
    "/apis/resource.k8s.io/v1/resourceclaimtemplates",
)
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def clean(cluster: Cluster) -> None:
    """Remove everything that a test may have left, except what the server creates for itself."""
    for path in _CLUSTER_WIDE:
        _remove_all(cluster, path)
    for kind in ("clusterrolebindings", "clusterroles"):
        for row in cluster.get(f"{_RBAC}/{kind}")["items"]:
            if "kubernetes.io/bootstrapping" not in (row["metadata"].get("labels") or {}):
                _remove(cluster, f"{_RBAC}/{kind}", row)
    for path in _EVERYWHERE:
        _remove_all(cluster, path)
    _remove_definitions(cluster)
    for row in cluster.get("/api/v1/namespaces")["items"]:
        name = row["metadata"]["name"]
        if name not in _OWN:
            cluster.request("DELETE", f"/api/v1/namespaces/{name}")
            empty = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
            cluster.request("PUT", f"/api/v1/namespaces/{name}/finalize", empty)


def _remove_definitions(cluster: Cluster) -> None:
    """Remove custom resources first: the server's own finalizer then lets the definitions go."""
    for row in cluster.get(_CRDS)["items"]:
        spec = row["spec"]
        version = next((v["name"] for v in spec["versions"] if v["served"]), "none")
        if cluster.request("GET", path := f"/apis/{spec['group']}/{version}/{spec['names']['plural']}").status == 200:
            _remove_all(cluster, path)
        cluster.request("DELETE", f"{_CRDS}/{row['metadata']['name']}")
    cluster.wait(lambda: not cluster.get(_CRDS)["items"], "the custom resource definitions to go")


def _remove_all(cluster: Cluster, path: str) -> None:
    for row in cluster.get(path)["items"]:
        meta = row["metadata"]
        if meta["name"].startswith("system:") or meta.get("namespace") in ("kube-system", "kube-public"):
            continue
        if meta.get("namespace") == "kube-node-lease" and not path.endswith("leases"):
            continue
        if meta["name"] == "kube-root-ca.crt" or (meta["name"] == "kubernetes" and path.endswith("services")):
            continue
        _remove(cluster, path, row)


def _remove(cluster: Cluster, path: str, row: JSON) -> None:
    meta = row["metadata"]
    root, _, plural = path.rpartition("/")
    inside = f"/namespaces/{meta['namespace']}" if meta.get("namespace") else ""
    one = f"{root}{inside}/{plural}/{meta['name']}"
    if meta.get("finalizers"):
        cluster.request("PATCH", one, {"metadata": {"finalizers": None}})
    cluster.request("DELETE", f"{one}?gracePeriodSeconds=0")
