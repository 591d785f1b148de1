"""Detection of Harvester's own agent on this node: two controllers of one GPU would revert each other's changes.

Source: harvester/charts, harvester-pcidevices-controller (names and labels).
"""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.errors import Message
from aliquot.kubernetes.client.objects import Node, Pod
from aliquot.kubernetes.gpu.node_pods import has_ended
from aliquot.kubernetes.kinds.harvester_names import WITHOUT_PCIDEVICES

DAEMON_SET = "harvester-pcidevices-controller"
LABEL = "app.kubernetes.io/name"
NAMES = frozenset({DAEMON_SET, "pcidevices"})
INSTALL = (
    "kubectl apply -f deploy/kubernetes-machines/optional/beside-pcidevices.yaml   # with Helm: "
    "--set devices.besidePcidevices=true"
)


def pcidevices_conflict(pods: Iterable[Pod], node: Node | None, *, all_devices: bool = False) -> Message | None:
    """Return which pod of pcidevices keeps our agent idle, and how to end that; None if none does.

    With ``all_devices`` our agent then serves the devices of all vendors.
    """
    other = pcidevices_pod(pods)
    if other is None:
        return None
    where = f"{other.metadata.namespace}/{other.name}"
    text = f"Harvester's pcidevices reconciles these kinds on this node (pod {where}): Aliquot does nothing"
    if not all_devices:
        text += "; when pcidevices leaves the node, its USB and network devices stop working without --all-devices"
    if node is None:
        return Message(text)
    if WITHOUT_PCIDEVICES in node.metadata.labels:
        return Message(f"{text}; the node has the label {WITHOUT_PCIDEVICES}, which pcidevices ignores", INSTALL)
    return Message(text, f"kubectl label node {node.name} {WITHOUT_PCIDEVICES}=true")


def pcidevices_pod(pods: Iterable[Pod]) -> Pod | None:
    """Return the pcidevices pod among this node's pods, or None. A terminating pod still works."""
    return next((pod for pod in sorted(pods, key=lambda p: p.key) if _is_pcidevices(pod) and not has_ended(pod)), None)


def _is_pcidevices(pod: Pod) -> bool:
    owners = pod.metadata.owner_references
    owned = any(owner.kind == "DaemonSet" and owner.name == DAEMON_SET for owner in owners)
    return owned or pod.metadata.labels.get(LABEL) in NAMES
