"""Parts of admission policies: a policy with its binding, and expressions that several policies share."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, DEVICES, Object, Values, metadata

_API = "admissionregistration.k8s.io/v1"
Rule = tuple[str, str, str]
"""API group, resource (``pods/exec``) and operation (``UPDATE``, ``*``)."""
NODE = {
    "name": "node",
    "expression": "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')",
}
MAPS = [
    {"name": f"{when}{kind.capitalize()}", "expression": f"{value}.metadata.?{kind}.orValue({{}})"}
    for kind in ("labels", "annotations")
    for when, value in (("old", "oldObject"), ("new", "object"))
]
SAME_OWNERS = "object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])"
"""The garbage collector deletes an object whose owner does not exist, so a right to write owners is a right to
delete.
"""
SAME_LIFE = f"object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([]) && {SAME_OWNERS}"
"""Fields that decide when the object is deleted do not change."""


def policy(
    name: str,
    account_name: str,
    rules: Sequence[Rule],
    validations: list[Object],
    values: Values,
    variables: Sequence[Object] = (),
) -> list[Object]:
    """Return a policy about the requests of one account, and its binding. ``variables.node`` is an agent's node. Pass
    ``MAPS`` for the labels and annotations before and after.
    """
    meta = metadata(name, account_name.removeprefix("aliquot-"))
    known = [*([NODE] if account_name in (AGENT_ACCOUNT, DEVICES) else []), *variables]
    spec: Object = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [_rule(rule) for rule in rules]},
        "matchConditions": [
            {"name": "ours", "expression": f"request.userInfo.username == '{values.account(account_name)}'"},
        ],
        **({"variables": known} if known else {}),
        "validations": validations,
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        {"apiVersion": _API, "kind": "ValidatingAdmissionPolicy", "metadata": meta, "spec": spec},
        {"apiVersion": _API, "kind": "ValidatingAdmissionPolicyBinding", "metadata": meta, "spec": binding},
    ]


def _rule(rule: Rule) -> Object:
    group, resource, operation = rule
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": [operation], "resources": [resource]}


def validation(expression: str, message: str) -> Object:
    """Return a condition, and the message if it does not hold."""
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def only_keys(maps: str, allowed: str) -> str:
    """Return an expression: old and new ``Labels`` or ``Annotations`` differ only in keys that ``allowed`` accepts. Any
    key may keep its value.
    """
    old, new = f"variables.old{maps}", f"variables.new{maps}"
    return (
        f"{new}.all(k, ({allowed}) || (k in {old} && {old}[k] == {new}[k])) && "
        f"{old}.all(k, ({allowed}) || (k in {new} && {old}[k] == {new}[k]))"
    )


def same_except(new: str, old: str, *keys: str) -> str:
    """Return an expression: two maps are the same except for the values at ``keys``."""
    excepted = f"k in {list(keys)!r}"
    return f"{new}.all(k, {excepted} || (k in {old} && {old}[k] == {new}[k])) && {old}.all(k, {excepted} || k in {new})"
