"""Findings about rights: those of the user for what the guide types, and those of the claim agent's account."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.cli.doctor.finding import DoctorFinding, failed
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ApiRequest
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.manifests.access import role_name
from aliquot.kubernetes.manifests.rbac import rights_of
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, RbacRight
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, Values

RIGHTS = "rights"
USER_RIGHTS = (
    ("create", "deviceclasses.resource.k8s.io", "device classes cannot be applied"),
    ("patch", "deviceclasses.resource.k8s.io", "device classes cannot be applied again"),
    ("patch", "nodes", "nodes cannot be moved by their label"),
)
"""What an administrator writes. The rights to read show in what this command reads."""


async def user_findings(api: Api) -> list[DoctorFinding]:
    """Ask for the rights of this user. A lack is a note: another user may be the one who changes things."""
    try:
        allowed = [await api.can_i(verb, resource) for verb, resource, _ in USER_RIGHTS]
    except ApiError as error:
        return [failed(RIGHTS, "USER_RIGHTS", error, what="the rights of this user are not known", status="note")]
    found = [
        DoctorFinding(
            RIGHTS,
            "USER_RIGHTS",
            "note",
            f"this user may not {verb} {resource}: {what}",
            ApiRequest(verb, resource).can_i_command(),
        )
        for (verb, resource, what), may in zip(USER_RIGHTS, allowed, strict=True)
        if not may
    ]
    message = "this user may write device classes and label nodes"
    return found or [DoctorFinding(RIGHTS, "USER_RIGHTS", "ok", message)]


async def agent_findings(api: Api, agents: Sequence[Pod] | None) -> list[DoctorFinding]:
    """Ask for the rights of the account of the claim agents, as the manifests give them.

    ``agents`` None stands for pods that could not be read: then the account is that of the manifests.
    """
    accounts = [(pod.metadata.namespace, pod.spec.service_account_name or "default") for pod in agents or ()]
    if agents is None:
        accounts = [(Values().namespace, AGENT_ACCOUNT)]
    return [finding for account in sorted(set(accounts)) for finding in await _account(api, account)]


async def _account(api: Api, account: tuple[str, str]) -> list[DoctorFinding]:
    try:
        found = [finding for claims in (True, False) for finding in await _role(api, account, claims=claims)]
    except ApiError as error:
        what = f"the rights of the claim agent's account {'/'.join(account)} are not known"
        return [failed(RIGHTS, "AGENT_RIGHTS", error, what=what, status="note")]
    message = f"the claim agent's account {'/'.join(account)} has its rights"
    return found or [DoctorFinding(RIGHTS, "AGENT_RIGHTS", "ok", message)]


async def _role(api: Api, account: tuple[str, str], *, claims: bool) -> list[DoctorFinding]:
    """Ask for the rights of one role: the one for claims, or the one that every agent has. Raises ApiError."""
    agent = f"the claim agent's account {'/'.join(account)}"
    rights = [
        right
        for scope in (CLUSTER, OWN, DEFAULT)
        for right in rights_of(AGENT_ACCOUNT, scope, devices=False, claims=claims)
    ]
    denied = {right: await _denied(api, account, right) for right in rights}
    if all(denied[right] == list(right.verbs) for right in rights):
        role = role_name(AGENT_ACCOUNT, devices=False, claims=claims)
        step = f"kubectl describe clusterrolebindings {role}"
        message = f"{agent} has no right of the role {role}: is it bound?"
        return [DoctorFinding(RIGHTS, "AGENT_RIGHTS", "problem", message, next_step=step)]
    return [
        DoctorFinding(
            RIGHTS,
            "AGENT_RIGHTS",
            "problem",
            f"{agent} may not {' or '.join(verbs)} {_resource(right)}: {right.reason}",
            _request(right, verbs[0], account).can_i_command(f"system:serviceaccount:{':'.join(account)}"),
        )
        for right, verbs in denied.items()
        if verbs
    ]


async def _denied(api: Api, account: tuple[str, str], right: RbacRight) -> list[str]:
    """Return the verbs of a right that the account does not have."""
    namespace = _request(right, "get", account).namespace or None
    return [verb for verb in right.verbs if not await api.can_account(account, verb, _resource(right), namespace)]


def _request(right: RbacRight, verb: str, account: tuple[str, str]) -> ApiRequest:
    namespace = {CLUSTER: "", OWN: account[0], DEFAULT: "default"}[right.scope]
    resource, _, subresource = _resource(right).partition("/")
    return ApiRequest(verb, resource, namespace=namespace, subresource=subresource)


def _resource(right: RbacRight) -> str:
    plain, slash, subresource = right.resource.partition("/")
    return f"{plain}.{right.group}{slash}{subresource}" if right.group else right.resource
