"""The kinds of ``devices.harvesterhci.io/v1beta1`` for USB devices and for network ports with virtual functions.

Source: harvester/pcidevices, pkg/apis, pkg/controller/usbdevice and pkg/util/nichelper (fields, names, values).
A node's agent serves them if it serves all devices. Aliquot adds ``conditions`` and ``observedGeneration``.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import msgspec

from aliquot.core.model.stored import Stored
from aliquot.kubernetes.client.object_base import KubeObject, ResourceType
from aliquot.kubernetes.kinds.harvester import GROUP, KINDS, VERSION, HarvesterSpec, HarvesterStatus

USB_FINALIZER = "wrangler.cattle.io/usbClaimClient-device-claim-remove"
USB_ENV = "USB_RESOURCE"
USB_DOMAIN = "kubevirt.io"
USB_DEVICES_FOLDER = "/dev/bus/usb"
QEMU_USER: Final = 107
"""The user and group of QEMU in a launcher, which must own the file of a USB device."""
UsbState = Literal["orphaned"]
ORPHANED: Final = "orphaned"

INTERFACE_ANNOTATION = "sriov.devices.harvesterhi.io/interface-name"
"""On an SRIOVNetworkDevice: the name of the interface. The domain lacks a letter, as in Harvester."""
NetworkState = Literal["sriovNetworkDeviceDisabled", "sriovNetworkDeviceEnabled"]
FUNCTIONS_DISABLED: Final = "sriovNetworkDeviceDisabled"
FUNCTIONS_ENABLED: Final = "sriovNetworkDeviceEnabled"


def _type(plural: str, kind: str) -> ResourceType:
    return ResourceType(GROUP, VERSION, plural, kind, namespaced=False)


class USBDeviceStatus(HarvesterStatus, frozen=True):
    vendor_id: str = msgspec.field(name="vendorID", default="")
    """Four hex digits, lower case."""
    product_id: str = msgspec.field(name="productID", default="")
    """Four hex digits, lower case."""
    node_name: str = ""
    resource_name: str = ""
    """The resource of this one device: ``kubevirt.io/`` and the object's name."""
    device_path: str = ""
    """``/dev/bus/usb/001/004``."""
    description: str = ""
    pci_address: str = ""
    """The address of the USB controller to which the device is connected."""
    class_type: str = ""
    """The name of the USB class (``Mass Storage``)."""
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether a claim passes the device through. It is written also if False, as in Harvester."""
    state: Stored[UsbState | Literal[""]] = msgspec.field(name="status", default="")
    """``orphaned`` while a claimed device is unplugged."""
    message: str = ""


class USBDevice(KubeObject, frozen=True):
    """A USB device of a node."""

    TYPE: ClassVar[ResourceType] = _type("usbdevices", "USBDevice")

    status: USBDeviceStatus = USBDeviceStatus()


class USBDeviceClaimSpec(HarvesterSpec, frozen=True):
    user_name: str = ""


class USBDeviceClaimStatus(HarvesterStatus, frozen=True):
    node_name: str = ""
    pci_address: str = ""
    """The address of the USB controller to which the device is connected."""


class USBDeviceClaim(KubeObject, frozen=True):
    """A request to pass a USB device through to a VM. It has the name of its USBDevice."""

    TYPE: ClassVar[ResourceType] = _type("usbdeviceclaims", "USBDeviceClaim")

    spec: USBDeviceClaimSpec = USBDeviceClaimSpec()
    status: USBDeviceClaimStatus = USBDeviceClaimStatus()


class SRIOVNetworkDeviceSpec(HarvesterSpec, frozen=True):
    address: str = ""
    """The PCI address of the port."""
    node_name: str = ""
    num_vfs: int = msgspec.field(name="numVFs", default=0)


class SRIOVNetworkDeviceStatus(HarvesterStatus, frozen=True):
    vf_addresses: tuple[str, ...] = ()
    """In the lexical order of ``virtfn*``."""
    vf_pci_devices: tuple[str, ...] = msgspec.field(name="vfPCIDevices", default=())
    """Object names, in the order of ``vf_addresses``."""
    state: Stored[NetworkState | Literal[""]] = msgspec.field(name="status", default="")


class SRIOVNetworkDevice(KubeObject, frozen=True):
    """A network port that supports virtual functions, with the number of them that is requested."""

    TYPE: ClassVar[ResourceType] = _type("sriovnetworkdevices", "SRIOVNetworkDevice")

    spec: SRIOVNetworkDeviceSpec = SRIOVNetworkDeviceSpec()
    status: SRIOVNetworkDeviceStatus = SRIOVNetworkDeviceStatus()


PERIPHERAL_KINDS: tuple[type[KubeObject], ...] = (USBDevice, USBDeviceClaim, SRIOVNetworkDevice)
ALL_KINDS: tuple[type[KubeObject], ...] = (*KINDS, *PERIPHERAL_KINDS)


def usb_name(node: str, vendor: str, product: str, device_path: str) -> str:
    """Return the name of a USB device's objects: ``node-0951-1666-001004`` for ``/dev/bus/usb/001/004``."""
    return f"{node}-{vendor}-{product}-{device_path.removeprefix(USB_DEVICES_FOLDER).replace('/', '')}"


def usb_resource(name: str) -> str:
    """Return the resource of the USB device with this object name."""
    return f"{USB_DOMAIN}/{name}"


def port_name(node: str, interface: str) -> str:
    """Return the name of a port's object: ``node-ens1f0``."""
    return f"{node}-{interface}".lower()


def serves_usb(device: USBDevice) -> bool:
    """Report whether the agents serve a USB device: only they write conditions."""
    return bool(device.status.conditions)
