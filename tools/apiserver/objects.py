"""Creating, reading, replacing and deleting; and what is wrong with bad objects."""

# ruff: noqa: E501  one request per line reads better than what wrapping makes of it

from __future__ import annotations

from tools.apiserver.steps import JSON, JSON_PATCH, MAPS, NODES, config_map, create, delete, get, node, patch, put, step


def objects() -> list[JSON]:
    """Return requests with every verb on nodes and config maps."""
    full = node(spec={"unschedulable": False, "taints": [{"key": "a/b", "effect": "NoSchedule"}]})
    full["status"] = {"capacity": {"cpu": "1500m", "memory": "1.5Gi", "nvidia.com/gpu": 8}}
    return [
        create("create", NODES, full, save={"rv": "metadata.resourceVersion", "uid": "metadata.uid"}),
        create("create again", NODES, node()),
        get("read", f"{NODES}/n1"),
        get("read what is not there", f"{NODES}/n2"),
        get("read a resource that is not there", "/api/v1/nothing"),
        get("read a group that is not there", "/apis/nothing.io/v1/things"),
        get("read a path that is not there", "/nothing"),
        get("read a subresource that is not there", f"{NODES}/n1/nothing"),
        put("replace", f"{NODES}/n1", node(spec={"unschedulable": True}), save={"new": "metadata.resourceVersion"}),
        put("replace without a change", f"{NODES}/n1", node(spec={"unschedulable": True})),
        put("replace with an old version", f"{NODES}/n1", {**node(), "metadata": {"name": "n1", "resourceVersion": "{{rv}}"}}),
        put("replace with the version", f"{NODES}/n1", {**node(), "metadata": {"name": "n1", "resourceVersion": "{{new}}"}}),
        put("replace with another name", f"{NODES}/n1", node("other")),
        put("replace with another uid", f"{NODES}/n1", {**node(), "metadata": {"name": "n1", "uid": "other"}}),
        put("replace what is not there", f"{NODES}/n2", node("n2")),
        put("write the status", f"{NODES}/n1/status", {**node(spec={"unschedulable": True}), "status": {"capacity": {"cpu": 2}}}),
        get("read the status", f"{NODES}/n1/status"),
        delete("delete under another uid", f"{NODES}/n1", {"preconditions": {"uid": "other"}}),
        delete("delete under another version", f"{NODES}/n1", {"preconditions": {"resourceVersion": "1"}}),
        delete("delete", f"{NODES}/n1", {"preconditions": {"uid": "{{uid}}"}}),
        delete("delete again", f"{NODES}/n1"),
        create("make up a name", MAPS, {"metadata": {"generateName": "cm-"}}),
        create("another namespace", MAPS, config_map(namespace="other")),
        create("no such namespace", "/api/v1/namespaces/nowhere/configmaps", config_map()),
        create("with a version", MAPS, config_map(resourceVersion="5")),
        create("data", MAPS, config_map(data={"a": "1"}), save={"cm": "metadata.resourceVersion"}),
        create("dry run", MAPS, config_map("dry"), query={"dryRun": "All"}),
        get("nothing came of it", f"{MAPS}/dry"),
        patch("stale patch", f"{MAPS}/cm", {"metadata": {"resourceVersion": "1"}, "data": {"a": "2"}}),
        patch("fresh patch", f"{MAPS}/cm", {"metadata": {"resourceVersion": "{{cm}}"}, "data": {"a": "2"}}),
        patch("empty patch", f"{MAPS}/cm", {}),
        patch("make it immutable", f"{MAPS}/cm", {"immutable": True}),
        patch("too late", f"{MAPS}/cm", {"data": {"a": "3"}}),
        step("a verb that is not there", "POST", f"{MAPS}/cm", config_map()),
        delete("delete a config map", f"{MAPS}/cm"),
        delete("delete all", MAPS, query={"labelSelector": "all=true"}),
        create("held by a finalizer", MAPS, config_map("held", finalizers=["example.com/hold"])),
        delete("deletion waits", f"{MAPS}/held"),
        delete("it still waits", f"{MAPS}/held"),
        patch("no new finalizers now", f"{MAPS}/held", {"metadata": {"finalizers": ["example.com/hold", "example.com/b"]}}),
        patch("it still can be changed", f"{MAPS}/held", {"data": {"b": "1"}}),
        patch("let it go", f"{MAPS}/held", {"metadata": {"finalizers": None}}),
        get("it went", f"{MAPS}/held"),
    ]  # fmt: skip


_LONG = "x" * 64


