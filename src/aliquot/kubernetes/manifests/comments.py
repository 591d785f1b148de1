"""The reasons, as comments in the files: why a right, a privilege, a path of the host is there."""

from __future__ import annotations

from aliquot.kubernetes.manifests import access
from aliquot.kubernetes.manifests import rbac as rights
from aliquot.kubernetes.manifests import rbac_dashboard as rights_dashboard
from aliquot.kubernetes.manifests import vm_agent as devices
from aliquot.kubernetes.manifests.agent import ALL, PATHS
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, RbacRight
from aliquot.kubernetes.manifests.values import Object

Path = tuple[str | int, ...]

_POD: Path = ("spec", "template", "spec")
_CONTAINER: Path = (*_POD, "containers", 0)
_GRACE = "a change that has begun is finished or undone before the pod goes; one driver call of it may take 185 s"
_AGENT: dict[Path, str] = {
    (
        *_POD,
        "hostPID",
    ): "NVML names the processes on a GPU by their pid on the host, and shows none outside the own pid namespace",
    (*_POD, "nodeSelector"): "written by the GPU Operator, or by our controller where there is none",
    (*_POD, "terminationGracePeriodSeconds"): _GRACE,
    (
        *_CONTAINER,
        "securityContext",
        "privileged",
    ): "MIG mode, instances and resets need CAP_SYS_ADMIN and device nodes that do not exist yet",
}
_DEVICES: dict[Path, str] = {
    (*_POD, "tolerations"): "a GPU's virtual functions and passthrough are looked after wherever the node is",
    (*_POD, "hostPID"): "which process has a device open is asked of every process before anything is taken away",
    (*_POD, "terminationGracePeriodSeconds"): _GRACE,
    (
        *_CONTAINER,
        "securityContext",
        "privileged",
    ): "virtual functions, vGPUs and drivers of devices are changed in /sys and through /dev/nvidia*",
}
_PODS = {"agent": (_AGENT, ALL), "devices": (_DEVICES, devices.PATHS)}
_SCRAPED = "Prometheus; name another namespace here where yours is elsewhere. kubelet's probes always arrive"
_SENDS = "outgoing traffic stays open: it goes to the API server, whose address differs from cluster to cluster"
_NETWORK: dict[str, dict[Path, str]] = {
    name: {("spec", "policyTypes"): _SENDS, ("spec", "ingress", 0): _SCRAPED}
    for name in ("agent", "devices", "controller")
}
_NETWORK["controller"][("spec", "ingress", 1)] = (
    "webhooks and capacity: the API server calls from an address that no selector matches"
)
_ROLES = {
    access.role_name(r.account, devices=r.devices, certificate=r.certificate, evictions=r.evictions): r
    for r in rights.RIGHTS
}


def object_comments(item: Object) -> dict[Path, str]:
    """Comments by the path of the key or list item that they stand before."""
    kind, meta = item["kind"], item["metadata"]
    if kind in ("ClusterRole", "Role") and meta["name"] in _ROLES:
        scope = CLUSTER if kind == "ClusterRole" else DEFAULT if meta["namespace"] == "default" else OWN
        r = _ROLES[meta["name"]]
        found = rights.rights_of(r.account, scope, devices=r.devices, certificate=r.certificate, evictions=r.evictions)
        return {("rules", n): _right(right) for n, right in enumerate(found)}
    people = [r for r in rights_dashboard.USER_RIGHTS if r.account == meta["name"]]
    if kind in ("ClusterRole", "Role") and people:
        scope = CLUSTER if kind == "ClusterRole" else OWN
        return {("rules", n): right.reason for n, right in enumerate(r for r in people if r.scope == scope)}
    if kind == "NetworkPolicy":
        return _NETWORK.get(meta["labels"]["app.kubernetes.io/component"], {})
    known = _PODS.get(meta["labels"]["app.kubernetes.io/component"])
    if kind == "DaemonSet" and known is not None:
        comments, paths = known
        reasons = [reason for name, _, _, _, reason in PATHS if name in paths]
        return comments | {(*_POD, "volumes", n): reason for n, reason in enumerate(reasons)}
    return {}


def _right(right: RbacRight) -> str:
    return right.reason + (f"; admission leaves: {right.narrowed}" if right.narrowed else "")
