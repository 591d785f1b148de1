"""PCI functions other than GPUs on a node whose agent serves all devices: network cards, disks, controllers.

Each is claimed and bound by itself. GPUs, the rest of their boards and their virtual functions are decided elsewhere
(``gpu_decision``): they have states that a binding would destroy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from aliquot.core.model.pci import PciFunction
from aliquot.errors import Message
from aliquot.kubernetes.gpu.reasons import reason_word
from aliquot.kubernetes.kinds.harvester import NVIDIA, PCIDeviceClaim, passes_through
from aliquot.kubernetes.kinds.harvester_names import CLAIM_FINALIZER, DRIVER_ANNOTATION, object_name
from aliquot.kubernetes.kinds.harvester_peripherals import port_name
from aliquot.kubernetes.virtual_machines.harvester.conditions import ConditionState
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects, Result
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import VFIO
from aliquot.kubernetes.virtual_machines.harvester.reasons import PENDING, ObjectVerdict, join_names

_HARVESTER_UPLINKS = ("-bo", "-br")
"""How Harvester's network controller ends the names of its bonds and bridges (``mgmt-bo``, ``mgmt-br``)."""
_NETWORK = "02"
_HARMLESS = ("", VFIO, "pci-stub", "pcieport")
"""Drivers that do not keep VFIO from using the rest of an IOMMU group (Linux, drivers/vfio)."""


class FunctionBinding(msgspec.Struct, frozen=True):
    """A change of the driver of a function."""

    address: str
    on: bool
    """True to bind it to vfio-pci, False to give it back to its driver."""
    driver: str = ""
    """The driver to give it back to; "" for any that accepts it."""

    @property
    def digest(self) -> str:
        """Identifies the change. A failed attempt says nothing about one with another digest."""
        return f"bind {self.address}" if self.on else f"release {self.address} to {self.driver}"


def other_functions(view: NodeView) -> dict[str, PciFunction]:
    """Return these functions by address; none unless the agent serves all devices."""
    if not view.all_devices:
        return {}
    gpus = {f.address for f in view.functions if f.gpu}
    boards = {(NVIDIA, _slot(address)) for address in gpus}
    found = (f for f in view.functions if f.physfn not in gpus and (f.vendor_id, _slot(f.address)) not in boards)
    return {f.address: f for f in found}


def is_listed(function: PciFunction) -> bool:
    """Report whether a function gets a PCIDevice, as with pcidevices: not those of Harvester's own networks, and not
    network cards whose virtual functions are in use.
    """
    is_shared = function.class_id.startswith(_NETWORK) and bool(function.virtual)
    return not (is_shared or function.uplink.endswith(_HARVESTER_UPLINKS))


def bindings(view: NodeView, objects: Objects) -> Iterator[FunctionBinding]:
    """Yield the changes that the claims of these functions need now, by the names of the claims.

    A claim without our finalizer could vanish, and its function would stay bound: it waits for the finalizer.
    """
    functions = other_functions(view)
    for name, claim in sorted(objects.claims.items()):
        function = functions.get(claim.spec.address)
        if function is None or not is_own(view, claim):
            continue
        bound = function.driver == VFIO
        if CLAIM_FINALIZER not in claim.metadata.finalizers:
            continue
        if claim.metadata.deletion_timestamp is None:
            if not bound:
                yield FunctionBinding(function.address, True)
        elif bound:
            device = objects.functions.get(name)
            first = device.metadata.annotations.get(DRIVER_ANNOTATION, "") if device is not None else ""
            driver = next((d for d in (claim.status.kernel_driver_to_unbind, first) if d not in ("", VFIO)), "")
            yield FunctionBinding(function.address, False, driver)


def is_own(view: NodeView, claim: PCIDeviceClaim) -> bool:
    """Report whether a claim passes a function of this node through, and has the function's name."""
    named = claim.name == object_name(view.node, claim.spec.address)
    return named and claim.spec.node_name == view.node and passes_through(claim)


def busy_peers(view: NodeView, function: PciFunction) -> tuple[PciFunction, ...]:
    """Return the members of a function's IOMMU group whose drivers keep VFIO from giving the group to a VM."""
    group = function.iommu_group
    members = [f for f in view.functions if f.iommu_group == group] if group is not None else []
    return tuple(f for f in members if f.driver not in _HARMLESS)


def binding_state(
    view: NodeView, function: PciFunction, claim: PCIDeviceClaim, results: Mapping[str, Result]
) -> ConditionState:
    """Return the state of a claim on such a function. ``results`` are those of the last attempts, by address."""
    leaving = claim.metadata.deletion_timestamp is not None
    if function.driver == VFIO and not leaving:
        peers = busy_peers(view, function)
        if not peers:
            return "True", ObjectVerdict("PassedThrough", f"{function.address} is passed through")
        names = join_names(f"{peer.address} ({peer.driver})" for peer in peers)
        text = f"{function.address} is bound, but no VM can have it: it shares its IOMMU group with {names}"
        step = f"claim these too; see kubectl get pcidevice {object_name(view.node, peers[0].address)}"
        return "False", ObjectVerdict(reason_word("IOMMU_GROUP"), text, step)
    result = results.get(function.address)
    if result is not None and not result.ok:
        return "False", _failure(view, function, result)
    text = f"{function.address} is being {'taken back' if leaving else 'passed through'}"
    return "False", ObjectVerdict(PENDING, text)


def _failure(view: NodeView, function: PciFunction, result: Result) -> ObjectVerdict:
    """Return why the last attempt failed. The functions of a network port go by its object."""
    ports = view.peripherals.ports if view.peripherals is not None else ()
    port = next((each for each in ports if each.address == function.address and each.functions), None)
    if port is None or port.traffic:
        return ObjectVerdict(result.reason, result.message)
    step = f"kubectl patch sriovnetworkdevice {port_name(view.node, port.interface)} --type merge -p " + (
        """'{"spec":{"numVFs":0}}'"""
    )
    return ObjectVerdict(result.reason, Message.parse(result.message).sentence, step)


def _slot(address: str) -> str:
    return address.rpartition(".")[0]
