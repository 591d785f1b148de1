"""Every request that makes a node's objects tell the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot.integrations.kubernetes.api.base import KubeObject
from aliquot.integrations.kubernetes.harvester import claims, devices, functions, migs, vgpus
from aliquot.integrations.kubernetes.harvester.cards import Card, cards
from aliquot.integrations.kubernetes.harvester.decide import Decision, decide
from aliquot.integrations.kubernetes.harvester.draft import Draft, settle
from aliquot.integrations.kubernetes.harvester.intents import digest
from aliquot.integrations.kubernetes.harvester.kinds import SRIOVGPUDevice
from aliquot.integrations.kubernetes.harvester.verdicts import Verdict
from aliquot.integrations.kubernetes.harvester.view import Change, Objects, Result, View


def changes(view: View, objects: Objects, results: Mapping[str, Result]) -> tuple[Change, ...]:
    """The requests, in the order in which they are to be made; nothing where all is true. ``results`` say by PCI
    address how the last attempts ended. What belongs to an object that is only being made comes in the next round.

    ``view.functions`` must be the whole bus: what is not in it is taken to be gone.
    """
    found = cards(view, objects)
    decisions = {card.pci: decide(card) for card in found}
    failures = {card.pci: _failure(decisions[card.pci], results.get(card.pci)) for card in found}
    out: list[Change] = []
    for draft in _drafts(view, objects, found, decisions, failures):
        out += settle(_stored(objects, draft), draft)
    leaving: list[KubeObject] = [
        *claims.given_back(view, objects, _owners(found)),
        *migs.gone(view, objects, {card.name: card for card in found}),
        *vgpus.gone(view, objects),
        *(each for each in _missing(view, objects, found) if not each.spec.enabled),
        *functions.gone(view, objects),
    ]
    gone = {(each.TYPE.kind, each.name) for each in leaving}
    return (
        *(change for change in out if (change.kind, change.name) not in gone),
        *claims.finalizers(view, objects, {card.pci: card for card in found}),
        *(_delete(each) for each in leaving if each.metadata.deletion_timestamp is None),
    )


def _failure(decision: Decision, result: Result | None) -> Verdict | None:
    """Why the present wish could not be carried out; the result of another says nothing."""
    if result is None or result.ok or decision.intent is None or result.attempt != digest(decision.intent):
        return None
    return Verdict(result.reason, result.message)


def _drafts(
    view: View,
    objects: Objects,
    found: tuple[Card, ...],
    decisions: Mapping[str, Decision],
    failures: Mapping[str, Verdict | None],
) -> Iterator[Draft]:
    """Owners before what they own."""
    yield from functions.drafts(view, objects, _owners(found))
    for card in found:
        decision, failure = decisions[card.pci], failures[card.pci]
        device = devices.draft(view, card, decision, failure)
        if device is not None:
            yield device
        mig = migs.draft(view, card, decision, failure)
        if mig is not None:
            yield mig
        yield from vgpus.drafts(view, card, decision, failure)
        yield from claims.reservations(view, objects, card)
    yield from (devices.missing(view, each) for each in _missing(view, objects, found) if each.spec.enabled)
    yield from vgpus.waiting(view, objects)
    outcomes = {c.pci: claims.Outcome(c, decisions[c.pci], failures[c.pci]) for c in found}
    yield from claims.users(view, objects, outcomes)


def _owners(found: tuple[Card, ...]) -> dict[str, Card]:
    """The GPUs by the addresses of their virtual functions."""
    return {address: card for card in found for address in card.addresses}


def _missing(view: View, objects: Objects, found: tuple[Card, ...]) -> Iterator[SRIOVGPUDevice]:
    """The SRIOVGPUDevices of this node whose GPU is not there, or can have no virtual functions."""
    there = {card.name for card in found if devices.able(card)}
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
