"""Accounts, roles and bindings, from the table of rights."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.kubernetes.manifests import rbac as rights
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, RbacRight
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER, DASHBOARD, DEVICES, Object, Values, metadata

_API = "rbac.authorization.k8s.io"
COMPONENTS = {AGENT_ACCOUNT: "agent", CONTROLLER: "controller", DEVICES: "devices", DASHBOARD: "dashboard"}


def account(account_name: str, values: Values) -> Object:
    meta = metadata(account_name, COMPONENTS[account_name], values.namespace)
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}


def roles(
    account_name: str,
    values: Values,
    *,
    devices: bool = False,
    certificate: bool = False,
    evictions: bool = False,
    claims: bool = False,
    extender: bool = False,
    repair: bool = False,
    all_devices: bool = False,
) -> list[Object]:
    """Build a role and its binding for each place where an account has rights: those that it needs everywhere, those
    for virtual machines, those for a certificate of its own, those for evictions, those for ResourceClaims, those of
    the scheduler extender, those for the repair of definitions, or those for the devices of all vendors.
    """
    found: list[Object] = []
    more = {"devices": devices, "certificate": certificate, "evictions": evictions, "claims": claims}
    more |= {"extender": extender, "repair": repair, "all_devices": all_devices}
    name = role_name(account_name, **more)
    for scope in (CLUSTER, OWN, DEFAULT):
        if rules := rights.rights_of(account_name, scope, **more):
            meta = metadata(name, COMPONENTS[account_name], _namespace(scope, values))
            found += [role(meta, scope, rules), binding(account_name, meta, scope, values)]
    return found


def role_name(
    account_name: str,
    *,
    devices: bool,
    certificate: bool = False,
    evictions: bool = False,
    claims: bool = False,
    extender: bool = False,
    repair: bool = False,
    all_devices: bool = False,
) -> str:
    if certificate:
        return f"{account_name}-certificate"
    if evictions:
        return f"{account_name}-evictions"
    if claims:
        return f"{account_name}-claims"
    if extender:
        return f"{account_name}-extender"
    if repair:
        return f"{account_name}-definitions"
    if all_devices:
        return f"{account_name}-all"
    return f"{account_name}-devices" if devices and account_name != DEVICES else account_name


def _rule(right: RbacRight) -> Object:
    names = {"resourceNames": list(right.resource_names)} if right.resource_names else {}
    return {"apiGroups": [right.group], "resources": [right.resource], **names, "verbs": list(right.verbs)}


def role(meta: Object, scope: str, rules: Sequence[RbacRight]) -> Object:
    rows = [_rule(right) for right in rules]
    return {"apiVersion": f"{_API}/v1", "kind": _kind(scope), "metadata": meta, "rules": rows}


def binding(account_name: str, meta: Object, scope: str, values: Values) -> Object:
    return {
        "apiVersion": f"{_API}/v1",
        "kind": f"{_kind(scope)}Binding",
        "metadata": meta,
        "roleRef": {"apiGroup": _API, "kind": _kind(scope), "name": meta["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": account_name, "namespace": values.namespace}],
    }


def _kind(scope: str) -> str:
    return "ClusterRole" if scope == CLUSTER else "Role"


def _namespace(scope: str, values: Values) -> str:
    return {CLUSTER: "", OWN: values.namespace, DEFAULT: "default"}[scope]
