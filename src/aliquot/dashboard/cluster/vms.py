"""KubeVirt VMs as rows: their devices, and unused devices of their node. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot.dashboard.cluster.harvester_rows import product
from aliquot.dashboard.view_models import VmDeviceRow, VmRow
from aliquot.kubernetes.kinds.harvester_names import vgpu_resource
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import (
    DeviceUsers,
    annotated_devices,
    resource_of,
)
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, parent_gpu_name
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import (
    ResourceMeaning,
    VmClusterState,
    node_of_device,
    resource_meanings,
)
from aliquot.kubernetes.virtual_machines.kubevirt.admission.validation import device_errors

RESTART = "the VM is running: a change of its devices takes effect when it is stopped and started again"
Products = Mapping[tuple[str, str], str]


def rows(snapshots: Mapping[str, AdmissionSnapshot], cluster: VmClusterState, products: Products) -> Iterator[VmRow]:
    free = {node: tuple(free_devices(node, snapshot, products)) for node, snapshot in snapshots.items()}
    for (namespace, name), vm in sorted(cluster.snapshot.vms.items()):
        instance = cluster.snapshot.instances.get((namespace, name))
        running = instance is not None and not instance.finished
        attached = tuple(_devices(vm, cluster, products, running))
        node = instance.status.node_name if instance is not None and running else ""
        node = node or next((d.node for d in attached if d.node), "")
        choice = free.get(node, ()) if node else tuple(d for some in free.values() for d in some)
        if not attached and not choice:
            continue
        notes = [str(each) for each in device_errors(vm.devices, cluster)] if attached else []
        yield VmRow(
            name=name,
            namespace=namespace,
            node=node,
            running=running,
            devices=attached,
            free=choice,
            warnings=(*notes, *((RESTART,) if running else ())),
            why_not="it is being deleted" if vm.metadata.deletion_timestamp else "",
        )


def free_devices(node: str, snapshot: AdmissionSnapshot, products: Products) -> Iterator[VmDeviceRow]:
    """Yield the unused devices of a node: vGPUs, and whole GPUs that are claimed for passthrough."""
    known, users = resource_meanings(snapshot), DeviceUsers(snapshot)
    for name, device in sorted(snapshot.vgpus.items()):
        if device.status.configured and not users.describe(name):
            parent = product(products, snapshot, node, device.spec.parent, parent_gpu_name(device))
            yield _device(name, node, device.status.configured, f"{device.spec.parent} {parent}".strip(),
                          known.get(vgpu_resource(device.status.configured)))  # fmt: skip
    for name, claim in sorted(snapshot.claims.items()):
        resource = resource_of(snapshot, name)
        if name in snapshot.vgpus or not claim.status.passthrough_enabled or not resource or users.describe(name):
            continue
        text = product(products, snapshot, node, claim.spec.address, name) or resource
        yield VmDeviceRow(name, node, text, claim.spec.address, resource, several=True)


def _device(name: str, node: str, kind: str, parent: str, meaning: ResourceMeaning | None) -> VmDeviceRow:
    several = None if meaning is None or meaning.type is None or not meaning.type.per_vm else meaning.type.per_vm > 1
    return VmDeviceRow(name, node, kind, parent, vgpu_resource(kind), several)


def _devices(vm: VirtualMachine, cluster: VmClusterState, products: Products, running: bool) -> Iterator[VmDeviceRow]:
    """Yield the devices of a VM by entry. For a running VM, an annotation names the allocated devices."""
    snapshot, known = cluster.snapshot, resource_meanings(cluster.snapshot)
    allocated = {resource: list(found) for resource, found in annotated_devices(vm).items()} if running else {}
    for each in vm.devices.all:
        queue = allocated.get(each.device_name, [])
        name = queue.pop(0) if queue else each.name
        meaning = known.get(each.device_name)
        kind = meaning.type.name if meaning is not None and meaning.type is not None else each.device_name
        vgpu = snapshot.vgpus.get(name)
        yield VmDeviceRow(
            id=each.name,
            node=node_of_device(name, snapshot),
            type=kind,
            parent=vgpu.spec.parent if vgpu is not None else "",
            resource=each.device_name,
            several=None,
        )
