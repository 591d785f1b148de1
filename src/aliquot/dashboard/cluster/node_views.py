"""Conversion of a node's Kubernetes objects to what the page shows. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.dashboard.view_models import ObservedNode
from aliquot.errors import Message
from aliquot.kubernetes.client.object_base import Condition
from aliquot.kubernetes.client.objects import Node, Pod
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.node_document import NodeDocument
from aliquot.kubernetes.gpu.node_status import AgentStatus, parse
from aliquot.kubernetes.manifests.values import AGENT, CLAIMS, DEVICES, VGPUS

GPU_AGENTS, VGPU_AGENTS = (AGENT, CLAIMS, VGPUS), (DEVICES,)
"""The apps that write each of a node's documents. Of the first three, a node has one."""


class NodeParts(msgspec.Struct, frozen=True):
    """The objects of one node. ``pods`` are the agents' pods on it, None if pods cannot be read."""

    name: str
    node: Node | None
    gpus: NodeDocument | None
    vgpus: NodeDocument | None
    pods: tuple[Pod, ...] | None
    namespace: str

    @property
    def is_relevant(self) -> bool:
        """True if the node has GPUs or should have an agent."""
        if self.gpus is not None or self.vgpus is not None:
            return True
        labels = self.node.metadata.labels if self.node is not None else {}
        marked = labels.get(names.DEPLOY_LABEL) == "true" or labels.get(names.PRESENT_LABEL) == "true"
        return marked or names.CONFIG_LABEL in labels


def node_view(parts: NodeParts, now: float) -> ObservedNode:
    """Convert the objects of a node. ``now`` is wall time in seconds, the observation time of up-to-date nodes."""
    parts = current(parts)
    error, step, since = _error(parts)
    labels = parts.node.metadata.labels if parts.node is not None else {}
    notes = parts.node.metadata.annotations if parts.node is not None else {}
    status = parse(notes.get(names.STATUS_ANNOTATION))
    document = parts.gpus
    followed = names.VGPU_CONFIG_LABEL if document is not None and document.for_vms else names.CONFIG_LABEL
    label, state = labels.get(followed, ""), labels.get(f"{followed}.state", "")
    known = document is not None and document.label == label
    return ObservedNode(
        name=parts.name,
        inventory=inventory(parts),
        observed_at=_observed_at(parts, error, since, now),
        error=error,
        next_step=step,
        desired=label,
        drift=document.drift if document is not None and known else (),
        changing=_changing(status, state),
        config=label,
        state=state,
        message=status.sentence if status is not None else notes.get(names.MESSAGE_ANNOTATION, ""),
        usage=usage(parts),
    )


def current(parts: NodeParts) -> NodeParts:
    """Drop the document of an agent that left when the node was switched to VMs.

    The document is deleted only with the node, and the devices agent observes the GPUs now.
    """
    document, pods, node = parts.gpus, parts.pods, parts.node
    if document is None or not document.pod or parts.vgpus is None or pods is None or node is None:
        return parts
    if node.metadata.labels.get(names.DEPLOY_LABEL) == "true" or _pods(pods, GPU_AGENTS):
        return parts
    followed = not parts.vgpus.pod or _pods(pods, VGPU_AGENTS)
    return msgspec.structs.replace(parts, gpus=None) if followed else parts


def inventory(parts: NodeParts) -> Inventory | None:
    """Merge the inventories of both agents. A GPU reserved for VMs is taken from the devices agent."""
    one, other = parts.gpus, parts.vgpus
    if one is None or other is None:
        found = one or other
        return found.inventory if found is not None else None
    other_gpus = {gpu.pci: gpu for gpu in other.inventory.gpus}
    reserved = set(one.reserved)
    gpus = [other_gpus.pop(gpu.pci, gpu) if gpu.pci in reserved else gpu for gpu in one.inventory.gpus]
    known = {gpu.pci for gpu in gpus}
    gpus += [gpu for pci, gpu in other_gpus.items() if pci not in known]
    names = {table.name for table in one.inventory.tables}
    return msgspec.structs.replace(
        one.inventory,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.pci)),
        tables=(*one.inventory.tables, *(t for t in other.inventory.tables if t.name not in names)),
        host=other.inventory.host or one.inventory.host,
        vgpu_tables=one.inventory.vgpu_tables or other.inventory.vgpu_tables,
    )


def usage(parts: NodeParts) -> tuple[Usage, ...]:
    """Merge the usage of both agents, by the same rule as ``inventory``."""
    one, other = parts.gpus, parts.vgpus
    if one is None or other is None:
        found = one or other
        return found.usage if found is not None else ()
    mine = {gpu.pci for gpu in one.inventory.gpus}
    mine -= set(one.reserved) & {gpu.pci for gpu in other.inventory.gpus}
    return (*(u for u in one.usage if u.gpu in mine), *(u for u in other.usage if u.gpu not in mine))


