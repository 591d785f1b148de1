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
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import Outcome, decide
from aliquot.kubernetes.virtual_machines.harvester.gpu_intents import digest
from aliquot.kubernetes.virtual_machines.harvester.node_view import Change, Objects, Result, View
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, settle
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import Card, cards
from aliquot.kubernetes.virtual_machines.harvester.reasons import Verdict


def changes(view: View, objects: Objects, results: Mapping[str, Result]) -> tuple[Change, ...]:
    """The requests, in the order in which they are to be made; nothing where all is true. ``results`` say by PCI
    address how the last attempts ended. What belongs to an object that is only being made comes in the next round.

    ``view.functions`` must be the whole bus: what is not in it is taken to be gone.
    """
    found = tuple(_outcome(card, results) for card in cards(view, objects))
    owners = {address: of for of in found for address in of.card.addresses}
    out: list[Change] = []
    # A GPU's object that our watch does not show may only have lost the label by which it is watched. It is made, or
    # found, first: what belongs to it is judged by what it says then.
    coming: set[str] = set()
    for draft in _drafts(view, objects, found, owners):
        out += settle(_stored(objects, draft), draft)
        if draft.kind is SRIOVGPUDevice and draft.name not in objects.gpus:
            coming.add(draft.name)
    leaving: list[KubeObject] = [
        *claims.given_back(view, objects, owners),
        *migs.gone(view, objects, {of.card.name: of.card for of in found}, coming),
        *vgpus.gone(view, objects, coming),
        *(each for each in _missing(view, objects, found) if not each.spec.enabled),
        *functions.gone(view, objects),
    ]
    gone = {(each.TYPE.kind, each.name) for each in leaving}
    staying = [change for change in out if (change.kind, change.name) not in gone]
    return (
        *(change for change in staying if not _closing(change)),
        *claims.finalizers(view, objects, {of.card.pci: of.card for of in found}),
        *(_delete(each) for each in leaving if each.metadata.deletion_timestamp is None),
        *(change for change in staying if _closing(change)),
    )


def _closing(change: Change) -> bool:
    """A GPU's status comes last: who waited for its Ready finds the objects that belong to it made, or gone."""
    return change.verb == "status" and change.kind == SRIOVGPUDevice.TYPE.kind


def _outcome(card: Card, results: Mapping[str, Result]) -> Outcome:
    """The decision with the reason why it could not be carried out; the result of another wish says nothing."""
    decision, result = decide(card), results.get(card.pci)
    if result is None or result.ok or decision.intent is None or result.attempt != digest(decision.intent):
        return Outcome(card, decision)
    return Outcome(card, decision, Verdict(result.reason, result.message))


def _drafts(view: View, objects: Objects, found: tuple[Outcome, ...], owners: Mapping[str, Outcome]) -> Iterator[Draft]:
    """Owners before what they own."""
    yield from functions.drafts(view, objects, owners)
    yield from functions.missing(view, objects)
    for of in found:
        whole = (devices.draft(view, of), migs.draft(view, of))
        yield from (draft for draft in whole if draft is not None)
        yield from vgpus.drafts(view, of)
        yield from claims.reservations(view, objects, of)
    yield from (devices.missing(view, each) for each in _missing(view, objects, found) if each.spec.enabled)
    yield from vgpus.waiting(view, objects)
    yield from claims.users(view, objects, {of.card.pci: of for of in found})


def _missing(view: View, objects: Objects, found: tuple[Outcome, ...]) -> Iterator[SRIOVGPUDevice]:
    """The SRIOVGPUDevices of this node whose GPU is not there, or can have no virtual functions."""
    there = {of.card.name for of in found if devices.able(of.card)}
    for name, each in sorted(objects.gpus.items()):
        if each.spec.node_name == view.node and name not in there:
            yield each


def _stored(objects: Objects, draft: Draft) -> KubeObject | None:
    shelves: Mapping[str, Mapping[str, KubeObject]] = {
        "PCIDevice": objects.functions,
        "PCIDeviceClaim": objects.claims,
        "SRIOVGPUDevice": objects.gpus,
        "VGPUDevice": objects.vgpus,
        "MigConfiguration": objects.migs,
    }
    return shelves[draft.kind.TYPE.kind].get(draft.name)


def _delete(each: KubeObject) -> Change:
    meta = each.metadata
    return Change("delete", each.TYPE.kind, each.name, {}, meta.resource_version, meta.uid, "what it is about is gone")
