"""A cluster with our manifests, two nodes, and one request for each right of the table.

Each ``USES`` entry takes the environment and does what the product does with that right, on the account's own objects.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.label_agent.controller import pending_pods as waiting
from support.cluster import Cluster
from system.kubernetes.api_user import Answer, ApiUser

NS = "gpu-operator"
ROOT = Path(__file__).resolve().parents[3] / "deploy"
DEPLOY = ROOT / "kubernetes"
AGENT, CONTROLLER = "aliquot-agent", "aliquot-controller"
OWN_NODE, OTHER_NODE = "gpu-1", "gpu-2"
CRDS = {
    "nvidia.com": ("v1", "clusterpolicies"),
    "devices.harvesterhci.io": ("v1beta1", "sriovgpudevices"),
}

PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "Service": "services",
    "DaemonSet": "daemonsets",
    "Deployment": "deployments",
    "NetworkPolicy": "networkpolicies",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
}


def path_of(item: dict[str, Any]) -> str:
    """Return the path of an object on the server."""
    version, meta = item["apiVersion"], item["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{place}/{PLURALS[item['kind']]}/{meta['name']}"


def manifests(folder: Path = DEPLOY) -> list[dict[str, Any]]:
    """Return every object of a file or folder, in the order of kubectl apply -f."""
    texts = [path.read_text() for path in ([folder] if folder.is_file() else sorted(folder.glob("*.yaml")))]
    return [item for text in texts for item in yaml.load_all(text, yaml.CSafeLoader)]


class Environment:
    """``admin`` has all rights. ``agent`` and ``controller`` have those of the pods of the manifests."""

    def __init__(self, cluster: Cluster, objects: list[dict[str, Any]] | None = None) -> None:
        self.cluster = cluster
        self.admin = admin = ApiUser(cluster, cluster.token)
        for item in objects or manifests():
            admin.apply(path_of(item), item)
        for node in (OWN_NODE, OTHER_NODE):
            meta = {"name": node, "labels": {"kubernetes.io/hostname": node}}
            admin.apply(f"/api/v1/nodes/{node}", {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        self.pod("nvidia-mig-manager-1", OWN_NODE, NS, AGENT)
        self.pod("aliquot-controller-1", OTHER_NODE, NS, CONTROLLER)
        self.agent = ApiUser(cluster, self.token(AGENT, "nvidia-mig-manager-1"))
        self.unbound = ApiUser(cluster, self.token(AGENT, ""))
        self.controller = ApiUser(cluster, self.token(CONTROLLER, "aliquot-controller-1"))

    def pod(self, name: str, node: str, namespace: str = "default", account: str = "") -> str:
        """Create a pod on a node again and return its path."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        if self.admin.ask("GET", f"{path}/{name}").status == 200:
            return f"{path}/{name}"
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "c"}]}
        spec |= {"serviceAccountName": account} if account else {}
        self.admin.must("POST", path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        return f"{path}/{name}"

    def token(self, account: str, pod: str) -> str:
        """Return a token as the kubelet would mount it into the pod."""
        spec: dict[str, Any] = {"audiences": None, "expirationSeconds": 3600}
        if pod:
            uid = self.admin.must("GET", f"/api/v1/namespaces/{NS}/pods/{pod}")["metadata"]["uid"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = self.admin.must("POST", f"/api/v1/namespaces/{NS}/serviceaccounts/{account}/token", body)
        return str(made["status"]["token"])

    def mark(self) -> None:
        """Label the agent's node with a foreign label and with a request."""
        marks = {"labels": {"zone": "a", names.CONFIG_LABEL: "all-disabled"}}
        self.admin.must("PATCH", f"/api/v1/nodes/{OWN_NODE}", {"metadata": marks})

    def close(self) -> None:
        """Remove what the cleaning of a server between tests leaves."""
        self.admin.ask("DELETE", "/api/v1/namespaces/kube-system/pods/dns?gracePeriodSeconds=0")

    def fresh(self, name: str) -> None:
        """Delete a ConfigMap, so that it can be created."""
        self.admin.ask("DELETE", f"/api/v1/namespaces/{NS}/configmaps/{name}")


def patch_node(user: ApiUser, node: str, body: dict[str, Any]) -> Answer:
    return user.ask("PATCH", f"/api/v1/nodes/{node}", body)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def event(node: str, kind: str = "Node") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{node}."},
        "involvedObject": {"apiVersion": "v1", "kind": kind, "name": node, "uid": node},
        "type": "Normal",
        "reason": "Applied",
        "message": "done",
    }


def hint(pod: str, kind: str = "Pod", **output: str) -> dict[str, Any]:
    """Build the controller's event about a pod, or a form of it that the controller must not create."""
    written = waiting.event(waiting.PodHint("default", pod, f"uid-{pod}", "a sentence"), 0)
    about = written["involvedObject"] | {"kind": kind}
    return {"apiVersion": "v1", "kind": "Event"} | written | {"involvedObject": about} | output


def _reported(environment: Environment, user: ApiUser) -> Answer:
    environment.admin.ask("DELETE", f"{EVENTS}/{hint('far')['metadata']['name']}")
    return user.ask("POST", EVENTS, hint("far"))


def lease(name: str) -> dict[str, Any]:
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


MAPS = f"/api/v1/namespaces/{NS}/configmaps"
EVENTS = "/api/v1/namespaces/default/events"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NS}/leases"
CLAIMS = "/apis/resource.k8s.io/v1"
OWN_MAP = f"{OWN_NODE}-mig-config"
UNBOUND = "fieldSelector=spec.nodeName%3D%2Cstatus.phase%3DPending"
WATCH = "watch=true&timeoutSeconds=1"


