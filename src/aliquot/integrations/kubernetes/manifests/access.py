"""Accounts, roles and bindings, from the table of rights."""

from __future__ import annotations

from aliquot.integrations.kubernetes.manifests import rights
from aliquot.integrations.kubernetes.manifests.rights import CLUSTER, DEFAULT, OWN, Right
from aliquot.integrations.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER, Object, Values, metadata

_API = "rbac.authorization.k8s.io"
COMPONENTS = {AGENT_ACCOUNT: "agent", CONTROLLER: "controller"}


def accounts(values: Values) -> list[Object]:
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(who, component, values.namespace)}
        for who, component in COMPONENTS.items()
    ]


def roles(values: Values) -> list[Object]:
    """A role and its binding for each account and place where it has rights."""
    found: list[Object] = []
    for who in COMPONENTS:
        for where in (CLUSTER, OWN, DEFAULT):
            if rights.of(who, where):
                found += [_role(who, where, values), _binding(who, where, values)]
    return found


def rule(right: Right) -> Object:
    names = {"resourceNames": list(right.named)} if right.named else {}
    return {"apiGroups": [right.group], "resources": [right.resource], **names, "verbs": list(right.verbs)}


def _role(who: str, where: str, values: Values) -> Object:
    return {
        "apiVersion": f"{_API}/v1",
        "kind": _kind(where),
        "metadata": metadata(who, COMPONENTS[who], _namespace(where, values)),
        "rules": [rule(right) for right in rights.of(who, where)],
    }


def _binding(who: str, where: str, values: Values) -> Object:
    return {
        "apiVersion": f"{_API}/v1",
        "kind": f"{_kind(where)}Binding",
        "metadata": metadata(who, COMPONENTS[who], _namespace(where, values)),
        "roleRef": {"apiGroup": _API, "kind": _kind(where), "name": who},
        "subjects": [{"kind": "ServiceAccount", "name": who, "namespace": values.namespace}],
    }


def _kind(where: str) -> str:
    return "ClusterRole" if where == CLUSTER else "Role"


def _namespace(where: str, values: Values) -> str:
    return {CLUSTER: "", OWN: values.namespace, DEFAULT: "default"}[where]
