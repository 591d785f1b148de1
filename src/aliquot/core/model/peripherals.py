"""USB devices, and network ports that can have virtual functions, as the kernel shows them."""

from __future__ import annotations

import msgspec


class UsbDevice(msgspec.Struct, frozen=True):
    """A USB device, without the root hubs of the controllers."""

    vendor_id: str
    """Four hex digits in lower case. The same holds for ``product_id``."""
    product_id: str
    bus: int
    number: int
    """The number of the device on its bus. A device that is plugged in again gets another one."""
    path: str
    """Its file: ``/dev/bus/usb/001/004``."""
    controller: str = ""
    """The PCI address of the USB controller; "" for one that is not a PCI function."""
    description: str = ""
    class_type: str = ""
    """The name of its class, or of its first interface's class (``Mass Storage``)."""
    user: str = ""
    """What on the host needs it, or what is plugged into it (``sdb1 is mounted on /data``); "" if nothing does."""


class NetworkFunction(msgspec.Struct, frozen=True):
    """A virtual function of a network port."""

    address: str
    user: str = ""
    """What uses it, as the end of a sentence (``driver vfio-pci``); "" if nothing does."""


class NetworkPort(msgspec.Struct, frozen=True):
    """A physical network port that can have virtual functions."""

    interface: str
    address: str
    """The PCI address."""
    total: int
    """The largest possible number of virtual functions."""
    functions: tuple[NetworkFunction, ...] = ()
    """In the lexical order of ``virtfn*``."""
    traffic: str = ""
    """What carries the host's traffic over it, as the end of a sentence (``bond mgmt-bo``); "" if nothing does."""


class Peripherals(msgspec.Struct, frozen=True):
    """The devices of a host that are neither GPUs nor PCI functions to pass through."""

    usb: tuple[UsbDevice, ...] = ()
    ports: tuple[NetworkPort, ...] = ()
