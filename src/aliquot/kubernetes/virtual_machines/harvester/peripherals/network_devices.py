"""SRIOVNetworkDevices: network ports that can have virtual functions, and the number of them that is requested.

A port that carries the host's traffic has no object, as in Harvester. Functions that exist before the object are taken
over with it. Functions that another program made later are only reported, unless the object has
``aliquot.dev/untracked: delete``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from aliquot.core.model.peripherals import NetworkPort
from aliquot.kubernetes.kinds.harvester_names import NODE_LABEL, UNTRACKED_ANNOTATION, object_name
from aliquot.kubernetes.kinds.harvester_peripherals import (
    FUNCTIONS_DISABLED,
    FUNCTIONS_ENABLED,
    INTERFACE_ANNOTATION,
    NetworkState,
    SRIOVNetworkDevice,
    SRIOVNetworkDeviceSpec,
    SRIOVNetworkDeviceStatus,
    port_name,
)
from aliquot.kubernetes.virtual_machines.harvester.conditions import ConditionState, condition
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects, Result
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, labels
from aliquot.kubernetes.virtual_machines.harvester.reasons import HELD, PENDING, ObjectVerdict, join_names


class FunctionCount(msgspec.Struct, frozen=True):
    """A number of virtual functions to set."""

    address: str
    count: int

    @property
    def digest(self) -> str:
        return f"{self.address} {self.count}"


def requests(view: NodeView, objects: Objects) -> tuple[FunctionCount, ...]:
    """Return the numbers of virtual functions that differ from what is requested and may be set now."""
    found = []
    for name, port in _ports(view).items():
        device = objects.network.get(name)
        if device is not None and _differs(device, port) and _refusal(view, objects, device, port) is None:
            found.append(FunctionCount(port.address, device.spec.num_vfs))
    return tuple(found)


def drafts(view: NodeView, objects: Objects, results: Mapping[str, Result]) -> Iterator[Draft]:
    """Yield the drafts. ``results`` are the last attempts by PCI address."""
    ports = _ports(view)
    for name, port in ports.items():
        device = objects.network.get(name)
        if device is None and port.traffic:
            continue
        if device is None or not _is_obsolete(device, port):
            yield _draft(view, objects, name, port, results.get(port.address))
    for name, device in _own_objects(view, objects).items():
        if name not in ports and device.spec.num_vfs:
            text = f"node {view.node} has no port {name} now: the request is kept until it is back"
            why = ObjectVerdict("Missing", text, f"kubectl delete sriovnetworkdevice {name} (if it is gone for good)")
            status = _status(view, device, (), "", ("False", why))
            yield Draft(SRIOVNetworkDevice, name, device.spec, status)


def objects_to_delete(view: NodeView, objects: Objects) -> Iterator[SRIOVNetworkDevice]:
    """Yield the objects without a request whose port is gone, or carries the host's traffic now."""
    ports = _ports(view)
    for name, device in _own_objects(view, objects).items():
        gone = name not in ports and not device.spec.num_vfs
        if gone or (name in ports and _is_obsolete(device, ports[name])):
            yield device


def _ports(view: NodeView) -> dict[str, NetworkPort]:
    found = view.peripherals.ports if view.peripherals is not None else ()
    return {port_name(view.node, each.interface): each for each in found}


def _own_objects(view: NodeView, objects: Objects) -> dict[str, SRIOVNetworkDevice]:
    if view.peripherals is None:
        return {}
    return {name: each for name, each in sorted(objects.network.items()) if each.spec.node_name == view.node}


def _is_obsolete(device: SRIOVNetworkDevice, port: NetworkPort) -> bool:
    return bool(port.traffic) and not device.spec.num_vfs and not port.functions


def _differs(device: SRIOVNetworkDevice, port: NetworkPort) -> bool:
    return device.metadata.deletion_timestamp is None and device.spec.num_vfs != len(port.functions)


