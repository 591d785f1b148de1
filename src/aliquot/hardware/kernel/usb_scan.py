"""A scan of the USB buses, from files alone.

Root hubs are omitted, as in Harvester: they are part of their controller. Other hubs are listed.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import cache

from aliquot.core.model.peripherals import UsbDevice
from aliquot.errors import HardwareError
from aliquot.hardware.kernel.function_users import usb_uses
from aliquot.hardware.kernel.pci_ids import PciNames
from aliquot.hardware.kernel.sysfs import is_absent, list_names, read_optional
from aliquot.hardware.kernel_files import KernelFiles

DEVICES = "/sys/bus/usb/devices"
USB_IDS = ("/usr/share/hwdata/usb.ids", "/usr/share/misc/usb.ids", "/var/lib/usbutils/usb.ids")
"""Paths of the database of USB names, which has the format of ``pci.ids``; the first that exists is used."""
_BY_INTERFACE = "00"
_IDENTITY = {"DEVNAME", "BUSNUM", "DEVNUM"}
_CLASSES = {
    "01": "Audio",
    "02": "Communications",
    "03": "HID",
    "05": "Physical",
    "06": "Image",
    "07": "Printer",
    "08": "Mass Storage",
    "09": "Hub",
    "0a": "CDC-Data",
    "0b": "Smart Card",
    "0d": "Content Security",
    "0e": "Video",
    "0f": "Personal Healthcare",
    "10": "Audio/Video",
    "11": "Billboard",
    "12": "USB Type-C Bridge",
    "13": "USB Bulk Display Protocol",
    "14": "MCTP over USB",
    "3c": "I3C Device",
    "dc": "Diagnostic",
    "e0": "Wireless Controller",
    "ef": "Miscellaneous",
    "fe": "Application Specific",
    "ff": "Vendor Specific",
}
"""The names of USB-IF's base classes, in the spelling of Harvester."""


def scan_usb(
    files: KernelFiles, id_names: PciNames | None = None, node_addresses: Collection[str] = ()
) -> tuple[UsbDevice, ...]:
    """Return the USB devices in the order of their files. A device that disappears during the scan is omitted.

    ``node_addresses`` are the IP addresses by which the cluster reaches this node. Raises HardwareError if a device
    cannot be read: it must not be reported as unplugged.
    """
    names_of = id_names or usb_names()
    found = []
    try:
        for name in list_names(files, DEVICES):
            if not name.startswith("usb") and ":" not in name:
                found.append(_device(files, name, names_of, node_addresses))
    except (OSError, ValueError) as failure:
        path = getattr(failure, "filename", None) or DEVICES
        reason = getattr(failure, "strerror", None) or str(failure)
        raise HardwareError(f"the USB devices cannot be read: {reason}", next_step=f"ls -l {path}") from failure
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.path))


@cache
def usb_names(paths: tuple[str, ...] = USB_IDS) -> PciNames:
    """Return the names of the host's database of USB ids, if it has one. It is read once."""
    for path in paths:
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as stream:
                return PciNames([stream.read()])
    return PciNames([])


def _device(files: KernelFiles, port: str, names_of: PciNames, node_addresses: Collection[str]) -> UsbDevice | None:
    """Return the device of a directory, or None if it is none or disappeared since it was listed."""
    folder = f"{DEVICES}/{port}"
    fields = _event_fields(read_optional(files, f"{folder}/uevent") or "")
    numbers = fields.get("PRODUCT", "").split("/")
    if not fields.keys() >= _IDENTITY or len(numbers) != 3:
        return None
    vendor, product = (f"{int(number, 16):04x}" for number in numbers[:2])
    try:
        link = files.link(folder)
    except OSError as failure:
        if is_absent(failure):
            return None
        raise
    return UsbDevice(
        vendor_id=vendor,
        product_id=product,
        bus=int(fields["BUSNUM"]),
        number=int(fields["DEVNUM"]),
        path=f"/dev/{fields['DEVNAME']}",
        controller=_controller(link),
        description=_description(files, folder, (vendor, product), names_of),
        class_type=_class_name(files, folder),
        user="; ".join(usb_uses(files, port, node_addresses)),
    )


def _event_fields(text: str) -> dict[str, str]:
    rows = (row.partition("=") for row in text.splitlines())
    return {key: value for key, sign, value in rows if sign}


def _controller(link: str) -> str:
    """Return the PCI address in a device's path: ``.../0000:00:14.0/usb1/1-2``."""
    above, found, _ = link.partition("/usb")
    return above.rpartition("/")[2] if found else ""


def _description(files: KernelFiles, folder: str, ids: tuple[str, str], names_of: PciNames) -> str:
    """Return the names of the database, then the name that the device itself reports in brackets, as in Harvester.

    Without the database, the device's own manufacturer takes the place of the vendor.
    """
    vendor = names_of.vendor(ids[0]) or read_optional(files, f"{folder}/manufacturer") or ""
    product = names_of.product(*ids)
    known = f"{product or 'Unknown'} ({vendor})" if vendor else f"Unknown {ids[0]}:{ids[1]}"
    reported = read_optional(files, f"{folder}/product") or ""
    return f"{known} [{reported}]" if reported else known


def _class_name(files: KernelFiles, folder: str) -> str:
    """Return the name of the device's class. Class 00 leaves the class to the interfaces: the first one counts."""
    code = (read_optional(files, f"{folder}/bDeviceClass") or "").lower()
    if code == _BY_INTERFACE:
        interfaces = sorted(name for name in list_names(files, folder) if ":" in name)
        codes = (read_optional(files, f"{folder}/{name}/bInterfaceClass") for name in interfaces)
        code = next((each.lower() for each in codes if each), "")
    return _CLASSES.get(code, f"Unknown (0x{code})") if code else ""
