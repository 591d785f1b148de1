"""Requests that read: lists, selectors, pages, tables, partial metadata, watches, discovery."""

# ruff: noqa: E501  one request per line reads better than what wrapping makes of it

from __future__ import annotations

from tools.apiserver.steps import (
    JSON,
    MAPS,
    NODES,
    PODS,
    TABLE,
    config_map,
    create,
    delete,
    get,
    node,
    patch,
    pod,
    watch,
)

_PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIALS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def _labelled(name: str, **labels: str) -> JSON:
    return config_map(name, {"k": name}, labels=labels)


def lists() -> list[JSON]:
    """Return requests that list."""
    selectors = (
        "a=1", "a==1", "a!=1", "a in (1,2)", "a notin (1)", "a", "!a", "a=1,b=x", "b in (x,y),a=2", "a>1", "a<2", "",
        "a b c", "a in 1", "a=b c", "a=(", "a>x",
    )  # fmt: skip
    steps = [
        create("one", MAPS, _labelled("one", a="1", b="x")),
        create("two", MAPS, _labelled("two", a="2", b="y")),
        create("three", MAPS, _labelled("three", b="x")),
    ]
    steps += [get(f"labels: {one or 'none'}", MAPS, query={"labelSelector": one}) for one in selectors]
    steps += [
        get("fields: name", MAPS, query={"fieldSelector": "metadata.name=one"}),
        get("fields: not the name", MAPS, query={"fieldSelector": "metadata.name!=one,metadata.namespace=default"}),
        get("fields: unknown", MAPS, query={"fieldSelector": "data.k=one"}),
        get("fields: none", MAPS, query={"fieldSelector": "metadata.name"}),
        get("pages: first", MAPS, query={"limit": "2"}, save={"next": "metadata.continue"}),
        get("pages: second", f"{MAPS}?limit=2&continue={{{{next}}}}"),
        get("pages: bad token", MAPS, query={"continue": "abc"}),
        get("pages: of a selection", MAPS, query={"limit": "1", "labelSelector": "b=x"}),
        get("version: any", MAPS, query={"resourceVersion": "0"}),
        get("version: no number", MAPS, query={"resourceVersion": "x"}),
        get("all namespaces", "/api/v1/configmaps", query={"labelSelector": "b=x"}),
        get("metadata alone", f"{MAPS}/one", accept=_PARTIAL),
        get("metadata of a list", MAPS, accept=_PARTIALS, query={"labelSelector": "b"}),
        get("table", MAPS, accept=TABLE, query={"labelSelector": "b"}),
        get("table with objects", MAPS, accept=TABLE, query={"labelSelector": "a=1", "includeObject": "Object"}),
        get("table of one", f"{MAPS}/one", accept=TABLE, query={"includeObject": "None"}),
        get("an empty list", "/apis/apps/v1/namespaces/default/daemonsets"),
        create("node", NODES, node(spec={"unschedulable": True}, status={"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.36.0"}, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]})),
        patch("roles", f"{NODES}/n1", {"metadata": {"labels": {"node-role.kubernetes.io/gpu": ""}}}),
        create("second node", NODES, node("n2")),
        get("nodes: cordoned", NODES, query={"fieldSelector": "spec.unschedulable=true"}),
        get("nodes: not cordoned", NODES, query={"fieldSelector": "spec.unschedulable=false"}),
        get("nodes: table", NODES, accept=TABLE),
        create("pod", PODS, pod("a", "n1", {"labels": {"app": "x"}})),
        create("free pod", PODS, pod("b")),
        patch("running", f"{PODS}/a/status", {"status": {"phase": "Running", "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}], "containerStatuses": [{"name": "main", "image": "a", "imageID": "", "ready": True, "restartCount": 2, "state": {"running": {}}}]}}),
        get("pods: of a node", PODS, query={"fieldSelector": "spec.nodeName=n1"}),
        get("pods: of no node", PODS, query={"fieldSelector": "spec.nodeName="}),
        get("pods: running", "/api/v1/pods", query={"fieldSelector": "status.phase=Running,metadata.namespace=default"}),
        get("pods: table", PODS, accept=TABLE),
        delete("pod goes", f"{PODS}/a"),
        get("pods: table of one going", f"{PODS}/a", accept=TABLE),
    ]  # fmt: skip
    return steps


def watches() -> list[JSON]:
    """Return watches and the changes that they report."""
    one = f"{MAPS}/one"

    def since(**more: str) -> str:
        return MAPS + "?" + "&".join(f"{k}={v}" for k, v in {"resourceVersion": "{{rv}}", **more}.items())

    return [
        create("first", MAPS, _labelled("zero", other="1")),
        get("list", MAPS, save={"rv": "metadata.resourceVersion"}),
        create("one", MAPS, _labelled("one", a="1")),
        patch("change", one, {"data": {"k": "2"}}),
        patch("no longer a", one, {"metadata": {"labels": {"a": "2"}}}),
        patch("again a", one, {"metadata": {"labels": {"a": "1"}}}),
        create("two", MAPS, _labelled("two", a="2")),
        delete("delete one", one),
        watch("everything", MAPS, 6) | {"path": since(watch="1", timeoutSeconds="2")},
        watch("of a selection", MAPS, 4) | {"path": since(watch="1", timeoutSeconds="2", labelSelector="a%3D1")},
        watch("of a name", MAPS, 1) | {"path": since(watch="1", timeoutSeconds="2", fieldSelector="metadata.name%3Dtwo")},
        watch("by name in the path", MAPS, 1) | {"path": "/api/v1/watch/namespaces/default/configmaps/two"},
        watch("from nothing", MAPS, 2),
        watch("from zero", MAPS, 2, query={"resourceVersion": "0"}),
        watch("initial events", MAPS, 3, query={"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true", "labelSelector": "other"}),
        watch("initial events without match", MAPS, 1, query={"sendInitialEvents": "true"}),
        watch("no number", MAPS, 1, query={"resourceVersion": "x"}),
        watch("as a table", MAPS, 2, accept=TABLE),
        watch("metadata alone", MAPS, 1, accept=_PARTIAL),
        watch("unknown field", MAPS, 1, query={"fieldSelector": "data.k=one"}),
        create("pod", PODS, pod("a", "n1"), save={"rv": "metadata.resourceVersion"}),
        delete("in grace", f"{PODS}/a"),
        delete("gone", f"{PODS}/a", {"gracePeriodSeconds": 0}),
        watch("pod's end", PODS, 2) | {"path": PODS + "?resourceVersion={{rv}}&watch=1&timeoutSeconds=2"},
    ]  # fmt: skip


def discovery() -> list[JSON]:
    """Return requests for the documents that clients read first."""
    return [
        get("apps", "/apis/apps"),
        get("a group that is not there", "/apis/nothing.io"),
        get("a version that is not there", "/apis/apps/v9"),
        get("health", "/healthz"),
        get("ready", "/readyz"),
        get("coordination", "/apis/coordination.k8s.io/v1"),
        get("policy", "/apis/policy/v1"),
        get("rbac", "/apis/rbac.authorization.k8s.io/v1"),
    ]
