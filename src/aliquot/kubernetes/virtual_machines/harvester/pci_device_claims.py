"""PCIDeviceClaims: whole GPUs that users hand out, and the reservations behind vGPUs of vendor-specific VFIO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from aliquot.core.model.pci import PciFunction
from aliquot.kubernetes.client.object_base import KubeObject, OwnerReference
from aliquot.kubernetes.kinds.harvester import (
    NOT_SERVED,
    NVIDIA,
    PCIDeviceClaim,
    PCIDeviceClaimSpec,
    PCIDeviceClaimStatus,
    passing,
)
from aliquot.kubernetes.kinds.harvester_names import (
    CLAIM_FINALIZER,
    PARENT_LABEL,
    RESOURCE_ANNOTATION,
    SKIP_BINDING_ANNOTATION,
    object_name,
)
from aliquot.kubernetes.virtual_machines.harvester.conditions import FALSE, PENDING, READY, TRUE, UNKNOWN, condition
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import Outcome
from aliquot.kubernetes.virtual_machines.harvester.node_view import Change, Objects, View
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, labels
from aliquot.kubernetes.virtual_machines.harvester.pci_devices import carried_resource
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import VFIO, Card
from aliquot.kubernetes.virtual_machines.harvester.reasons import Verdict, advice

USER = "admin"
"""Who claims for vGPUs, as in the original."""
MISNAMED = "Misnamed"
State = tuple[str, Verdict]


def reservations(view: View, objects: Objects, of: Outcome) -> Iterator[Draft]:
    """The claim of each virtual function that carries a vGPU of vendor-specific VFIO, or is to: there before the vGPU,
    gone after it.
    """
    card, drivers = of.card, {f.address: f.driver for f in view.functions}
    for address, found in sorted(card.vgpus.items()):
        name = object_name(view.node, address)
        claim, resource = objects.claims.get(name), carried_resource(of, address)
        device = objects.functions.get(name)
        if not resource or device is None or not (device.metadata.uid and found.metadata.uid):
            continue
        if claim is not None and (passing(claim) or claim.metadata.deletion_timestamp is not None):
            continue
        here = card.live.get(address) is not None
        coming = of.failure or Verdict(PENDING, "the vGPU is to come")
        why = Verdict("Configured", f"it stands for {resource}") if here else coming
        yield Draft(
            kind=PCIDeviceClaim,
            name=name,
            spec=PCIDeviceClaimSpec(address=address, node_name=view.node, user_name=USER),
            status=_status(view, claim, drivers.get(address, ""), True, (TRUE if here else FALSE, why)),
            labels=labels({PARENT_LABEL: card.name}),
            annotations={SKIP_BINDING_ANNOTATION: "true", RESOURCE_ANNOTATION: resource},
            owners=(_owner(device), _owner(found)),
            why=f"{resource} on {address}",
        )


def _owner(of: KubeObject) -> OwnerReference:
    return OwnerReference(of.TYPE.kind, of.name, of.metadata.uid, of.TYPE.api_version)


def given_back(view: View, objects: Objects, found: Mapping[str, Outcome]) -> Iterator[PCIDeviceClaim]:
    """Reservations without a vGPU. ``found`` are the GPUs by their virtual functions. Where nobody can see whether
    there is one, they stay.
    """
    for _, claim in sorted(objects.claims.items()):
        of = found.get(claim.spec.address)
        if passing(claim) or claim.spec.node_name != view.node or of is None:
            continue
        unseen = claim.spec.address in of.card.function.virtual and claim.spec.address not in of.card.known
        here = claim.spec.address in of.card.live
        if not unseen and not here and carried_resource(of, claim.spec.address) == "":
            yield claim


def users(view: View, objects: Objects, found: Mapping[str, Outcome]) -> Iterator[Draft]:
    """What the claims that hand functions out say. ``found`` are the GPUs by PCI address. Only NVIDIA's functions, and
    what goes with them, are ours: of another one a claim says so, and nothing that pcidevices wrote is changed.
    """
    functions = {f.address: f for f in view.functions}
    for name, claim in sorted(objects.claims.items()):
        function = functions.get(claim.spec.address)
        if claim.spec.node_name != view.node or not passing(claim):
            continue
        if function is None and not _lost(claim, objects):
            yield Draft(PCIDeviceClaim, name, claim.spec, _not_served(view, claim))
            continue
        of = found.get(claim.spec.address)
        if name != object_name(view.node, claim.spec.address):
            state = FALSE, _misnamed(view, claim)
        elif function is None:
            state = FALSE, _absent(claim)
        else:
            state = _whole(of) if of is not None else _beside(view, function, [each.card for each in found.values()])
        driver = function.driver if function is not None and state[1].reason != MISNAMED else ""
        yield Draft(PCIDeviceClaim, name, claim.spec, _status(view, claim, driver, driver == VFIO, state))


def _lost(claim: PCIDeviceClaim, objects: Objects) -> bool:
    """Whether a claim is about one of NVIDIA's functions that is not there now: its PCIDevice, or what we have said of
    it, tells.
    """
    device = objects.functions.get(claim.name)
    said = any(each.reason != NOT_SERVED for each in claim.status.conditions)
    return said or (device is not None and device.status.vendor_id == NVIDIA)


def _not_served(view: View, claim: PCIDeviceClaim) -> PCIDeviceClaimStatus:
    text = f"node {view.node} has no NVIDIA device at {claim.spec.address}: aliquot serves no other device"
    why = Verdict(NOT_SERVED, advice(text, f"kubectl delete pcideviceclaim {claim.name}"))
    return msgspec.structs.replace(
        claim.status,
        conditions=(condition(claim.status.conditions, READY, FALSE, why, view.now),),
        observed_generation=claim.metadata.generation or 1,
    )


def _misnamed(view: View, claim: PCIDeviceClaim) -> Verdict:
    name, address = object_name(view.node, claim.spec.address), claim.spec.address
    text = f"a claim on {address} has the name {name}: this one names one function and means another"
    return Verdict(MISNAMED, advice(text, f"kubectl delete pcideviceclaim {claim.name}"))


def _absent(claim: PCIDeviceClaim) -> Verdict:
    text = f"there is no {claim.spec.address} on the PCI bus: the wish is kept until it is back"
    return Verdict("GpuMissing", advice(text, f"kubectl delete pcideviceclaim {claim.name} (if it is gone for good)"))


def finalizers(view: View, objects: Objects, cards: Mapping[str, Card]) -> Iterator[Change]:
    """A claim goes only when what it did is undone. One that we do not serve goes: nobody else is left to let it."""
    present = {f.address: f for f in view.functions}
    for _, claim in sorted(objects.claims.items()):
        function, address = present.get(claim.spec.address), claim.spec.address
        if claim.spec.node_name != view.node:
            continue
        leaving, held = claim.metadata.deletion_timestamp is not None, CLAIM_FINALIZER in claim.metadata.finalizers
        card = cards.get(address) if passing(claim) else None
        does = card is not None and card.claim is claim
        handed = does and function is not None and function.driver == VFIO
        if leaving and held and not handed:
            rest = [f for f in claim.metadata.finalizers if f != CLAIM_FINALIZER]
            yield _finalizers(claim, rest, "nothing of it is left to undo")
        elif not leaving and not held and does:
            yield _finalizers(claim, [*claim.metadata.finalizers, CLAIM_FINALIZER], "it has something to undo")


def _finalizers(claim: PCIDeviceClaim, rest: list[str], why: str) -> Change:
    meta = claim.metadata
    body = {"metadata": {"finalizers": rest}}
    return Change("patch", claim.TYPE.kind, claim.name, body, meta.resource_version, meta.uid, why)


def _status(view: View, found: PCIDeviceClaim | None, driver: str, handed: bool, state: State) -> PCIDeviceClaimStatus:
    """The driver to give back is the one that was seen before the function was handed out."""
    former = found.status if found is not None else PCIDeviceClaimStatus()
    return PCIDeviceClaimStatus(
        conditions=(condition(former.conditions, READY, *state, view.now),),
        observed_generation=(found.metadata.generation or 1) if found is not None else 1,
        kernel_driver_to_unbind=former.kernel_driver_to_unbind if driver == VFIO else driver,
        passthrough_enabled=handed,
    )


def _whole(of: Outcome) -> State:
    card, decision = of.card, of.decision
    leaving = card.claim is not None and card.claim.metadata.deletion_timestamp is not None
    if card.handed and not leaving:
        return TRUE, Verdict("PassedThrough", f"GPU {card.pci} is handed out whole")
    if card.gpu is None and not card.untaken and decision.intent is not None:
        return UNKNOWN, Verdict(card.reason, card.trouble)
    if decision.claim is not None:
        return FALSE, decision.claim
    text = "taken back" if leaving else "handed out"
    return FALSE, of.failure or Verdict(PENDING, f"GPU {card.pci} is being {text}")


def _beside(view: View, function: PciFunction, cards: Sequence[Card]) -> State:
    """A function that is no GPU: it goes with one, or through a VGPUDevice."""
    if function.driver == VFIO:
        return TRUE, Verdict("PassedThrough", f"{function.address} is handed out")
    if function.physfn:
        name = object_name(view.node, function.address)
        text = f"{function.address} is a virtual function: it is handed out through VGPUDevice {name}"
        return FALSE, Verdict("VirtualFunction", advice(text, f"kubectl delete pcideviceclaim {name}"))
    group = function.iommu_group
    of = next((c.name for c in cards if group is not None and c.function.iommu_group == group), "")
    text = f"{function.address} is handed out together with the GPU of its IOMMU group"
    return FALSE, Verdict("NotAGpu", advice(text, f"kubectl get pcideviceclaim {of}" if of else "aliquot show"))