def _refusal(view: NodeView, objects: Objects, device: SRIOVNetworkDevice, port: NetworkPort) -> ObjectVerdict | None:
    """Return why the number of functions must not change now; None if it may.

    The kernel changes it only by removing all functions, so one that is in use keeps all of them.
    """
    wanted, show = device.spec.num_vfs, f"kubectl get sriovnetworkdevice {device.name} -o yaml"
    if port.address != device.spec.address:
        text = f"{port.interface} is at {port.address} now, and this object names {device.spec.address}"
        return ObjectVerdict("Misnamed", text, f"kubectl delete sriovnetworkdevice {device.name}")
    if not 0 <= wanted <= port.total:
        text = f"{port.interface} has at most {port.total} virtual functions: {wanted} cannot be set"
        return ObjectVerdict("NotCapable", text, f"kubectl edit sriovnetworkdevice {device.name}")
    if _is_untracked(device, port) and device.metadata.annotations.get(UNTRACKED_ANNOTATION) != "delete":
        text = f"{len(port.functions)} virtual functions of {port.interface} were made by another program"
        step = f"kubectl annotate sriovnetworkdevice {device.name} {UNTRACKED_ANNOTATION}=delete"
        return ObjectVerdict("Untracked", text, step)
    if port.traffic:
        text = f"{port.interface} carries traffic of the host ({port.traffic}), which a change would interrupt"
        return ObjectVerdict(HELD, text, f"ip link show {port.interface}")
    claims = _claims_on(view, objects, port)
    if claims:
        text = f"virtual functions of {port.interface} are claimed: {join_names(claims)}"
        return ObjectVerdict("Claimed", text, f"kubectl delete pcideviceclaim {' '.join(claims[:4])}")
    users = [f"{each.address} ({each.user})" for each in port.functions if each.user]
    if users:
        return ObjectVerdict(HELD, f"virtual functions of {port.interface} are in use: {join_names(users)}", show)
    return None


def _claims_on(view: NodeView, objects: Objects, port: NetworkPort) -> list[str]:
    addresses = {each.address for each in port.functions}
    return [
        name
        for name, claim in sorted(objects.claims.items())
        if claim.spec.node_name == view.node and claim.spec.address in addresses
    ]


def _draft(view: NodeView, objects: Objects, name: str, port: NetworkPort, result: Result | None) -> Draft:
    found = objects.network.get(name)
    addresses = tuple(each.address for each in port.functions)
    spec = SRIOVNetworkDeviceSpec(address=port.address, node_name=view.node, num_vfs=len(addresses))
    state: NetworkState = FUNCTIONS_ENABLED if addresses else FUNCTIONS_DISABLED
    if found is not None and _is_untracked(found, port):
        state = FUNCTIONS_DISABLED
    return Draft(
        kind=SRIOVNetworkDevice,
        name=name,
        spec=spec,
        status=_status(view, found, addresses, state, _state(view, objects, found, port, result)),
        labels=labels({NODE_LABEL: view.node}),
        annotations={INTERFACE_ANNOTATION: port.interface},
        why=f"{port.interface} can have {port.total} virtual functions",
    )


def _is_untracked(device: SRIOVNetworkDevice, port: NetworkPort) -> bool:
    """Report whether others made the functions of a port: the request is 0, and was already met."""
    return bool(port.functions) and not device.spec.num_vfs and device.status.state != FUNCTIONS_ENABLED


def _state(
    view: NodeView, objects: Objects, device: SRIOVNetworkDevice | None, port: NetworkPort, result: Result | None
) -> ConditionState:
    count = len(port.functions)
    if device is None or not _differs(device, port):
        text = f"{port.interface} has {count} of at most {port.total} virtual functions"
        return "True", ObjectVerdict("Enabled" if count else "Disabled", text)
    refusal = _refusal(view, objects, device, port)
    if refusal is not None:
        return "False", refusal
    request = FunctionCount(port.address, device.spec.num_vfs)
    if result is not None and not result.ok and result.attempt == request.digest:
        return "False", ObjectVerdict(result.reason, result.message)
    return "False", ObjectVerdict(PENDING, f"{device.spec.num_vfs} virtual functions are being set")


def _status(
    view: NodeView,
    found: SRIOVNetworkDevice | None,
    addresses: tuple[str, ...],
    state: NetworkState | Literal[""],
    ready: ConditionState,
) -> SRIOVNetworkDeviceStatus:
    previous = found.status if found is not None else SRIOVNetworkDeviceStatus()
    return SRIOVNetworkDeviceStatus(
        conditions=(condition(previous.conditions, "Ready", *ready, view.now),),
        observed_generation=(found.metadata.generation or 1) if found is not None else 1,
        vf_addresses=addresses,
        vf_pci_devices=tuple(object_name(view.node, each) for each in addresses),
        state=state or previous.state,
    )
