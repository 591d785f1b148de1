"""Findings about nodes: claim agents that lack, and device plugins beside them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aliquot.cli.doctor.finding import DoctorFinding, first_names
from aliquot.cli.dra.check_facts import AGENT_LABELS, DraFacts
from aliquot.foundation.decimals import counted
from aliquot.kubernetes.client.objects import Node, Pod
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.device_resources import PREFIX, WHOLE_GPU
from aliquot.kubernetes.gpu.quantity import read

NODES = "nodes"
_SELECTOR = ",".join(f"{key}={value}" for key, value in AGENT_LABELS.items())


def node_findings(facts: DraFacts) -> Iterator[DoctorFinding]:
    """Check that each node with claims has one agent for them, and no device plugin for the same GPUs."""
    if facts.nodes is None:
        return
    found = list(_clashes(facts, facts.nodes))
    if facts.agents is not None:
        found += _agents(facts, facts.nodes, facts.agents)
    if found or facts.agents is None:
        yield from found
    elif facts.agents:
        message = f"the claim agent is ready on {counted(len({_node(pod) for pod in facts.agents}), 'node')}"
        yield DoctorFinding(NODES, "CLAIM_AGENTS", "ok", message)
    else:
        message = f"no node has the label {names.ALLOCATION_LABEL}=dra, and no claim agent runs"
        step = f"kubectl label node NODE {names.ALLOCATION_LABEL}=dra"
        yield DoctorFinding(NODES, "CLAIM_AGENTS", "note", message, next_step=step)


def _agents(facts: DraFacts, nodes: Sequence[Node], agents: Sequence[Pod]) -> Iterator[DoctorFinding]:
    known = {node.name: node for node in nodes}
    labelled = {node.name for node in nodes if node.metadata.labels.get(names.ALLOCATION_LABEL) == "dra"}
    served = {_node(pod) for pod in agents}
    yield from _without_node(sorted(set(facts.own) - set(known)))
    absent = sorted((labelled | (set(facts.own) & set(known))) - served)
    if absent and not agents:
        step = "helm upgrade aliquot deploy/helm/aliquot -n gpu-operator --reuse-values --set dra.enabled=true"
        message = f"no claim agent is in this cluster, so no claim is prepared on {first_names(absent)}"
        yield DoctorFinding(NODES, "CLAIM_AGENTS", "problem", message, next_step=step)
        absent = []
    for name in absent:
        yield _absent(known[name], publishes=name in facts.own)
    yield from _unfit(facts, agents)


def _without_node(gone: Iterable[str]) -> Iterator[DoctorFinding]:
    for name in gone:
        step = f"kubectl get resourceslices --field-selector spec.nodeName={name}"
        message = f"slices of node {name} are left, which is not in the cluster"
        yield DoctorFinding(NODES, "CLAIM_AGENTS", "problem", message, next_step=step)


def _absent(node: Node, *, publishes: bool) -> DoctorFinding:
    """Return the finding for a node that needs a claim agent and has none."""
    why = "publishes devices" if publishes else f"has the label {names.ALLOCATION_LABEL}=dra"
    message = f"node {node.name} {why}, and no claim agent runs there"
    if node.metadata.labels.get(names.DEPLOY_LABEL) != "true":
        message += f": its label {names.DEPLOY_LABEL} is not true"
        step = f"kubectl label node {node.name} {names.DEPLOY_LABEL}=true --overwrite"
    elif node.metadata.labels.get(names.ALLOCATION_LABEL) != "dra":
        message += f": it does not have the label {names.ALLOCATION_LABEL}=dra"
        step = f"kubectl label node {node.name} {names.ALLOCATION_LABEL}=dra --overwrite"
    else:
        step = "kubectl describe daemonset --all-namespaces -l app.kubernetes.io/component=claims"
    return DoctorFinding(NODES, "CLAIM_AGENTS", "problem", message, next_step=step)


def _unfit(facts: DraFacts, agents: Sequence[Pod]) -> Iterator[DoctorFinding]:
    """Find agents that are not ready, or that publish nothing."""
    ready = {_node(pod) for pod in agents if _ready(pod)}
    for pod in sorted(agents, key=lambda pod: (_node(pod), pod.name)):
        node = _node(pod)
        step = f"kubectl -n {pod.metadata.namespace} logs {pod.name}"
        if not node:
            message = f"claim agent {pod.name} waits for a node"
            step = f"kubectl -n {pod.metadata.namespace} describe pod {pod.name}"
        elif node not in ready:
            message = f"the claim agent of node {node} is not ready"
        elif _ready(pod) and facts.slices is not None and node not in facts.own:
            message = f"the claim agent of node {node} is ready, and publishes no slice of {facts.naming.driver}"
        else:
            continue
        yield DoctorFinding(NODES, "CLAIM_AGENTS", "problem", message, next_step=step)


def _clashes(facts: DraFacts, nodes: Sequence[Node]) -> Iterator[DoctorFinding]:
    """Find nodes of the driver whose device plugin offers GPUs too."""
    classes = {each.spec.extended_resource_name: each.name for each in facts.classes or ()}
    for node in nodes:
        offered = sorted(name for name, count in node.status.allocatable.items() if _of_plugin(name, count))
        if node.name not in facts.own or not offered:
            continue
        message = (
            f"node {node.name} publishes slices, and its device plugin offers {first_names(offered)}: pods share GPUs"
        )
        same = next((name for name in offered if name in classes), None)
        if same is not None:
            message += f". Class {classes[same]} has the resource {same} too, so the scheduler counts it twice"
        if node.metadata.labels.get(names.ALLOCATION_LABEL) != "dra":
            step = f"kubectl label node {node.name} {names.ALLOCATION_LABEL}=dra --overwrite"
        else:
            step = f"kubectl get pods --all-namespaces --field-selector spec.nodeName={node.name}"
        yield DoctorFinding(NODES, "DEVICE_PLUGIN", "problem", message, next_step=step)


def _of_plugin(name: str, count: str) -> bool:
    """Report whether a resource of a node is GPUs or MIG devices. A plugin that ended leaves a count of zero."""
    quantity = read(count)
    gpus = name in (WHOLE_GPU, f"{WHOLE_GPU}.shared") or name.startswith(f"{PREFIX}mig-")
    return gpus and quantity is not None and quantity.value > 0


def _node(pod: Pod) -> str:
    return pod.spec.node_name


def _ready(pod: Pod) -> bool:
    return any(status.ready for status in pod.status.container_statuses)
