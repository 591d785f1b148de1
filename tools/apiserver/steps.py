"""The notation of requests."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

JSON = dict[str, Any]
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


def step(name: str, method: str, path: str, body: Any = None, /, **more: Any) -> JSON:
    """Return a request. ``more``: type, accept, agent, token, save, until, watch; ``query`` is added to the path."""
    query = more.pop("query", None)
    if query:
        path = f"{path}?{urlencode(query)}"
    found: JSON = {"name": name, "method": method, "path": path}
    if body is not None:
        found["body"] = body
    return {**found, **more}


def get(name: str, path: str, /, **more: Any) -> JSON:
    return step(name, "GET", path, **more)


def create(name: str, path: str, body: Any, /, **more: Any) -> JSON:
    return step(name, "POST", path, body, **more)


def put(name: str, path: str, body: Any, /, **more: Any) -> JSON:
    return step(name, "PUT", path, body, **more)


def delete(name: str, path: str, body: Any = None, /, **more: Any) -> JSON:
    return step(name, "DELETE", path, body, **more)


def patch(name: str, path: str, body: Any, kind: str = MERGE, /, **more: Any) -> JSON:
    return step(name, "PATCH", path, body, type=kind, **more)


def apply(name: str, path: str, body: Any, manager: str = "one", /, **more: Any) -> JSON:
    query = {"fieldManager": manager, **more.pop("query", {})}
    return step(name, "PATCH", path, body, type=APPLY, query=query, **more)


def watch(name: str, path: str, lines: int, /, **more: Any) -> JSON:
    query = {"watch": "1", "timeoutSeconds": "2", **more.pop("query", {})}
    return step(name, "GET", path, query=query, watch=lines, **more)


def node(name: str = "n1", **more: Any) -> JSON:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **more}


def config_map(name: str = "cm", data: dict[str, str] | None = None, **meta: Any) -> JSON:
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}
    return {**found, "data": data} if data is not None else found


def pod(name: str = "p1", node: str | None = None, meta: JSON | None = None, **spec: Any) -> JSON:
    if node:
        spec["nodeName"] = node
    spec.setdefault("containers", [{"name": "main", "image": "image:1"}])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **(meta or {})}, "spec": spec}
