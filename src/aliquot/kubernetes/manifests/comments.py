"""Comments in the generated files: the reason for a right, a privilege or a host path."""

from __future__ import annotations

from aliquot.kubernetes.manifests import access, claim_agent, vgpu_agent
from aliquot.kubernetes.manifests import rbac as rights
from aliquot.kubernetes.manifests import rbac_dashboard as rights_dashboard
from aliquot.kubernetes.manifests import vm_agent as devices
from aliquot.kubernetes.manifests.agent import LABEL_AGENT_PATHS, PATHS
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, RbacRight
from aliquot.kubernetes.manifests.values import EXTENDER, Object

Path = tuple[str | int, ...]

_POD: Path = ("spec", "template", "spec")
_CONTAINER: Path = (*_POD, "containers", 0)
_GRACE = "a running change is finished or rolled back before the pod ends; one driver call may take 185 s"
_AGENT: dict[Path, str] = {
    (
        *_POD,
        "hostPID",
    ): "NVML lists the processes on a GPU by their pid on the host, and only those of its own pid namespace",
    (*_POD, "nodeSelector"): "written by the GPU Operator, or by our controller in clusters without it",
    (*_POD, "affinity"): "one of the two agents of a node: the label agent, or the claim agent",
    (*_POD, "terminationGracePeriodSeconds"): _GRACE,
    (
        *_CONTAINER,
        "securityContext",
        "privileged",
    ): "MIG mode, instances and resets need CAP_SYS_ADMIN and device nodes that do not exist yet",
}
_DEVICES: dict[Path, str] = {
    (*_POD, "tolerations"): "virtual functions and passthrough are managed on every node",
    (*_POD, "hostPID"): "before a destructive change, the agent searches all processes for open devices",
    (*_POD, "terminationGracePeriodSeconds"): _GRACE,
    (
        *_CONTAINER,
        "securityContext",
        "privileged",
    ): "virtual functions, vGPUs and driver bindings are changed in /sys and through /dev/nvidia*",
}
_VGPUS = _AGENT | {
    (*_POD, "nodeSelector"): "written by the GPU Operator on nodes with nvidia.com/gpu.workload.config=vm-vgpu",
    (*_POD, "hostPID"): _DEVICES[(*_POD, "hostPID")],
    (*_CONTAINER, "securityContext", "privileged"): _DEVICES[(*_CONTAINER, "securityContext", "privileged")],
}
del _VGPUS[(*_POD, "affinity")]
_PODS = {
    "agent": (_AGENT, LABEL_AGENT_PATHS),
    "claims": (_AGENT, claim_agent.PATHS),
    "devices": (_DEVICES, devices.PATHS),
    "vgpus": (_VGPUS, vgpu_agent.PATHS),
}
_SCRAPED = "Prometheus; change the namespace if yours is in another one. The kubelet's probes always arrive"
_SENDS = "outgoing traffic stays open: it goes to the API server, whose address differs from cluster to cluster"
_NETWORK: dict[str, dict[Path, str]] = {
    name: {("spec", "policyTypes"): _SENDS, ("spec", "ingress", 0): _SCRAPED}
    for name in ("agent", "claims", "devices", "vgpus", "controller")
}
_NETWORK["controller"][("spec", "ingress", 1)] = (
    "webhooks and capacity: the API server calls from an address that no selector matches"
)


def _conditions(right: RbacRight) -> dict[str, bool]:
    """Return the installations that have a right, as arguments of ``rights_of``."""
    return {
        "devices": right.devices,
        "certificate": right.certificate,
        "evictions": right.evictions,
        "claims": right.claims,
        "extender": right.extender,
        "repair": right.repair,
        "all_devices": right.all_devices,
    }


_ROLES = {access.role_name(r.account, **_conditions(r)): r for r in rights.RIGHTS}


def object_comments(item: Object) -> dict[Path, str]:
    """Return comments by the path of the key or list item that they precede."""
    kind, meta = item["kind"], item["metadata"]
    if kind in ("ClusterRole", "Role") and meta["name"] in _ROLES:
        scope = CLUSTER if kind == "ClusterRole" else DEFAULT if meta["namespace"] == "default" else OWN
        r = _ROLES[meta["name"]]
        found = rights.rights_of(r.account, scope, **_conditions(r))
        return {("rules", n): _right(right) for n, right in enumerate(found)}
    people = [r for r in rights_dashboard.USER_RIGHTS if r.account == meta["name"]]
    if kind in ("ClusterRole", "Role") and people:
        scope = CLUSTER if kind == "ClusterRole" else OWN
        return {("rules", n): right.reason for n, right in enumerate(r for r in people if r.scope == scope)}
    if kind == "NetworkPolicy" and meta["name"] == EXTENDER:
        return {("spec", "ingress", 0): "the scheduler calls from an address that no selector matches"}
    if kind == "NetworkPolicy":
        return _NETWORK.get(meta["labels"]["app.kubernetes.io/component"], {})
    known = _PODS.get(meta["labels"]["app.kubernetes.io/component"])
    if kind == "DaemonSet" and known is not None:
        comments, paths = known
        reasons = [reason for name, _, _, _, reason in PATHS if name in paths]
        return comments | {(*_POD, "volumes", n): reason for n, reason in enumerate(reasons)}
    return {}


def _right(right: RbacRight) -> str:
    return right.reason + (f". Admission policies limit it to: {right.narrowed}" if right.narrowed else "")
