"""KubeVirt's machines as rows: what each has, and which free devices of its node it could have. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot.dashboard.cluster.harvester_rows import product
from aliquot.dashboard.view_models import Device, MachineRow
from aliquot.kubernetes.kinds.harvester_names import vgpu_resource
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import allocation, resource_of, user_of
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import World, parent_of
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import Cluster, Meaning, meanings, node_of
from aliquot.kubernetes.virtual_machines.kubevirt.admission.validate import devices as complaints

RESTART = "it runs: a change of its devices takes effect when it is stopped and started again"
Products = Mapping[tuple[str, str], str]


def rows(worlds: Mapping[str, World], cluster: Cluster, products: Products) -> Iterator[MachineRow]:
    free = {node: tuple(free_devices(node, world, products)) for node, world in worlds.items()}
    for (namespace, name), machine in sorted(cluster.world.machines.items()):
        instance = cluster.world.instances.get((namespace, name))
        running = instance is not None and not instance.over
        here = tuple(_devices(machine, cluster, products, running))
        node = instance.status.node_name if instance is not None and running else ""
        node = node or next((d.node for d in here if d.node), "")
        choice = free.get(node, ()) if node else tuple(d for some in free.values() for d in some)
        if not here and not choice:
            continue
        told = list(complaints(machine.devices, cluster)) if here else []
        yield MachineRow(
            name=name,
            namespace=namespace,
            node=node,
            running=running,
            devices=here,
            free=choice,
            warnings=(*told, *((RESTART,) if running else ())),
            why_not="it is being deleted" if machine.metadata.deletion_timestamp else "",
        )


def free_devices(node: str, world: World, products: Products) -> Iterator[Device]:
    """What is made on a node, and no machine has: vGPUs, and whole GPUs that are claimed."""
    known = meanings(world)
    for name, device in sorted(world.vgpus.items()):
        if device.status.configured and not user_of(world, name):
            parent = product(products, world, node, device.spec.parent, parent_of(device))
            yield _device(name, node, device.status.configured, f"{device.spec.parent} {parent}".strip(),
                          known.get(vgpu_resource(device.status.configured)))  # fmt: skip
    for name, claim in sorted(world.claims.items()):
        resource = resource_of(world, name)
        if name in world.vgpus or not claim.status.passthrough_enabled or not resource or user_of(world, name):
            continue
        text = product(products, world, node, claim.spec.address, name) or resource
        yield Device(name, node, text, claim.spec.address, resource, several=True)


def _device(name: str, node: str, kind: str, parent: str, meaning: Meaning | None) -> Device:
    several = None if meaning is None or meaning.type is None or not meaning.type.per_vm else meaning.type.per_vm > 1
    return Device(name, node, kind, parent, vgpu_resource(kind), several)


def _devices(machine: VirtualMachine, cluster: Cluster, products: Products, running: bool) -> Iterator[Device]:
    """By the names that its entries have; of a running one the annotation says which devices it really has."""
    world, known = cluster.world, meanings(cluster.world)
    got = {resource: list(found) for resource, found in allocation(machine).items()} if running else {}
    for each in machine.devices.all:
        queue = got.get(each.device_name, [])
        name = queue.pop(0) if queue else each.name
        meaning = known.get(each.device_name)
        kind = meaning.type.name if meaning is not None and meaning.type is not None else each.device_name
        vgpu = world.vgpus.get(name)
        yield Device(
            id=each.name,
            node=node_of(name, world),
            type=kind,
            parent=vgpu.spec.parent if vgpu is not None else "",
            resource=each.device_name,
            several=None,
        )
