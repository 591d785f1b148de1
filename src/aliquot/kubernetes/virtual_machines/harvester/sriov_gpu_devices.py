"""SRIOVGPUDevices: the GPUs that can have virtual functions."""

from __future__ import annotations

from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice, SRIOVGPUDeviceSpec, SRIOVGPUDeviceStatus, passing
from aliquot.kubernetes.kinds.harvester_names import NODE_LABEL, object_name
from aliquot.kubernetes.virtual_machines.harvester.conditions import FALSE, PENDING, READY, TRUE, UNKNOWN, condition
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import Outcome
from aliquot.kubernetes.virtual_machines.harvester.node_view import View
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, labels
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import Card
from aliquot.kubernetes.virtual_machines.harvester.reasons import Verdict, advice

GONE = "GpuMissing"


def draft(view: View, of: Outcome) -> Draft | None:
    """What the object of a GPU says; None for a GPU that gets none: it can have no virtual functions, or is about to be
    handed out. A new one takes its wish from what is.
    """
    card = of.card
    present = card.function.virtual
    if not able(card) or (card.device is None and passing(card.claim) and not present):
        return None
    status, why = _ready(of)
    return Draft(
        kind=SRIOVGPUDevice,
        name=card.name,
        spec=SRIOVGPUDeviceSpec(address=card.pci, node_name=view.node, enabled=bool(present)),
        status=_status(view, card.device, status, why, present),
        labels=labels({NODE_LABEL: view.node}),
        why=f"GPU {card.pci} can have virtual functions",
    )


def able(card: Card) -> bool:
    """Whether the GPU can have virtual functions; of one that is handed out it cannot be told."""
    return card.function.sriov or (card.handed and card.device is not None)


def missing(view: View, found: SRIOVGPUDevice) -> Draft:
    """The object of a GPU that is not there any more, although it should be shared: the wish outlasts a GPU that is
    gone for a while.
    """
    if found.name != (name := object_name(view.node, found.spec.address)):
        text = f"the object of GPU {found.spec.address} is {name}: this one is nobody's"
        why = Verdict("Misnamed", advice(text, f"kubectl delete sriovgpudevice {found.name}"))
        status = _status(view, found, FALSE, why, ())
        return Draft(SRIOVGPUDevice, found.name, found.spec, status, labels({NODE_LABEL: view.node}))
    text = f"there is no GPU with SR-IOV at {found.spec.address}: the wish is kept until it is back"
    step = f'kubectl patch sriovgpudevice {found.name} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
    why = Verdict(GONE, advice(text, f"{step} (if it was taken out for good)"))
    status = _status(view, found, FALSE, why, ())
    return Draft(SRIOVGPUDevice, found.name, found.spec, status, labels({NODE_LABEL: view.node}))


def _status(
    view: View, found: SRIOVGPUDevice | None, status: str, why: Verdict, present: tuple[str, ...]
) -> SRIOVGPUDeviceStatus:
    former = found.status.conditions if found is not None else ()
    return SRIOVGPUDeviceStatus(
        conditions=(condition(former, READY, status, why, view.now),),
        observed_generation=found.metadata.generation if found is not None else 1,
        vf_addresses=present,
        vgpu_devices=tuple(object_name(view.node, address) for address in present),
    )


def _ready(of: Outcome) -> tuple[str, Verdict]:
    card, decision, failure = of.card, of.decision, of.failure
    present = card.function.virtual
    wanted = card.enabled if card.device is not None else bool(present)
    if not wanted and not present:
        return TRUE, Verdict("Disabled", "virtual functions are off, as wished")
    if card.gpu is None:
        return UNKNOWN, Verdict(card.reason, card.trouble)
    if decision.device is not None:
        return FALSE, decision.device
    if not wanted:
        return FALSE, failure or Verdict(PENDING, "virtual functions are being switched off")
    if not present:
        return FALSE, failure or Verdict(PENDING, "virtual functions are being switched on")
    if decision.mig is not None and card.gpu.mig.enabled != decision.mig:
        mode = "on" if decision.mig else "off"
        return FALSE, failure or Verdict(PENDING, f"MIG mode is being switched {mode}")
    mig = f", MIG mode {'on' if card.gpu.mig.enabled else 'off'}" if card.gpu.mig.capable else ""
    return TRUE, Verdict("Enabled", f"{len(present)} virtual functions{mig}")