def metadata() -> list[JSON]:
    """Return requests with names, labels and annotations that are refused."""
    bad_names = {
        "capitals": "N1", "underscore": "n_1", "empty": "", "too long": "n" * 254, "ends with a dash": "n-",
    }  # fmt: skip
    bad_labels = {
        "value too long": {"a": _LONG},
        "value with a blank": {"a": "b c"},
        "value ends with a dash": {"a": "b-"},
        "key too long": {_LONG: "a"},
        "key with two slashes": {"a/b/c": "d"},
        "key with a bad prefix": {"A_/b": "c"},
        "key with an empty prefix": {"/b": "c"},
        "key with an empty name": {"a/": "c"},
    }
    steps = [create("node", NODES, node(), save={"uid": "metadata.uid"})]
    steps += [create(f"name: {what}", NODES, node(name)) for what, name in bad_names.items()]
    steps += [
        patch(f"label: {what}", f"{NODES}/n1", {"metadata": {"labels": labels}}) for what, labels in bad_labels.items()
    ]
    steps += [
        patch("empty value", f"{NODES}/n1", {"metadata": {"labels": {"a": ""}}}),
        patch("a value of 63", f"{NODES}/n1", {"metadata": {"labels": {"a": "x" * 63}}}),
        patch("a number as value", f"{NODES}/n1", {"metadata": {"labels": {"a": 1}}}),
        patch("annotation key", f"{NODES}/n1", {"metadata": {"annotations": {"a b": "any text"}}}),
        patch("annotation", f"{NODES}/n1", {"metadata": {"annotations": {"A/b": "any text"}}}),
        patch("another uid", f"{NODES}/n1", {"metadata": {"uid": "other"}}),
        patch("another name", f"{NODES}/n1", {"metadata": {"name": "other"}}),
        patch("finalizer", f"{NODES}/n1", {"metadata": {"finalizers": ["hold"]}}),
        patch("owner", f"{NODES}/n1", {"metadata": {"ownerReferences": [{"kind": "Node", "name": "a"}]}}),
        patch("remove labels", f"{NODES}/n1", [{"op": "remove", "path": "/metadata/labels"}], JSON_PATCH),
        create("config map name", MAPS, config_map("a/b")),
        create("namespace name", "/api/v1/namespaces", {"metadata": {"name": "a.b"}}),
        create("role name", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "system:a"}, "rules": []}),
        delete("take the role back", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a"),
        create("generated name", MAPS, {"metadata": {"generateName": "A-"}}),
        create("neither name", MAPS, {"metadata": {}}),
    ]  # fmt: skip
    return steps


def bodies() -> list[JSON]:
    """Return requests with bodies that are not the expected object."""
    strict = {"fieldValidation": "Strict"}
    return [
        create("no JSON", NODES, "{"),
        create("a list", NODES, []),
        create("nothing", NODES, ""),
        create("another kind", NODES, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}),
        create("another version", NODES, {"apiVersion": "v2", "kind": "Node", "metadata": {"name": "a"}}),
        create("no kind", NODES, {"metadata": {"name": "a"}}, query={"dryRun": "All"}),
        create("text for an object", NODES, node(spec="a")),
        create("number for text", NODES, {"metadata": {"name": 1}}),
        create("text for a boolean", NODES, node(spec={"unschedulable": "yes"})),
        create("object for a list", NODES, node(spec={"taints": {"a": "b"}})),
        create("unknown field", NODES, node(spec={"nothing": 1}), query={"dryRun": "All"}),
        create("unknown field, strict", NODES, node(spec={"nothing": 1}), query=strict),
        create("two unknown fields, strict", NODES, node(spec={"b": 1, "a": 1}), query=strict),
        create("a bad quantity", NODES, node(status={"capacity": {"cpu": "many"}})),
        create("a bad time", NODES, node(status={"conditions": [{"type": "a", "status": "True", "lastHeartbeatTime": "now"}]})),
        create("a negative quantity", NODES, node(status={"capacity": {"cpu": "-1"}})),
        create("a fraction of a GPU", NODES, node(status={"capacity": {"nvidia.com/gpu": "500m"}})),
        create("a bad taint", NODES, node(spec={"taints": [{"key": "a", "effect": "Never"}]})),
        create("a taint without key", NODES, node(spec={"taints": [{"effect": "NoSchedule"}]})),
        create("the same taint twice", NODES, node(spec={"taints": [{"key": "a", "effect": "NoSchedule"}] * 2})),
        create("a type that is not known", NODES, node(), type="text/plain"),
        create("yaml", NODES, "metadata: {name: y}\n", type="application/yaml", query={"dryRun": "All"}),
        get("yaml is not asked for", NODES, accept="text/html"),
        patch("patch of no type", f"{NODES}/a", {}, "application/json"),
        patch("patch that is not JSON", "/api/v1/namespaces/default", "{"),
    ]  # fmt: skip
