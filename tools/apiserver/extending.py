"""Custom resources, admission policies; and leases, events, namespaces, secrets."""

# ruff: noqa: E501  one request per line reads better than what wrapping makes of it

from __future__ import annotations

from typing import Any

from tools.apiserver.steps import (
    JSON,
    JSON_PATCH,
    NODES,
    STRATEGIC,
    TABLE,
    apply,
    create,
    delete,
    get,
    node,
    patch,
    put,
)

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_THINGS = "/apis/example.com/v1/things"
_SCHEMA: JSON = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["mode"],
            "properties": {
                "mode": {"type": "string", "enum": ["none", "single", "mixed"]},
                "count": {"type": "integer", "minimum": 1, "maximum": 7, "default": 2},
                "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
                "on": {"type": "boolean", "default": True},
                "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
                    },
                },
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "port": {"x-kubernetes-int-or-string": True},
                "maybe": {"type": "string", "nullable": True},
            },
            "x-kubernetes-validations": [
                {"rule": "self.mode != 'none' || self.count <= 3", "message": "at most 3 without a mode"},
                {"rule": "self.mode == oldSelf.mode || self.on", "message": "mode is fixed when off"},
            ],
        },
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}, "note": {"type": "string"}}},
    },
}


def definition(schema: JSON | None = None, **more: Any) -> JSON:
    columns = [
        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
        {"name": "Count", "type": "integer", "jsonPath": ".spec.count"},
        {"name": "Ready", "type": "boolean", "jsonPath": ".status.ready", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    version["additionalPrinterColumns"] = columns
    version["schema"] = {"openAPIV3Schema": schema or _SCHEMA}
    names = {"plural": "things", "kind": "Thing", "shortNames": ["th"]}
    spec: JSON = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**head, "metadata": {"name": "things.example.com"}, "spec": {**spec, **more}}


def _thing(name: str = "t", /, **spec: Any) -> JSON:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec}


def custom_resources() -> list[JSON]:
    """Return requests about definitions and their objects."""
    one, strict = f"{_THINGS}/t", {"fieldValidation": "Strict"}
    bad: dict[str, JSON] = {
        "wrong type": {"mode": 1},
        "two wrong types": {"mode": "single", "count": "2", "on": "yes"},
        "not in the enum": {"mode": "double"},
        "missing": {"count": 1},
        "too small": {"mode": "single", "count": 0},
        "too large": {"mode": "single", "count": 8},
        "a fraction": {"mode": "single", "count": 1.5},
        "pattern": {"mode": "single", "name": "Abc"},
        "too short": {"mode": "single", "name": "a"},
        "too long": {"mode": "single", "name": "abcdef"},
        "too many": {"mode": "single", "tags": ["a", "b", "c"]},
        "twice in a set": {"mode": "single", "tags": ["a", "a"]},
        "twice in a map": {"mode": "single", "parts": [{"name": "a"}, {"name": "a"}]},
        "part without name": {"mode": "single", "parts": [{"size": 1}]},
        "map value": {"mode": "single", "labels": {"a": 1}},
        "port": {"mode": "single", "port": True},
        "null": {"mode": None},
        "rule": {"mode": "none", "count": 5},
    }
    return [
        create("define", _CRDS, definition()),
        create("wrong name", _CRDS, {**definition(), "metadata": {"name": "other.example.com"}}),
        create("no scope", _CRDS, {**definition(scope=""), "metadata": {"name": "things.example.com"}}),
        get("served", _THINGS, until=200),
        get("discovered", "/apis/example.com/v1", until=200),
        create("create", _THINGS, _thing(mode="single", extra=1, any={"x": {"y": 1}}, port="http"), query={"fieldManager": "m"}),
        create("strict", _THINGS, _thing("s", mode="single", extra=1), query=strict),
        create("nullable", _THINGS, _thing("nul", mode="single", maybe=None, on=None)),
        *(create(f"bad: {what}", _THINGS, _thing("bad", **spec)) for what, spec in bad.items()),
        create("no spec", _THINGS, {"metadata": {"name": "bad"}}),
        create("spec is text", _THINGS, {**_thing("bad"), "spec": "x"}),
        create("another kind", _THINGS, {**_thing("bad", mode="single"), "kind": "Other"}),
        create("a bad name", _THINGS, _thing("B_", mode="single")),
        create("status is dropped", _THINGS, {**_thing("u", mode="single"), "status": {"ready": True}}),
        patch("change", one, {"spec": {"count": 3}}, save={"rv": "metadata.resourceVersion"}),
        patch("no change", one, {"spec": {"count": 3}}),
        patch("labels do not count", one, {"metadata": {"labels": {"a": "b"}}}),
        patch("status", f"{one}/status", {"status": {"ready": True, "more": 1}, "spec": {"count": 1}, "metadata": {"labels": {"c": "d"}}}),
        patch("status is not written so", one, {"status": {"ready": False}}),
        patch("status of the wrong type", f"{one}/status", {"status": {"ready": "yes"}}),
        put("replace without version", one, _thing(mode="single")),
        put("replace", one, {**_thing(mode="single", on=False), "metadata": {"name": "t", "resourceVersion": "{{rv}}"}}),
        patch("switch off", one, {"spec": {"on": False}}),
        patch("rule over time", one, {"spec": {"mode": "mixed"}}),
        patch("as in the manual", one, [{"op": "replace", "path": "/spec/mode", "value": "single"}], JSON_PATCH),
        patch("no strategic merge", one, {"spec": {"count": 2}}, STRATEGIC),
        apply("apply", f"{_THINGS}/a", _thing("a", mode="mixed", parts=[{"name": "x", "size": 1}])),
        apply("apply another part", f"{_THINGS}/a", _thing("a", parts=[{"name": "y", "size": 2}]), "two"),
        apply("apply a conflict", f"{_THINGS}/a", _thing("a", parts=[{"name": "x", "size": 2}]), "two"),
        apply("apply less", f"{_THINGS}/a", _thing("a", mode="mixed")),
        get("table", _THINGS, accept=TABLE),
        get("list", _THINGS, query={"fieldSelector": "metadata.name=t"}),
        get("list by an unknown field", _THINGS, query={"fieldSelector": "spec.mode=single"}),
        delete("delete", one),
        create("no schema", _CRDS, {**definition(), "spec": {**definition()["spec"], "versions": [{"name": "v1", "served": True, "storage": True}]}, "metadata": {"name": "things.example.com"}}),
        delete("undefine", f"{_CRDS}/things.example.com"),
        get("no longer served", _THINGS, until=404),
    ]  # fmt: skip


