"""USB devices of a simulated node: their directories and files, and how people plug them in and out."""

from __future__ import annotations

import re
from typing import Any

from aliquot.sim.kernel.tree_entries import Dir, Entry, File, folder, text, up
from aliquot.sim.node import SimNode
from aliquot.sim.session import SimSession
from aliquot.sim.state import UsbState

CONTROLLER = "0000:00:14.0"
"""The address of the USB controller, with buses 1 and up."""
_ROOT = f"devices/pci{CONTROLLER[:7]}"
_IDS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{4})")
_FIRST_NUMBER = 2
"""Number 1 of each bus is its root hub."""


def devices(node: SimNode) -> dict[str, Entry]:
    """Return the entries of /sys/bus/usb/devices: links to root hubs and to devices."""
    found: dict[str, Entry] = {f"usb{bus}": up(3, _bus_folder(bus)) for bus in _buses(node)}
    return found | {_port(each): up(3, f"{_bus_folder(each.bus)}/{_port(each)}") for each in node.state.usb}


def controller(node: SimNode) -> Dir:
    """Return the directory of the USB controller, with a directory for each bus."""
    found: dict[str, dict[str, Entry]] = {f"usb{bus}": _root_hub(bus) for bus in _buses(node)}
    for each in node.state.usb:
        found[f"usb{each.bus}"][_port(each)] = folder(_device(each))
    return folder({name: folder(entries) for name, entries in found.items()})


def files(node: SimNode) -> dict[str, Entry]:
    """Return the entries of /dev/bus/usb."""
    found: dict[str, dict[str, Entry]] = {}
    for each in node.state.usb:
        found.setdefault(f"{each.bus:03}", {})[f"{each.number:03}"] = File(device=True)
    return {bus: folder(numbers) for bus, numbers in found.items()}


def plug(node: SimNode, _session: SimSession, request: dict[str, Any]) -> object:
    """Connect a device with ``ids`` (``0951:1666``), and a ``product`` name. Return its file.

    Its number is the next one of its bus: a device that is plugged in again gets another one.
    """
    ids, bus = str(request.get("ids") or ""), int(request.get("bus") or 1)
    found = _IDS.fullmatch(ids)
    if found is None:
        raise ValueError(f"{ids!r} are not the ids of a USB device (expected for example 0951:1666)")
    with node.lock:
        number = max((node.state.usb_numbers.get(str(bus), 0) + 1, _FIRST_NUMBER))
        node.state.usb_numbers = {**node.state.usb_numbers, str(bus): number}
        words = {name: str(request.get(name) or default) for name, default in _TEXTS.items()}
        made = UsbState(bus, number, *found.groups(), **words)
        node.state.usb = [*node.state.usb, made]
        node.files_changed()
        node.save()
    return {"path": made.path}


def unplug(node: SimNode, _session: SimSession, request: dict[str, Any]) -> object:
    """Remove the device with the file ``path``."""
    path = str(request.get("path") or "")
    with node.lock:
        staying = [each for each in node.state.usb if each.path != path]
        if len(staying) == len(node.state.usb):
            known = ", ".join(each.path for each in staying) or "none"
            raise ValueError(f"no USB device {path!r} on {node.state.name}; plugged in: {known}")
        node.state.usb = staying
        node.files_changed()
        node.save()
    return {}


_TEXTS = {"product": "", "manufacturer": "", "klass": "08"}


def _buses(node: SimNode) -> list[int]:
    return sorted({1, *(each.bus for each in node.state.usb)})


def _bus_folder(bus: int) -> str:
    return f"{_ROOT}/{CONTROLLER}/usb{bus}"


def _port(device: UsbState) -> str:
    """Return the kernel's name of a device: its bus, and the port, which is here that of its number."""
    return f"{device.bus}-{device.number}"


def _root_hub(bus: int) -> dict[str, Entry]:
    return _entries(UsbState(bus, 1, "1d6b", "0002", product="xHCI Host Controller", klass="09"), "09")


def _device(device: UsbState) -> dict[str, Entry]:
    """Return a device's entries. Its class is that of its only interface."""
    interface = folder({"bInterfaceClass": text(f"{device.klass}\n")})
    return _entries(device, "00") | {f"{_port(device)}:1.0": interface}


def _entries(device: UsbState, klass: str) -> dict[str, Entry]:
    event = (
        f"MAJOR=189\nDEVNAME=bus/usb/{device.bus:03}/{device.number:03}\nDEVTYPE=usb_device\nDRIVER=usb\n"
        f"PRODUCT={int(device.vendor, 16):x}/{int(device.id, 16):x}/110\nTYPE=0/0/0\n"
        f"BUSNUM={device.bus:03}\nDEVNUM={device.number:03}\n"
    )
    found: dict[str, Entry] = {
        "uevent": text(event),
        "idVendor": text(f"{device.vendor}\n"),
        "idProduct": text(f"{device.id}\n"),
        "bDeviceClass": text(f"{klass}\n"),
        "busnum": text(f"{device.bus}\n"),
        "devnum": text(f"{device.number}\n"),
    }
    for name in ("product", "manufacturer"):
        if getattr(device, name):
            found[name] = text(f"{getattr(device, name)}\n")
    return found
