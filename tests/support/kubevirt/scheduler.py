"""kube-scheduler, as far as extended resources, node selectors and a migration's other node go."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from support.cluster import Cluster
from support.kubevirt.launchers import CREATED_BY, asked, over
from support.kubevirt.machines import pod_path
from support.kubevirt.writes import write

JSON = dict[str, Any]


def schedule(cluster: Cluster, pod: JSON, known: Collection[str]) -> bool:
    """Bind a pod to the first known node that fits, or report why none does. Report whether anything changed."""
    meta = pod["metadata"]
    if meta.get("deletionTimestamp"):
        return write(cluster, "DELETE", f"{pod_path(meta)}?gracePeriodSeconds=0")
    pods = cluster.get("/api/v1/pods")["items"]
    nodes = [node for node in cluster.get("/api/v1/nodes")["items"] if node["metadata"]["name"] in known]
    short = {node["metadata"]["name"]: _lacking(node, pod, pods) for node in nodes}
    fitting = sorted(name for name, lacks in short.items() if not lacks)
    if fitting:
        target = {"apiVersion": "v1", "kind": "Node", "name": fitting[0]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
        return write(cluster, "POST", f"{pod_path(meta)}/binding", body)
    reasons = sorted(f"{list(short.values()).count(lacks)} {lacks}" for lacks in set(short.values()))
    text = f"0/{len(nodes)} nodes are available: {', '.join(reasons)}."
    if text in [one.get("message") for one in pod.get("status", {}).get("conditions") or []]:
        return False
    row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
    return write(cluster, "PATCH", f"{pod_path(meta)}/status", {"status": {"conditions": [row]}})


def _lacking(node: JSON, pod: JSON, pods: list[JSON]) -> str:
    """Return why a pod cannot go to a node, or "" if it can."""
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    if node["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return "node(s) didn't match Pod's node affinity/selector"
    here = [one for one in pods if one["spec"].get("nodeName") == name and not over(one)]
    mine = (pod["metadata"].get("labels") or {}).get(CREATED_BY)
    if mine and any((one["metadata"].get("labels") or {}).get(CREATED_BY) == mine for one in here):
        return "node(s) didn't match pod anti-affinity rules"
    there = node.get("status", {}).get("allocatable") or {}
    for resource, count in sorted(asked(pod).items()):
        given = sum(asked(one).get(resource, 0) for one in here)
        if int(there.get(resource, 0)) - given < count:
            return f"Insufficient {resource}"
    return ""
