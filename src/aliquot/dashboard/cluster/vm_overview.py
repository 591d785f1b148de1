"""Everything for virtual machines, and what of it is missing, each with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.dashboard.cluster import harvester_rows as rows
from aliquot.dashboard.cluster import vms as machines
from aliquot.dashboard.cluster.cluster_cache import View
from aliquot.dashboard.view_models import Fleet, Virtual
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.agent.node_report import IDLE, WAITING, parse
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import World
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION

_FEW = 3


def rows_of(view: View, fleet: Fleet) -> Virtual:
    """Computed when somebody looks: few look at machines."""
    cluster = view.known.cluster()
    products = {(n.name, gpu.pci): gpu.product for n in fleet.nodes if n.inventory for gpu in n.inventory.gpus}
    worlds = rows.by_node(cluster.world)
    return Virtual(
        sriov=tuple(rows.sriov(worlds, products)),
        vgpus=tuple(rows.vgpu_rows(worlds, products)),
        migs=tuple(rows.mig_rows(worlds, products)),
        machines=tuple(machines.rows(worlds, cluster, products)),
        missing=tuple(_missing(view, cluster.world)),
        no_machines=_no_machines(view),
    )


def _missing(view: View, world: World) -> Iterator[str]:
    shelves = view.virtual_shelves
    absent = [shelf.kind.TYPE for shelf in shelves if shelf.absent]
    kinds = [str(kind.kind) for kind in absent if kind.group != "kubevirt.io"]
    if kinds:
        text = (
            f"This cluster does not have Harvester's kinds ({', '.join(kinds)}): nothing can be shared with machines."
        )
        yield f"{text} Next: kubectl apply --server-side -f deploy/crds/"
    away = next((shelf.away for shelf in shelves if shelf.away), "")
    if away:
        yield f"Not everything can be read: {away}"
    if not kinds:
        yield from _agents(world)


def _no_machines(view: View) -> tuple[str, ...]:
    if any(shelf.absent and shelf.kind.TYPE.group == "kubevirt.io" for shelf in view.virtual_shelves):
        return ("KubeVirt is not installed in this cluster: there are no virtual machines. Next: kubectl get crds",)
    return ()


def _agents(world: World) -> Iterator[str]:
    """Nodes with objects that nobody carries out, and nodes without a driver."""
    wished = {gpu.spec.node_name for gpu in world.gpus.values()}
    silent = [name for name in sorted(wished & world.nodes.keys()) if not _standing(world, name)]
    if silent:
        where = _list(silent)
        yield (
            f"No devices agent (the controller of Harvester's objects) works on {where}: nothing that is asked there "
            "is carried out. Next: kubectl get daemonsets -A -l app=aliquot-devices"
        )
    if not wished and not any(_standing(world, name) for name in world.nodes):
        yield (
            "No devices agent works in this cluster, so that no GPU is offered to machines. "
            "Next: kubectl apply -f deploy/kubernetes-machines/"
        )
    for name in sorted(world.nodes):
        told = parse(world.nodes[name].metadata.annotations.get(DEVICES_ANNOTATION))
        if told is not None and told.state in (WAITING, IDLE):
            sentence, _, step = told.sentence.partition(" | next: ")
            needed = world.nodes[name].metadata.labels.get(names.DRIVER_NEEDED_LABEL) == "true"
            driver = " NVIDIA's vGPU host driver (the driver toolkit) is needed there." if needed else ""
            waits = driver if told.state == WAITING else ""
            yield f"{name}: {sentence}.{waits}" + (f" Next: {step}" if step else "")


def _standing(world: World, node: str) -> bool:
    return DEVICES_ANNOTATION in world.nodes[node].metadata.annotations


def _list(found: list[str]) -> str:
    more = len(found) - _FEW
    return ", ".join(found[:_FEW]) + (f" and {more} more" if more > 0 else "")
