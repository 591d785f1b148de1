"""The reasons, as comments in the files: why a right, a privilege, a path of the host is there."""

from __future__ import annotations

from aliquot.integrations.kubernetes.manifests import rights
from aliquot.integrations.kubernetes.manifests.agent import PATHS
from aliquot.integrations.kubernetes.manifests.rights import CLUSTER, DEFAULT, OWN
from aliquot.integrations.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER, Object

Path = tuple[str | int, ...]

_POD: Path = ("spec", "template", "spec")
_CONTAINER: Path = (*_POD, "containers", 0)
_AGENT: dict[Path, str] = {
    (
        *_POD,
        "hostPID",
    ): "NVML names the processes on a GPU by their pid on the host, and shows none outside the own pid namespace",
    (*_POD, "nodeSelector"): "written by the GPU Operator, or by our controller where there is none",
    (*_POD, "terminationGracePeriodSeconds"): "a change that has begun is finished or undone before the pod goes",
    (
        *_CONTAINER,
        "securityContext",
        "privileged",
    ): "MIG mode, instances and resets need CAP_SYS_ADMIN and device nodes that do not exist yet",
}
_SCOPES = {"ClusterRole": (CLUSTER,), "Role": (OWN, DEFAULT)}


def notes(item: Object) -> dict[Path, str]:
    """Comments by the path of the key or list item that they stand before."""
    kind, meta = item["kind"], item["metadata"]
    if kind in _SCOPES and meta["name"] in (AGENT_ACCOUNT, CONTROLLER):
        where = CLUSTER if kind == "ClusterRole" else DEFAULT if meta["namespace"] == "default" else OWN
        found = rights.of(meta["name"], where)
        return {("rules", n): _right(right) for n, right in enumerate(found)}
    if kind == "DaemonSet":
        return _AGENT | {(*_POD, "volumes", n): why for n, (_, _, _, _, why) in enumerate(PATHS)}
    return {}


def _right(right: rights.Right) -> str:
    return right.why + (f"; admission leaves: {right.narrowed}" if right.narrowed else "")
