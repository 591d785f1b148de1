"""Patches of every kind, and server-side apply."""

# ruff: noqa: E501  one request per line reads better than what wrapping makes of it

from __future__ import annotations

from tools.apiserver.steps import (
    JSON,
    JSON_PATCH,
    MAPS,
    NODES,
    PODS,
    STRATEGIC,
    apply,
    config_map,
    create,
    delete,
    get,
    node,
    patch,
    pod,
    put,
)


def patches() -> list[JSON]:
    """Return requests with JSON patches, merge patches and strategic merge patches."""
    one = f"{NODES}/n1"
    two = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]
    return [
        create("node", NODES, node(status={"conditions": two, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]})),
        patch("merge: add", one, {"metadata": {"labels": {"a": "1", "b": "2"}}}),
        patch("merge: remove and change", one, {"metadata": {"labels": {"a": None, "b": "3"}}}),
        patch("merge: replaces lists", one, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        patch("merge: no object", one, [1]),
        patch("json: add", one, [{"op": "add", "path": "/metadata/labels/c", "value": "4"}], JSON_PATCH),
        patch("json: escaped", one, [{"op": "add", "path": "/metadata/labels/x~1y", "value": "4"}], JSON_PATCH),
        patch("json: replace", one, [{"op": "replace", "path": "/metadata/labels/c", "value": "5"}], JSON_PATCH),
        patch("json: replace what is not there", one, [{"op": "replace", "path": "/metadata/labels/d", "value": "5"}], JSON_PATCH),
        patch("json: remove what is not there", one, [{"op": "remove", "path": "/metadata/labels/d"}], JSON_PATCH),
        patch("json: test holds", one, [{"op": "test", "path": "/metadata/labels/c", "value": "5"}, {"op": "remove", "path": "/metadata/labels/c"}], JSON_PATCH),
        patch("json: test fails", one, [{"op": "test", "path": "/metadata/labels/b", "value": "5"}, {"op": "remove", "path": "/metadata/labels/b"}], JSON_PATCH),
        patch("json: test of what is not there", one, [{"op": "test", "path": "/metadata/labels/z", "value": "5"}], JSON_PATCH),
        patch("json: add to a list", one, [{"op": "add", "path": "/spec/taints/-", "value": {"key": "b", "effect": "NoExecute"}}], JSON_PATCH),
        patch("json: add below nothing", one, [{"op": "add", "path": "/metadata/annotations/a", "value": "b"}], JSON_PATCH),
        patch("json: move", one, [{"op": "move", "from": "/metadata/labels/b", "path": "/metadata/labels/m"}], JSON_PATCH),
        patch("json: copy", one, [{"op": "copy", "from": "/metadata/labels/m", "path": "/metadata/labels/n"}], JSON_PATCH),
        patch("json: unknown operation", one, [{"op": "swap", "path": "/metadata"}], JSON_PATCH),
        patch("json: an object", one, {"a": 1}, JSON_PATCH),
        patch("strategic: one condition", f"{one}/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, STRATEGIC),
        patch("strategic: a new condition", f"{one}/status", {"status": {"conditions": [{"type": "New", "status": "True"}]}}, STRATEGIC),
        patch("strategic: delete a condition", f"{one}/status", {"status": {"conditions": [{"type": "New", "$patch": "delete"}]}}, STRATEGIC),
        patch("strategic: order", f"{one}/status", {"status": {"$setElementOrder/conditions": [{"type": "DiskPressure"}, {"type": "Ready"}], "conditions": [{"type": "Ready", "message": "m"}]}}, STRATEGIC),
        patch("strategic: without key", f"{one}/status", {"status": {"conditions": [{"status": "False"}]}}, STRATEGIC),
        patch("strategic: atomic list", one, {"spec": {"taints": [{"key": "z", "effect": "NoSchedule"}]}}, STRATEGIC),
        patch("strategic: replace all labels", one, {"metadata": {"labels": {"$patch": "replace", "only": "1"}}}, STRATEGIC),
        patch("strategic: finalizers are added", one, {"metadata": {"finalizers": ["a.b/c"]}}, STRATEGIC),
        patch("strategic: and one more", one, {"metadata": {"finalizers": ["a.b/d"]}}, STRATEGIC),
        patch("strategic: and one less", one, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c", "a.b/d"]}}, STRATEGIC),
        patch("strategic: unknown directive", one, {"metadata": {"$patch": "swap"}}, STRATEGIC),
        patch("strategic: allocatable", f"{one}/status", {"status": {"allocatable": {"nvidia.com/mig-1g.10gb": "7"}}}, STRATEGIC),
        patch("merge: capacity", f"{one}/status", {"status": {"capacity": {"nvidia.com/mig-1g.10gb": 7}}}),
        patch("status leaves the spec", f"{one}/status", {"spec": {"unschedulable": True}, "metadata": {"labels": {"via": "status"}}}),
        patch("spec leaves the status", one, {"status": {"phase": "Running"}, "spec": {"unschedulable": True}}),
        patch("patch of what is not there", f"{NODES}/n2", {}),
        create("pod", PODS, pod(containers=[{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}])),
        patch("strategic: a container's image", f"{PODS}/p1", {"spec": {"containers": [{"name": "b", "image": "b:2"}]}}, STRATEGIC),
        patch("a field that may not change", f"{PODS}/p1", {"spec": {"containers": [{"name": "b", "command": ["x"]}]}}, STRATEGIC),
        delete("the end", f"{PODS}/p1"),
    ]  # fmt: skip


def server_side_apply() -> list[JSON]:
    """Return server-side applies of several field managers."""
    one = f"{MAPS}/cm"
    return [
        apply("create", one, config_map(data={"a": "1", "b": "1"}, labels={"x": "1"})),
        apply("the same again", one, config_map(data={"a": "1", "b": "1"}, labels={"x": "1"})),
        apply("less: it is taken away", one, config_map(data={"a": "1"})),
        apply("another states more", one, config_map(data={"c": "1"}), "two"),
        apply("another agrees", one, config_map(data={"a": "1", "c": "1"}), "two"),
        apply("another disagrees", one, config_map(data={"a": "2", "c": "1"}), "two"),
        apply("two conflicts", one, config_map(data={"a": "2", "c": "2"}), "three"),
        apply("force", one, config_map(data={"a": "2", "c": "1"}), "two", query={"force": "true"}),
        apply("the first gives way", one, config_map(), "one"),
        patch("an update takes over", one, {"data": {"a": "3"}}, query={"fieldManager": "updater"}),
        apply("conflict with an update", one, config_map(data={"a": "2", "c": "1"}), "two"),
        apply("conflict is reported before the force", one, config_map(data={"a": "2", "c": "1"}), "two", query={"force": "true"}),
        put("a replacement", one, config_map(data={"z": "1"}), agent="replacer/2"),
        apply("without a manager", one, config_map(), "", query={"fieldManager": ""}),
        apply("managed fields are not stated", one, {**config_map(), "metadata": {"name": "cm", "managedFields": [{"manager": "x"}]}}),
        apply("no kind", one, {"metadata": {"name": "cm"}}),
        apply("another name", one, config_map("other")),
        apply("unknown field", one, {**config_map(), "nothing": 1}),
        apply("yaml", f"{MAPS}/y", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {a: '1'}\n"),
        create("node", NODES, node()),
        apply("a condition", f"{NODES}/n1/status", {**node(), "status": {"conditions": [{"type": "GpuReady", "status": "True"}]}}, "agent"),
        apply("another condition", f"{NODES}/n1/status", {**node(), "status": {"conditions": [{"type": "Other", "status": "True"}]}}, "two"),
        apply("the same condition, otherwise", f"{NODES}/n1/status", {**node(), "status": {"conditions": [{"type": "GpuReady", "status": "False"}]}}, "two"),
        apply("labels", f"{NODES}/n1", {**node(), "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.count": "8"}}}, "agent"),
        patch("a hand on the label", f"{NODES}/n1", {"metadata": {"labels": {"nvidia.com/gpu.count": "4"}}}, query={"fieldManager": "kubectl-label"}),
        apply("the label back", f"{NODES}/n1", {**node(), "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.count": "8"}}}, "agent"),
        patch("give all up", f"{NODES}/n1", {"metadata": {"managedFields": [{}]}}),
        apply("taints are one field", f"{NODES}/n1", {**node(), "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, "agent"),
        apply("and another manager's taints", f"{NODES}/n1", {**node(), "spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}, "two"),
        apply("a pod's containers", f"{PODS}/p1", pod(), "one"),
        apply("its container again", f"{PODS}/p1", pod(), "one"),
        get("as stored", f"{PODS}/p1"),
        apply("status that is not there", f"{PODS}/p2/status", pod("p2"), "one"),
    ]  # fmt: skip