def small_kinds() -> list[JSON]:
    """Return requests about leases, events, namespaces, secrets and accounts."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    events = "/api/v1/namespaces/default/events"
    newer = "/apis/events.k8s.io/v1/namespaces/default/events"
    secrets = "/api/v1/namespaces/default/secrets"
    about = {"kind": "Node", "name": "n1", "uid": "n1", "apiVersion": "v1"}
    lease = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.123456Z"}
    event = {
        "involvedObject": about,
        "reason": "Applied",
        "message": "done",
        "type": "Normal",
        "source": {"component": "agent"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
    }
    new = {
        "regarding": about,
        "reason": "Applied",
        "note": "done",
        "type": "Normal",
        "action": "Apply",
        "reportingController": "aliquot.io/agent",
        "reportingInstance": "n1",
        "eventTime": "2026-01-02T03:04:05.123456Z",
    }
    return [
        create("lease", leases, {"metadata": {"name": "l"}, "spec": lease}, save={"rv": "metadata.resourceVersion"}),
        create("a lease of no length", leases, {"metadata": {"name": "m"}, "spec": {"leaseDurationSeconds": 0}}),
        put("lease without version", f"{leases}/l", {"metadata": {"name": "l"}, "spec": lease}),
        put("renew", f"{leases}/l", {"metadata": {"name": "l", "resourceVersion": "{{rv}}"}, "spec": {**lease, "leaseTransitions": 1}}),
        put("renew too late", f"{leases}/l", {"metadata": {"name": "l", "resourceVersion": "{{rv}}"}, "spec": lease}),
        put("lease that is not there", f"{leases}/n", {"metadata": {"name": "n"}, "spec": lease}),
        get("leases", leases, accept=TABLE),
        create("event", events, {"metadata": {"name": "e1"}, **event}),
        create("event of another namespace", events, {"metadata": {"name": "e0"}, **event, "involvedObject": {**about, "namespace": "other"}}),
        get("event, the new way", f"{newer}/e1"),
        create("new event", newer, {"metadata": {"name": "e2"}, **new}),
        get("new event, the old way", f"{events}/e2"),
        create("new event without time", newer, {"metadata": {"name": "e3"}, "note": "x", "regarding": about}),
        patch("count", f"{events}/e1", {"count": 2}),
        get("events about", events, query={"fieldSelector": "involvedObject.name=n1,involvedObject.kind=Node,type=Normal"}),
        get("events regarding", newer, query={"fieldSelector": "regarding.name=n1"}),
        get("events table", events, accept=TABLE),
        create("namespace", "/api/v1/namespaces", {"metadata": {"name": "space"}}),
        get("namespaces", "/api/v1/namespaces", accept=TABLE, query={"fieldSelector": "metadata.name=space"}),
        delete("namespace goes", "/api/v1/namespaces/space"),
        create("too late", "/api/v1/namespaces/space/configmaps", {"metadata": {"name": "a"}}),
        put("finalized", "/api/v1/namespaces/space/finalize", {"metadata": {"name": "space"}, "spec": {"finalizers": []}}),
        get("namespace is gone", "/api/v1/namespaces/space"),
        create("secret", secrets, {"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
        create("account", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "sa"}}),
        delete("account goes", "/api/v1/namespaces/default/serviceaccounts/sa"),
        delete("default namespace stays", "/api/v1/namespaces/default"),
    ]  # fmt: skip


def admission() -> list[JSON]:
    """Return requests about a policy like the one that restricts agents to their own node."""
    root = "/apis/admissionregistration.k8s.io/v1"
    policies, bindings = f"{root}/validatingadmissionpolicies", f"{root}/validatingadmissionpolicybindings"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes", "nodes/status"]}
    spec: JSON = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "labelled", "expression": "has(object.metadata.labels) && 'guarded' in object.metadata.labels"}],
        "variables": [{"name": "mine", "expression": "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][0].orValue('')"}],
        "validations": [
            {"expression": "variables.mine == object.metadata.name || request.userInfo.username == 'admin'", "message": "not your node"},
            {"expression": "object.metadata.labels.all(k, k.startsWith('nvidia.com/') || k == 'guarded')", "messageExpression": "'labels of ' + object.metadata.name", "reason": "Forbidden"},
            {"expression": "object.metadata.annotations['must'] == 'be'"},
        ],
    }  # fmt: skip
    head = {"apiVersion": "admissionregistration.k8s.io/v1"}
    policy = {**head, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "guard"}, "spec": spec}
    binding = {**head, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "guard"}}
    binding["spec"] = {"policyName": "guard", "validationActions": ["Deny"]}
    one = f"{NODES}/n1"
    unread = {**spec, "validations": [{"expression": "object.metadata.name =="}]}
    undeclared = {**spec, "validations": [{"expression": "nothing.metadata"}]}
    bad = {"metadata": {"name": "bad"}}
    return [
        create("node", NODES, node()),
        create("policy", policies, policy),
        create("policy that cannot be read", policies, {**policy, **bad, "spec": unread}),
        create("policy about nothing", policies, {**policy, **bad, "spec": undeclared}),
        create("policy without rules", policies, {**policy, **bad, "spec": {"validations": spec["validations"]}}),
        create("policy without validations", policies, {**policy, **bad, "spec": {"matchConstraints": {"resourceRules": [rule]}}}),
        create("binding", bindings, binding),
        create("binding without action", bindings, {**binding, **bad, "spec": {"policyName": "guard"}}),
        create("binding with a bad action", bindings, {**binding, **bad, "spec": {"policyName": "guard", "validationActions": ["Shout"]}}),
        patch("not guarded", one, {"metadata": {"labels": {"a": "b"}}}),
        patch("a bad label", one, {"metadata": {"labels": {"guarded": ""}, "annotations": {"must": "be"}}}, until=403, query={"dryRun": "All"}),
        patch("no annotations: an error", one, {"metadata": {"labels": {"guarded": "", "a": None}}}),
        patch("a wrong annotation", one, {"metadata": {"labels": {"guarded": "", "a": None}, "annotations": {"must": "not"}}}),
        patch("fine", one, {"metadata": {"labels": {"guarded": "", "a": None, "nvidia.com/x": "1"}, "annotations": {"must": "be"}}}),
        delete("binding goes", f"{bindings}/guard"),
        delete("policy goes", f"{policies}/guard"),
    ]  # fmt: skip
