"""Simulated kube-controller-manager and kubelets, run on demand by plain requests, on either API server.

Neither server of the suite runs controllers, so the test decides what happens. ``settle`` runs all of them until
nothing changes any more.
"""

from __future__ import annotations

from typing import Any

from support.cluster import Cluster
from support.standin.disruption import is_ready
from support.standin.selectors import of_object

JSON = dict[str, Any]
_DEPENDENTS = ("/api/v1/pods", "/api/v1/configmaps", "/apis/apps/v1/daemonsets", "/apis/apps/v1/controllerrevisions")
_ROUNDS = 10


def settle(cluster: Cluster) -> None:
    """Run garbage collection, daemon sets, kubelets and disruption budgets in turn, until nothing changes.

    Raises:
        AssertionError: changes do not end
    """
    for _ in range(_ROUNDS):
        if not any([collect(cluster), daemon_sets(cluster), kubelets(cluster), budgets(cluster)]):
            return
    raise AssertionError(f"the cluster did not settle in {_ROUNDS} rounds")


def collect(cluster: Cluster) -> int:
    """Delete the dependents of an object that is gone or in foreground deletion, then release it. Return the number of
    steps.
    """
    done = 0
    found = {path: cluster.get(path)["items"] for path in _DEPENDENTS}
    going = {row["metadata"]["uid"] for rows in found.values() for row in rows if _foreground(row)}
    alive = {row["metadata"]["uid"] for rows in found.values() for row in rows}
    alive |= {row["metadata"]["uid"] for row in cluster.get("/api/v1/nodes")["items"]}
    for path, rows in found.items():
        for row in rows:
            owners = row["metadata"].get("ownerReferences") or []
            ownerless = owners and all(one["uid"] not in alive or one["uid"] in going for one in owners)
            if ownerless and "deletionTimestamp" not in row["metadata"]:
                cluster.request("DELETE", _path(path, row))
                done += 1
    for path, rows in found.items():
        for row in rows:
            if _foreground(row) and not _dependents(found, row):
                left = [one for one in row["metadata"]["finalizers"] if one != "foregroundDeletion"]
                cluster.must("PATCH", _path(path, row), {"metadata": {"finalizers": left or None}})
                done += 1
    return done


def _foreground(row: JSON) -> bool:
    return "foregroundDeletion" in (row["metadata"].get("finalizers") or []) and "deletionTimestamp" in row["metadata"]


def _dependents(found: dict[str, list[JSON]], owner: JSON) -> list[JSON]:
    uid = owner["metadata"]["uid"]
    rows = [row for several in found.values() for row in several]
    return [row for row in rows if any(o["uid"] == uid for o in row["metadata"].get("ownerReferences") or [])]


def daemon_sets(cluster: Cluster) -> int:
    """Keep one running pod of each daemon set on each node that its node selector fits. Return how many pods came or
    went.
    """
    done = 0
    nodes = cluster.get("/api/v1/nodes")["items"]
    for row in cluster.get("/apis/apps/v1/daemonsets")["items"]:
        if "deletionTimestamp" in row["metadata"]:
            continue
        wanted = {node["metadata"]["name"] for node in nodes if _fits(row, node)}
        pods = {pod["spec"]["nodeName"]: pod for pod in _pods_of(cluster, row)}
        for name in sorted(wanted - set(pods)):
            _start(cluster, row, name)
            done += 1
        for name in sorted(set(pods) - wanted):
            if "deletionTimestamp" not in pods[name]["metadata"]:
                cluster.must("DELETE", _path("/api/v1/pods", pods[name]))
                done += 1
        done += _daemon_set_status(cluster, row, len(wanted), len(wanted & set(pods)))
    return done


def _fits(row: JSON, node: JSON) -> bool:
    labels = node["metadata"].get("labels") or {}
    selector = row["spec"]["template"]["spec"].get("nodeSelector") or {}
    return all(labels.get(key) == value for key, value in selector.items())


