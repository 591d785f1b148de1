"""The checks of a cluster: the API server, what this kubeconfig may do, custom resources and agents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aliquot.cli.doctor.finding import DoctorFinding, Status, failed, first_names
from aliquot.cli.framework.extras import install_command
from aliquot.errors import AliquotError
from aliquot.foundation.decimals import counted

if TYPE_CHECKING:
    from aliquot.kubernetes.client.client import Api
    from aliquot.kubernetes.client.objects import Node
    from aliquot.kubernetes.client.pods import Pod

CLUSTER = "cluster"
_AGENT = {"app.kubernetes.io/name": "aliquot", "app.kubernetes.io/component": "agent"}
_CRDS = "kubectl apply --server-side --force-conflicts -f deploy/crds/"


def cluster_findings(kubeconfig: str) -> list[DoctorFinding]:
    """Check the cluster of a kubeconfig."""
    try:
        return asyncio.run(_check(kubeconfig))
    except ModuleNotFoundError as error:
        message = f"{error.name} is not installed: the cluster cannot be checked"
        return [DoctorFinding(CLUSTER, "API_SERVER", "problem", message, install_command("agent"))]


async def _check(kubeconfig: str) -> list[DoctorFinding]:
    from aliquot.kubernetes.client.client import Api
    from aliquot.kubernetes.client.objects import Node

    try:
        async with Api.connect(kubeconfig) as api:
            nodes = await api.list(Node)
            reached = f"{api.server} answers: {counted(len(nodes), 'node')}"
            return [
                DoctorFinding(CLUSTER, "API_SERVER", "ok", reached),
                *await _rights(api),
                await _custom_resources(api),
                await _agents(api, nodes),
            ]
    except AliquotError as error:
        return [failed(CLUSTER, "API_SERVER", error)]


async def _rights(api: Api) -> list[DoctorFinding]:
    """Check the rights that a user needs to read and to change GPUs, without those that only VMs need."""
    from aliquot.kubernetes.client.errors import ApiRequest
    from aliquot.kubernetes.manifests.rbac_dashboard import CHANGE_ROLE, USER_RIGHTS
    from aliquot.kubernetes.manifests.rbac_rule import OWN

    found = []
    for right in USER_RIGHTS:
        namespace = api.namespace if right.scope == OWN else None
        denied = [] if right.group else [v for v in right.verbs if not await api.can_i(v, right.resource, namespace)]
        if denied:
            message = f"this kubeconfig may not {' or '.join(denied)} {right.resource}: {right.reason}"
            step = ApiRequest(denied[0], right.resource, namespace=namespace or "").can_i_command()
            status: Status = "note" if right.account == CHANGE_ROLE else "problem"
            found.append(DoctorFinding(CLUSTER, "RIGHTS", status, message, step))
    return found or [DoctorFinding(CLUSTER, "RIGHTS", "ok", "this kubeconfig may read nodes and change their GPUs")]


async def _custom_resources(api: Api) -> DoctorFinding:
    from aliquot.kubernetes.client.client import ALL_NAMESPACES
    from aliquot.kubernetes.client.errors import ForbiddenError, NotFoundError
    from aliquot.kubernetes.client.object_base import KubeObject
    from aliquot.kubernetes.kinds.harvester_peripherals import ALL_KINDS
    from aliquot.kubernetes.kinds.vgpu_pools import VGPUPool

    kinds: tuple[type[KubeObject], ...] = (*ALL_KINDS, VGPUPool)
    missing = []
    for kind in kinds:
        try:
            await api.list(kind, ALL_NAMESPACES)
        except NotFoundError:
            missing.append(str(kind.TYPE))
        except ForbiddenError:
            continue  # the kind is there
    if not missing:
        return DoctorFinding(CLUSTER, "CRDS", "ok", "the custom resources for VMs are installed")
    if len(missing) == len(kinds):
        message = "the custom resources for VMs are not installed: only Harvester and KubeVirt clusters need them"
        return DoctorFinding(CLUSTER, "CRDS", "note", message, _CRDS)
    return DoctorFinding(CLUSTER, "CRDS", "problem", f"not installed: {', '.join(missing)}", _CRDS)


async def _agents(api: Api, nodes: Sequence[Node]) -> DoctorFinding:
    from aliquot.kubernetes.client.client import ALL_NAMESPACES
    from aliquot.kubernetes.client.pods import Pod

    try:
        pods = await api.list(Pod, ALL_NAMESPACES, labels=_AGENT)
    except AliquotError as error:
        return failed(CLUSTER, "AGENTS", error)
    return agent_finding(nodes, pods)


def agent_finding(nodes: Sequence[Node], pods: Sequence[Pod]) -> DoctorFinding:
    """Return whether every node with GPUs has an agent that is ready."""
    from aliquot.kubernetes.gpu.names import CAPABLE_LABEL, PRESENT_LABEL

    labels = ",".join(f"{key}={value}" for key, value in _AGENT.items())
    pods_command = f"kubectl get pods --all-namespaces -l {labels} -o wide"
    if not pods:
        step = "helm install aliquot deploy/helm/aliquot -n gpu-operator --create-namespace"
        return DoctorFinding(CLUSTER, "AGENTS", "problem", "no agent of Aliquot is in this cluster", step)
    ready = {pod.spec.node_name for pod in pods if any(c.ready for c in pod.status.container_statuses)}
    unready = sorted(pod.spec.node_name or pod.metadata.name for pod in pods if pod.spec.node_name not in ready)
    if unready:
        return DoctorFinding(
            CLUSTER, "AGENTS", "problem", f"the agent is not ready on {first_names(unready)}", pods_command
        )
    with_gpus = {
        node.metadata.name
        for node in nodes
        if "true" in (node.metadata.labels.get(PRESENT_LABEL), node.metadata.labels.get(CAPABLE_LABEL))
    }
    if without := sorted(with_gpus - ready):
        return DoctorFinding(
            CLUSTER, "AGENTS", "problem", f"no agent on {first_names(without)}, which has GPUs", pods_command
        )
    return DoctorFinding(CLUSTER, "AGENTS", "ok", f"the agent is ready on {counted(len(ready), 'node')}")
