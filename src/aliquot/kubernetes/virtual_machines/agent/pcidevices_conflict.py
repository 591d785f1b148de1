"""Detection of Harvester's own agent on this node: two controllers of one GPU would revert each other's changes.

Source: harvester/charts, harvester-pcidevices-controller (names and labels).
"""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.gpu.node_pods import has_ended

DAEMON_SET = "harvester-pcidevices-controller"
LABEL = "app.kubernetes.io/name"
NAMES = frozenset({DAEMON_SET, "pcidevices"})


def pcidevices_pod(pods: Iterable[Pod]) -> Pod | None:
    """Return the pcidevices pod among this node's pods, or None. A terminating pod still works."""
    return next((pod for pod in sorted(pods, key=lambda p: p.key) if _is_pcidevices(pod) and not has_ended(pod)), None)


def _is_pcidevices(pod: Pod) -> bool:
    owners = pod.metadata.owner_references
    owned = any(owner.kind == "DaemonSet" and owner.name == DAEMON_SET for owner in owners)
    return owned or pod.metadata.labels.get(LABEL) in NAMES
