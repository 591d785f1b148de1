"""The requests that bring a node's objects in line with its hardware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice
from aliquot.kubernetes.virtual_machines.harvester import mig_configurations as migs
from aliquot.kubernetes.virtual_machines.harvester import pci_device_claims as claims
from aliquot.kubernetes.virtual_machines.harvester import pci_devices as functions
from aliquot.kubernetes.virtual_machines.harvester import sriov_gpu_devices as devices
from aliquot.kubernetes.virtual_machines.harvester import vgpu_devices as vgpus
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import GpuOutcome, decide
from aliquot.kubernetes.virtual_machines.harvester.gpu_intents import digest
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, ObjectChange, Objects, Result
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, changes_for
from aliquot.kubernetes.virtual_machines.harvester.peripherals import network_devices as network
from aliquot.kubernetes.virtual_machines.harvester.peripherals import usb_devices as usb
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import PhysicalGpu, list_physical_gpus
from aliquot.kubernetes.virtual_machines.harvester.reasons import ObjectVerdict


def changes(view: NodeView, objects: Objects, results: Mapping[str, Result]) -> tuple[ObjectChange, ...]:
    """Return the requests in the order in which to send them; none if the objects are up to date.

    ``results`` are the results of the last attempts, by PCI address. Objects that belong to one that is only being
    created follow in the next round. ``view.functions`` must contain the whole bus: a function that is missing counts
    as removed.
    """
    found = tuple(_gpu_outcome(physical_gpu, results) for physical_gpu in list_physical_gpus(view, objects))
    owners = {address: outcome for outcome in found for address in outcome.physical_gpu.addresses}
    out: list[ObjectChange] = []
    # A GPU's object that the watch does not show may have lost the label of the watch. It is created or found first;
    # its dependent objects follow from its content.
    being_created: set[str] = set()
    peripherals = (*usb.drafts(view, objects), *network.drafts(view, objects, results))
    for draft in (*_drafts(view, objects, found, owners, results), *peripherals):
        out += changes_for(_stored(objects, draft), draft)
        if draft.kind is SRIOVGPUDevice and draft.name not in objects.gpus:
            being_created.add(draft.name)
    reservations = list(claims.claims_to_delete(view, objects, owners))
    to_delete: list[KubeObject] = [
        *reservations,
        *migs.objects_to_delete(
            view, objects, {outcome.physical_gpu.name: outcome.physical_gpu for outcome in found}, being_created
        ),
        *vgpus.objects_to_delete(view, objects, being_created),
        *(each for each in _devices_without_gpu(view, objects, found) if not each.spec.enabled),
        *functions.objects_to_delete(view, objects),
        *usb.objects_to_delete(view, objects),
        *network.objects_to_delete(view, objects),
    ]
    deleted_keys = {(each.TYPE.kind, each.name) for each in to_delete}
    remaining = [change for change in out if (change.kind, change.name) not in deleted_keys]
    return (
        *(change for change in remaining if not _comes_last(change)),
        *claims.finalizer_changes(view, objects, {outcome.physical_gpu.pci: outcome.physical_gpu for outcome in found}),
        *usb.claim_changes(view, objects),
        *claims.owner_changes(each for each in reservations if each.metadata.deletion_timestamp is None),
        *(_delete(each) for each in to_delete if each.metadata.deletion_timestamp is None),
        *(change for change in remaining if _comes_last(change)),
    )


def _comes_last(change: ObjectChange) -> bool:
    """Report whether a change comes last: the status of a GPU.

    A client that waited for its Ready condition then finds the dependent objects created or deleted.
    """
    return change.verb == "status" and change.kind == SRIOVGPUDevice.TYPE.kind


def _gpu_outcome(physical_gpu: PhysicalGpu, results: Mapping[str, Result]) -> GpuOutcome:
    """Combine the decision with the reason why it could not be applied. Results of another intent are ignored."""
    decision, result = decide(physical_gpu), results.get(physical_gpu.pci)
    if result is None or result.ok or decision.intent is None or result.attempt != digest(decision.intent):
        return GpuOutcome(physical_gpu, decision)
    return GpuOutcome(physical_gpu, decision, ObjectVerdict(result.reason, result.message))


def _drafts(
    view: NodeView,
    objects: Objects,
    found: tuple[GpuOutcome, ...],
    owners: Mapping[str, GpuOutcome],
    results: Mapping[str, Result],
) -> Iterator[Draft]:
    """Yield the drafts, owners before the objects that they own."""
    yield from functions.drafts(view, objects, owners)
    yield from functions.missing_drafts(view, objects)
    for outcome in found:
        whole = (devices.draft(view, outcome), migs.draft(view, outcome))
        yield from (draft for draft in whole if draft is not None)
        yield from vgpus.drafts(view, outcome)
        yield from claims.reservation_drafts(view, objects, outcome)
    yield from (
        devices.missing_draft(view, each) for each in _devices_without_gpu(view, objects, found) if each.spec.enabled
    )
    yield from vgpus.waiting_drafts(view, objects)
    yield from claims.claim_drafts(view, objects, {outcome.physical_gpu.pci: outcome for outcome in found}, results)


def _devices_without_gpu(view: NodeView, objects: Objects, found: tuple[GpuOutcome, ...]) -> Iterator[SRIOVGPUDevice]:
    """Yield this node's SRIOVGPUDevices whose GPU is missing or does not support virtual functions."""
    with_gpu = {outcome.physical_gpu.name for outcome in found if devices.can_be_shared(outcome.physical_gpu)}
    for name, each in sorted(objects.gpus.items()):
        if each.spec.node_name == view.node and name not in with_gpu:
            yield each


def _stored(objects: Objects, draft: Draft) -> KubeObject | None:
    by_kind: Mapping[str, Mapping[str, KubeObject]] = {
        "PCIDevice": objects.functions,
        "PCIDeviceClaim": objects.claims,
        "SRIOVGPUDevice": objects.gpus,
        "VGPUDevice": objects.vgpus,
        "MigConfiguration": objects.migs,
        "USBDevice": objects.usb,
        "USBDeviceClaim": objects.usb_claims,
        "SRIOVNetworkDevice": objects.network,
    }
    return by_kind[draft.kind.TYPE.kind].get(draft.name)


def _delete(each: KubeObject) -> ObjectChange:
    meta = each.metadata
    return ObjectChange("delete", each.TYPE.kind, each.name, {}, meta.resource_version, meta.uid, "its device is gone")