def _pods_of(cluster: Cluster, row: JSON) -> list[JSON]:
    pods = cluster.get(f"/api/v1/namespaces/{row['metadata']['namespace']}/pods")["items"]
    return _dependents({"pods": pods}, row)


def _start(cluster: Cluster, row: JSON, node: str) -> None:
    meta, template = row["metadata"], row["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": meta["name"], "uid": meta["uid"]}
    owner.update(controller=True, blockOwnerDeletion=True)
    pod = {
        "metadata": {
            "generateName": f"{meta['name']}-",
            "labels": template["metadata"].get("labels"),
            "ownerReferences": [owner],
        },
        "spec": {**template["spec"], "nodeName": node},
    }
    path = f"/api/v1/namespaces/{meta['namespace']}/pods"
    made = cluster.must("POST", path, pod)
    run(cluster, meta["namespace"], made["metadata"]["name"])


def run(cluster: Cluster, namespace: str, name: str) -> None:
    """Make a pod running and ready, as its kubelet would."""
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"phase": "Running", "conditions": [ready]}}
    cluster.must("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", status)


def _daemon_set_status(cluster: Cluster, row: JSON, wanted: int, ready: int) -> int:
    generation = row["metadata"]["generation"]
    status = {"desiredNumberScheduled": wanted, "currentNumberScheduled": ready, "numberReady": ready}
    status.update(numberAvailable=ready, updatedNumberScheduled=ready, observedGeneration=generation)
    if all(row["status"].get(key, 0) == value for key, value in status.items()):
        return 0
    cluster.must("PATCH", f"{_path('/apis/apps/v1/daemonsets', row)}/status", {"status": status})
    return 1


def kubelets(cluster: Cluster) -> int:
    """End the pods that are being deleted, unless a finalizer holds them. Return how many."""
    done = 0
    for pod in cluster.get("/api/v1/pods")["items"]:
        meta = pod["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            cluster.request("DELETE", _path("/api/v1/pods", pod), {"gracePeriodSeconds": 0})
            done += 1
    return done


def budgets(cluster: Cluster) -> int:
    """Count pods for the disruption budgets. Return how many budgets changed."""
    done = 0
    for row in cluster.get("/apis/policy/v1/poddisruptionbudgets")["items"]:
        namespace = row["metadata"]["namespace"]
        selected = of_object(row["spec"].get("selector"))
        pods = [
            pod
            for pod in cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
            if selected(pod["metadata"].get("labels") or {})
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]
        healthy = sum(1 for pod in pods if is_ready(pod) and "deletionTimestamp" not in pod["metadata"])
        done += _budget_status(cluster, row, len(pods), healthy)
    return done


def _budget_status(cluster: Cluster, row: JSON, expected: int, healthy: int) -> int:
    spec = row["spec"]
    if "maxUnavailable" in spec:
        wanted = expected - _share(spec["maxUnavailable"], expected)
    else:
        wanted = _share(spec.get("minAvailable", 0), expected)
    status = {"expectedPods": expected, "currentHealthy": healthy, "desiredHealthy": max(wanted, 0)}
    status["disruptionsAllowed"] = max(healthy - max(wanted, 0), 0)
    status["observedGeneration"] = row["metadata"]["generation"]
    if all(row["status"].get(key, 0) == value for key, value in status.items()):
        return 0
    path = _path("/apis/policy/v1/poddisruptionbudgets", row)
    cluster.must("PATCH", f"{path}/status", {"status": {**status, "disruptedPods": None}})
    return 1


def _share(value: int | str, of: int) -> int:
    """Return a count, or a percentage rounded up as the disruption controller does."""
    return value if isinstance(value, int) else -(-of * int(value.rstrip("%")) // 100)


def _path(collection: str, row: JSON) -> str:
    root, _, plural = collection.rpartition("/")
    return f"{root}/namespaces/{row['metadata']['namespace']}/{plural}/{row['metadata']['name']}"