def _error(parts: NodeParts) -> tuple[str, str, float]:
    """Return why the shown state may be stale, the next step, and since when (seconds of wall time, 0 if unknown)."""
    name = parts.name
    if parts.node is None:
        return f"node {name} is no longer in the cluster", "kubectl get nodes", 0.0
    ready = _condition(parts.node.status.conditions, "Ready")
    if ready is not None and ready.status != "True":
        why = f": {ready.message}" if ready.message else ""
        text = f"node {name} is not ready{why}"
        return text, f"kubectl describe node {name}", unix_seconds(ready.last_transition_time)
    if parts.gpus is None and parts.vgpus is None:
        return _not_published(parts)
    for document, apps in _shown_documents(parts):
        unavailable = _agent_unavailable(parts.pods, apps) if document.pod and parts.pods is not None else None
        if unavailable is not None:
            return f"the agent of {name} is not available: {unavailable[0]}", _show_pods(parts, apps), unavailable[1]
        if document.read_error:
            # The command in the error is omitted: a node writes the document, and a user with more rights may run it.
            text = f"the GPUs of {name} cannot be read: {Message.parse(document.read_error).sentence}"
            return text, f"kubectl describe node {name}", unix_seconds(document.at)
    return "", "", 0.0


def _shown_documents(parts: NodeParts) -> list[tuple[NodeDocument, Sequence[str]]]:
    """Return the documents that contribute to the shown state (see ``inventory``), with their agents.

    An agent whose GPUs are all covered by the other one does not make the state stale.
    """
    one, other = parts.gpus, parts.vgpus
    if one is None:
        return [(other, VGPU_AGENTS)] if other is not None else []
    mine = {gpu.pci for gpu in one.inventory.gpus} - set(one.reserved)
    theirs = other is not None and any(gpu.pci not in mine for gpu in other.inventory.gpus)
    both = other is not None and theirs
    return [(one, GPU_AGENTS), *([(other, VGPU_AGENTS)] if both and other is not None else [])]


def _not_published(parts: NodeParts) -> tuple[str, str, float]:
    labels = parts.node.metadata.labels if parts.node is not None else {}
    name = parts.name
    if labels.get(names.DEPLOY_LABEL) == "false":
        text = f"the label {names.DEPLOY_LABEL}=false keeps the agent off {name}"
        return text, f"kubectl label node {name} {names.DEPLOY_LABEL}=true --overwrite", 0.0
    text = f"no agent has reported the GPUs of {name} yet"
    return text, _show_pods(parts, GPU_AGENTS), 0.0


def _show_pods(parts: NodeParts, apps: Sequence[str]) -> str:
    selector = f"app={apps[0]}" if len(apps) == 1 else f"'app in ({', '.join(apps)})'"
    return f"kubectl -n {parts.namespace} get pods -l {selector} --field-selector spec.nodeName={parts.name}"


def _agent_unavailable(pods: Sequence[Pod], apps: Sequence[str]) -> tuple[str, float] | None:
    """Return why the agent is unavailable and since when, None if one of its pods is ready."""
    mine = _pods(pods, apps)
    if not mine:
        return "it has no pod", 0.0
    reason: tuple[str, float] = ("its pod is not ready", 0.0)
    for pod in mine:
        ready = _condition(pod.status.conditions, "Ready")
        if ready is not None and ready.status == "True" and pod.metadata.deletion_timestamp is None:
            return None
        waiting = ", ".join(c.reason for c in pod.status.conditions if c.status != "True" and c.reason)
        why = f" ({waiting})" if waiting else ""
        reason = f"its pod {pod.name} is not ready{why}", unix_seconds(ready.last_transition_time if ready else None)
    return reason


def _pods(pods: Sequence[Pod], apps: Sequence[str]) -> list[Pod]:
    return [pod for pod in pods if pod.metadata.labels.get("app") in apps]


def _changing(status: AgentStatus | None, state: str) -> str:
    if status is None or state not in ("pending", "rebooting"):
        return ""
    if status.state not in ("pending", "rebooting"):
        return "the agent"
    return f"the agent ({status.progress})" if status.progress else "the agent"


def _observed_at(parts: NodeParts, error: str, since: float, now: float) -> float:
    """Return the observation time. Without an error it is ``now``, because documents are written only on changes."""
    shown = _shown_documents(parts)
    if not shown:
        return 0.0
    if not error:
        return now
    return max(since, *(unix_seconds(document.at) for document, _ in shown))


def _condition(found: Sequence[Condition], kind: str) -> Condition | None:
    return next((c for c in found if c.type == kind), None)


def unix_seconds(text: str | None) -> float:
    """Convert a Kubernetes time (RFC 3339) to seconds of wall time, 0 for none."""
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else 0.0
    except ValueError:
        return 0.0
