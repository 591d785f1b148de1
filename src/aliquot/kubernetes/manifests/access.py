"""Accounts, roles and bindings, from the table of rights."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.kubernetes.manifests import rbac as rights
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, Right
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER, DASHBOARD, DEVICES, Object, Values, metadata

_API = "rbac.authorization.k8s.io"
COMPONENTS = {AGENT_ACCOUNT: "agent", CONTROLLER: "controller", DEVICES: "devices", DASHBOARD: "dashboard"}


def account(who: str, values: Values) -> Object:
    meta = metadata(who, COMPONENTS[who], values.namespace)
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}


def roles(
    who: str, values: Values, *, devices: bool = False, certificate: bool = False, evictions: bool = False
) -> list[Object]:
    """Build a role and its binding for each place where an account has rights: those that it needs everywhere, those
    for virtual machines, those for a certificate of its own, or those for evictions.
    """
    found: list[Object] = []
    name = role_name(who, devices=devices, certificate=certificate, evictions=evictions)
    for where in (CLUSTER, OWN, DEFAULT):
        if rules := rights.of(who, where, devices=devices, certificate=certificate, evictions=evictions):
            meta = metadata(name, COMPONENTS[who], _namespace(where, values))
            found += [role(meta, where, rules), binding(who, meta, where, values)]
    return found


def role_name(who: str, *, devices: bool, certificate: bool = False, evictions: bool = False) -> str:
    if certificate:
        return f"{who}-certificate"
    if evictions:
        return f"{who}-evictions"
    return f"{who}-devices" if devices and who != DEVICES else who


def _rule(right: Right) -> Object:
    names = {"resourceNames": list(right.named)} if right.named else {}
    return {"apiGroups": [right.group], "resources": [right.resource], **names, "verbs": list(right.verbs)}


def role(meta: Object, where: str, rules: Sequence[Right]) -> Object:
    rows = [_rule(right) for right in rules]
    return {"apiVersion": f"{_API}/v1", "kind": _kind(where), "metadata": meta, "rules": rows}


def binding(who: str, meta: Object, where: str, values: Values) -> Object:
    return {
        "apiVersion": f"{_API}/v1",
        "kind": f"{_kind(where)}Binding",
        "metadata": meta,
        "roleRef": {"apiGroup": _API, "kind": _kind(where), "name": meta["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": who, "namespace": values.namespace}],
    }


def _kind(where: str) -> str:
    return "ClusterRole" if where == CLUSTER else "Role"


def _namespace(where: str, values: Values) -> str:
    return {CLUSTER: "", OWN: values.namespace, DEFAULT: "default"}[where]
