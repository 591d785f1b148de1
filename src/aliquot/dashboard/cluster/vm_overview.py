"""All rows for VMs, and missing requirements with their next steps."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.dashboard.cluster import harvester_rows as rows
from aliquot.dashboard.cluster import vms as machines
from aliquot.dashboard.cluster.cluster_cache import ClusterCache
from aliquot.dashboard.view_models import ObservedFleet, VirtualizationView
from aliquot.errors import Message
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.agent.node_report import parse
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION

_FEW = 3


def rows_of(cache: ClusterCache, fleet: ObservedFleet) -> VirtualizationView:
    """Build all rows. This runs only when a page needs them."""
    cluster = cache.admission_state.cluster()
    products = {(n.name, gpu.pci): gpu.product for n in fleet.nodes if n.inventory for gpu in n.inventory.gpus}
    snapshots = rows.by_node(cluster.snapshot)
    return VirtualizationView(
        sriov=tuple(rows.sriov(snapshots, products)),
        vgpus=tuple(rows.vgpu_rows(snapshots, products)),
        migs=tuple(rows.mig_rows(snapshots, products)),
        vms=tuple(machines.rows(snapshots, cluster, products)),
        missing=tuple(_missing(cache, cluster.snapshot)),
        no_vms=_no_vms(cache),
    )


def _missing(cache: ClusterCache, snapshot: AdmissionSnapshot) -> Iterator[str]:
    informers = cache.virtualization_informers
    absent = [informer.kind.TYPE for informer in informers if informer.absent]
    kinds = [str(kind.kind) for kind in absent if kind.group != "kubevirt.io"]
    if kinds:
        text = f"This cluster does not have Harvester's kinds ({', '.join(kinds)}), so no GPU can be shared with VMs."
        yield f"{text} Next: kubectl apply --server-side -f deploy/crds/"
    unavailable = next((informer.unavailable for informer in informers if informer.unavailable), "")
    if unavailable:
        yield f"Some objects cannot be read: {unavailable}"
    if not kinds:
        yield from _agents(snapshot)


def _no_vms(cache: ClusterCache) -> tuple[str, ...]:
    if any(
        informer.absent and informer.kind.TYPE.group == "kubevirt.io" for informer in cache.virtualization_informers
    ):
        return ("KubeVirt is not installed in this cluster, so there are no VMs. Next: kubectl get crds",)
    return ()


def _agents(snapshot: AdmissionSnapshot) -> Iterator[str]:
    """Yield sentences about nodes with objects but without an agent, and nodes without a driver."""
    nodes_with_gpus = {gpu.spec.node_name for gpu in snapshot.gpus.values()}
    silent = [name for name in sorted(nodes_with_gpus & snapshot.nodes.keys()) if not _has_agent(snapshot, name)]
    if silent:
        where = _list(silent)
        yield (
            f"No devices agent (the controller of Harvester's objects) runs on {where}, so changes of these objects "
            "are not applied. Next: kubectl get daemonsets -A -l app=aliquot-devices"
        )
    if not nodes_with_gpus and not any(_has_agent(snapshot, name) for name in snapshot.nodes):
        yield (
            "No devices agent runs in this cluster, so no GPU is available to VMs. "
            "Next: kubectl apply -f deploy/kubernetes-machines/"
        )
    for name in sorted(snapshot.nodes):
        status = parse(snapshot.nodes[name].metadata.annotations.get(DEVICES_ANNOTATION))
        if status is not None and status.state in ("waiting", "idle"):
            message = Message.parse(status.sentence)
            needed = snapshot.nodes[name].metadata.labels.get(names.DRIVER_NEEDED_LABEL) == "true"
            driver = " The node needs NVIDIA's vGPU host driver (the driver toolkit)." if needed else ""
            waits = driver if status.state == "waiting" else ""
            yield f"{name}: {message.sentence}.{waits}" + (f" Next: {message.next_step}" if message.next_step else "")


def _has_agent(snapshot: AdmissionSnapshot, node: str) -> bool:
    return DEVICES_ANNOTATION in snapshot.nodes[node].metadata.annotations


def _list(found: list[str]) -> str:
    more = len(found) - _FEW
    return ", ".join(found[:_FEW]) + (f" and {more} more" if more > 0 else "")