def _made(environment: Environment, user: ApiUser, name: str) -> Answer:
    environment.fresh(name)
    return user.ask("POST", MAPS, config_map(name, a="b"))


def _patched_map(environment: Environment, user: ApiUser, name: str) -> Answer:
    environment.admin.apply(f"{MAPS}/{name}", config_map(name, a="b"))
    return user.ask("PATCH", f"{MAPS}/{name}", {"data": {"a": "c"}})


def device_slice(node: str) -> dict[str, Any]:
    pool = {"name": f"{node}-aliquot", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.aliquot.dev", "nodeName": node, "pool": pool}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def own_slice(environment: Environment, node: str = OWN_NODE) -> str:
    """Create the slice of a node, unless it exists, and return its path."""
    environment.admin.ask("POST", f"{CLAIMS}/resourceslices", device_slice(node))
    return f"{CLAIMS}/resourceslices/{node}"


def own_claim(environment: Environment, node: str = OWN_NODE) -> str:
    """Create a claim that has a device of a node, unless it exists, and return its path."""
    path, meta = f"{CLAIMS}/namespaces/default/resourceclaims", {"name": f"has-{node}", "namespace": "default"}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    environment.admin.ask("POST", path, head | {"spec": {"devices": {"requests": [request]}}})
    results = [{"request": "gpu", "driver": "gpu.aliquot.dev", "pool": f"{node}-aliquot", "device": "gpu-0"}]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    allocation = {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    environment.admin.must("PATCH", f"{path}/has-{node}/status", {"status": {"allocation": allocation}})
    return f"{path}/has-{node}"


def shown_device(node: str = OWN_NODE) -> dict[str, Any]:
    """Build a claim's status with a device of a node."""
    device = {"driver": "gpu.aliquot.dev", "pool": f"{node}-aliquot", "device": "gpu-0", "data": {"uuid": "GPU-1"}}
    return {"status": {"devices": [device]}}


def _showed(environment: Environment, user: ApiUser) -> Answer:
    path = f"{own_claim(environment)}/status"
    environment.admin.must("PATCH", path, {"status": {"devices": None}})
    answer = user.ask("PATCH", path, shown_device())
    assert answer.status != 422, answer.message  # so a server of 1.36 refuses it
    return answer


def _made_slice(environment: Environment, user: ApiUser) -> Answer:
    environment.admin.ask("DELETE", own_slice(environment))
    return user.ask("POST", f"{CLAIMS}/resourceslices", device_slice(OWN_NODE))


def _made_lease(environment: Environment, user: ApiUser) -> Answer:
    environment.admin.ask("DELETE", f"{LEASES}/aliquot-controller")
    return user.ask("POST", LEASES, lease("aliquot-controller"))


def _patched_lease(environment: Environment, user: ApiUser) -> Answer:
    environment.admin.apply(f"{LEASES}/aliquot-controller", lease("aliquot-controller"))
    return user.ask("PATCH", f"{LEASES}/aliquot-controller", {"spec": {"holderIdentity": "you"}})


def _reads(path: str, name: str) -> dict[str, Callable[[Environment, ApiUser], Answer]]:
    return {
        "get": lambda _, client: client.ask("GET", f"{path}/{name}"),
        "list": lambda _, client: client.ask("GET", f"{path}?fieldSelector=metadata.name={name}"),
        "watch": lambda _, client: client.ask("GET", f"{path}?{WATCH}"),
    }


def _crd(group: str) -> dict[str, Callable[[Environment, ApiUser], Answer]]:
    version, plural = CRDS[group]
    path = f"/apis/{group}/{version}/{plural}"
    return {
        "get": lambda _, client: client.ask("GET", f"{path}/x"),
        "list": lambda _, client: client.ask("GET", path),
        "watch": lambda _, client: client.ask("GET", f"{path}?{WATCH}"),
    }


STATUS = {
    "metadata": {
        "labels": {names.STATE_LABEL: "pending", "nvidia.com/gpu.deploy.dcgm": names.PAUSED},
        "annotations": {names.STATUS_ANNOTATION: "{}"},
    },
    "spec": {"unschedulable": True},
}
FIRST_REQUEST = {
    "metadata": {
        "labels": {names.DEPLOY_LABEL: "true", names.CONFIG_LABEL: "all-disabled"},
        "annotations": {names.RESERVED_ANNOTATION: "0000:08:00.0"},
    }
}
USES: dict[tuple[str, str], dict[str, Callable[[Environment, ApiUser], Answer]]] = {
    (AGENT, "nodes"): _reads("/api/v1/nodes", OWN_NODE)
    | {"patch": lambda _, client: patch_node(client, OWN_NODE, STATUS)},
    (AGENT, "pods"): _reads("/api/v1/pods", "x")
    | {
        "get": lambda environment, client: client.ask("GET", environment.pod("looked-at", OTHER_NODE)),
        "delete": lambda environment, client: client.ask("DELETE", environment.pod("victim", OWN_NODE)),
    },
    (AGENT, "pods/eviction"): {
        "create": lambda environment, client: client.ask(
            "POST", environment.pod("evictee", OWN_NODE) + "/eviction", eviction("evictee", "default")
        )
    },
    (AGENT, "configmaps"): _reads(MAPS, OWN_MAP)
    | {
        "create": lambda environment, client: _made(environment, client, OWN_MAP),
        "patch": lambda environment, client: _patched_map(environment, client, OWN_MAP),
    },
    (AGENT, "events"): {"create": lambda _, client: client.ask("POST", EVENTS, event(OWN_NODE))},
    (AGENT, "resourceclaims"): _reads(f"{CLAIMS}/namespaces/default/resourceclaims", "x"),
    (AGENT, "resourceclaims/status"): {
        "patch": lambda environment, client: client.ask("PATCH", own_claim(environment) + "/status", {"metadata": {}})
    },
    (AGENT, "resourceclaims/driver"): {
        "associated-node:patch": lambda environment, client: _showed(environment, client)
    },
    (AGENT, "resourceslices"): {
        verb: use for verb, use in _reads(f"{CLAIMS}/resourceslices", "x").items() if verb != "get"
    }
    | {
        "create": lambda environment, client: _made_slice(environment, client),
        "patch": lambda environment, client: client.ask("PATCH", own_slice(environment), {"metadata": {"labels": {}}}),
        "delete": lambda environment, client: client.ask("DELETE", own_slice(environment)),
    },
    (CONTROLLER, "nodes"): _reads("/api/v1/nodes", OWN_NODE)
    | {"patch": lambda _, client: patch_node(client, OWN_NODE, FIRST_REQUEST)},
    **{
        (CONTROLLER, plural): {verb: use for verb, use in _reads(f"{CLAIMS}/{plural}", "x").items() if verb != "get"}
        for plural in ("resourceclaims", "resourceslices", "deviceclasses")
    },
    (CONTROLLER, "pods"): {
        "list": lambda _, client: client.ask("GET", f"/api/v1/pods?{UNBOUND}"),
        "watch": lambda _, client: client.ask("GET", f"/api/v1/pods?{UNBOUND}&{WATCH}"),
    },
    (CONTROLLER, "events"): {"create": _reported},
    (CONTROLLER, "clusterpolicies"): _crd("nvidia.com"),
    (CONTROLLER, "sriovgpudevices"): _crd("devices.harvesterhci.io"),
    (CONTROLLER, "configmaps"): _reads(MAPS, names.SETTINGS_MAP)
    | {
        "create": lambda environment, client: _made(environment, client, names.EFFECTIVE_MAP),
        "patch": lambda environment, client: _patched_map(environment, client, names.EFFECTIVE_MAP),
    },
    (CONTROLLER, "leases"): {
        "create": _made_lease,
        "get": lambda _, client: client.ask("GET", f"{LEASES}/aliquot-controller"),
        "patch": _patched_lease,
    },
}
"""By account and resource, then by verb."""


def eviction(name: str, namespace: str) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
