"""Every request that makes a node's objects tell the truth."""

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
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import PhysicalGpu, list_physical_gpus
from aliquot.kubernetes.virtual_machines.harvester.reasons import ObjectVerdict


def changes(view: NodeView, objects: Objects, results: Mapping[str, Result]) -> tuple[ObjectChange, ...]:
    """The requests, in the order in which they are to be made; nothing where all is true. ``results`` say by PCI
    address how the last attempts ended. What belongs to an object that is only being made comes in the next round.

    ``view.functions`` must be the whole bus: what is not in it is taken to be gone.
    """
    found = tuple(_gpu_outcome(physical_gpu, results) for physical_gpu in list_physical_gpus(view, objects))
    owners = {address: outcome for outcome in found for address in outcome.physical_gpu.addresses}
    out: list[ObjectChange] = []
    # A GPU's object that our watch does not show may only have lost the label by which it is watched. It is made, or
    # found, first: what belongs to it is judged by what it says then.
    being_created: set[str] = set()
    for draft in _drafts(view, objects, found, owners):
        out += changes_for(_stored(objects, draft), draft)
        if draft.kind is SRIOVGPUDevice and draft.name not in objects.gpus:
            being_created.add(draft.name)
    to_delete: list[KubeObject] = [
        *claims.claims_to_delete(view, objects, owners),
        *migs.objects_to_delete(
            view, objects, {outcome.physical_gpu.name: outcome.physical_gpu for outcome in found}, being_created
        ),
        *vgpus.objects_to_delete(view, objects, being_created),
        *(each for each in _devices_without_gpu(view, objects, found) if not each.spec.enabled),
        *functions.objects_to_delete(view, objects),
    ]
    deleted_keys = {(each.TYPE.kind, each.name) for each in to_delete}
    remaining = [change for change in out if (change.kind, change.name) not in deleted_keys]
    return (
        *(change for change in remaining if not _comes_last(change)),
        *claims.finalizer_changes(view, objects, {outcome.physical_gpu.pci: outcome.physical_gpu for outcome in found}),
        *(_delete(each) for each in to_delete if each.metadata.deletion_timestamp is None),
        *(change for change in remaining if _comes_last(change)),
    )


def _comes_last(change: ObjectChange) -> bool:
    """A GPU's status comes last: who waited for its Ready finds the objects that belong to it made, or gone."""
    return change.verb == "status" and change.kind == SRIOVGPUDevice.TYPE.kind


def _gpu_outcome(physical_gpu: PhysicalGpu, results: Mapping[str, Result]) -> GpuOutcome:
    """The decision with the reason why it could not be carried out; the result of another wish says nothing."""
    decision, result = decide(physical_gpu), results.get(physical_gpu.pci)
    if result is None or result.ok or decision.intent is None or result.attempt != digest(decision.intent):
        return GpuOutcome(physical_gpu, decision)
    return GpuOutcome(physical_gpu, decision, ObjectVerdict(result.reason, result.message))


def _drafts(
    view: NodeView, objects: Objects, found: tuple[GpuOutcome, ...], owners: Mapping[str, GpuOutcome]
) -> Iterator[Draft]:
    """Owners before what they own."""
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
    yield from claims.claim_drafts(view, objects, {outcome.physical_gpu.pci: outcome for outcome in found})


def _devices_without_gpu(view: NodeView, objects: Objects, found: tuple[GpuOutcome, ...]) -> Iterator[SRIOVGPUDevice]:
    """The SRIOVGPUDevices of this node whose GPU is not there, or can have no virtual functions."""
    with_gpu = {outcome.physical_gpu.name for outcome in found if devices.supports_sriov(outcome.physical_gpu)}
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
    }
    return by_kind[draft.kind.TYPE.kind].get(draft.name)


def _delete(each: KubeObject) -> ObjectChange:
    meta = each.metadata
    return ObjectChange(
        "delete", each.TYPE.kind, each.name, {}, meta.resource_version, meta.uid, "what it is about is gone"
    )
