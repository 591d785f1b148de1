"""The input of decisions about Harvester's objects: a node's hardware and objects at one moment, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.pci import PciFunction
from aliquot.core.model.peripherals import Peripherals
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.harvester_peripherals import SRIOVNetworkDevice, USBDevice, USBDeviceClaim
from aliquot.kubernetes.virtual_machines.harvester.reasons import ObjectReason

JSON = dict[str, Any]


class Objects(msgspec.Struct, frozen=True):
    """The objects of a node, by name."""

    gpus: Mapping[str, SRIOVGPUDevice] = {}
    vgpus: Mapping[str, VGPUDevice] = {}
    migs: Mapping[str, MigConfiguration] = {}
    functions: Mapping[str, PCIDevice] = {}
    claims: Mapping[str, PCIDeviceClaim] = {}
    usb: Mapping[str, USBDevice] = {}
    usb_claims: Mapping[str, USBDeviceClaim] = {}
    """Those of all nodes: a new claim does not name its node."""
    network: Mapping[str, SRIOVNetworkDevice] = {}


class NodeView(msgspec.Struct, frozen=True):
    """An observation of a node."""

    node: str
    boot: str
    """The id of this boot."""
    now: float
    """Wall time for conditions, in seconds."""
    functions: tuple[PciFunction, ...] = ()
    """NVIDIA's functions and their IOMMU group peers, or the whole bus; reading them needs no driver."""
    all_devices: bool = False
    """``functions`` has the whole bus, and the agent serves the functions of all vendors."""
    inventory: Inventory | None = None
    """None while no driver answers."""
    reason: ObjectReason = ""
    """Why no driver answers."""
    driver_error: str = ""
    """The sentence for ``reason``."""
    peripherals: Peripherals | None = None
    """USB devices and network ports; None if the agent does not serve them."""
    allocated: Mapping[str, str] = {}
    """The pods (``namespace/name``) that have devices from kubelet, by the devices' ids in our resources."""
    kubelet_error: str = ""
    """Why ``allocated`` is not known."""


class Result(msgspec.Struct, frozen=True):
    """The result of the last attempt to apply a GPU's desired state."""

    attempt: str
    """The digest of the intent that was tried. The result says nothing about another intent."""
    ok: bool
    reason: ObjectReason
    """A condition reason (``Applied``, ``Held``, ``NoInstance``, ``HardwareRefused``)."""
    message: str = ""
    """A sentence with the next command."""


class Intent(msgspec.Struct, frozen=True):
    """The desired state of a GPU, or the reason why nothing is done."""

    pci: str
    desired: DesiredGpu | None = None
    """None to leave the GPU alone."""
    reason: ObjectReason = ""
    message: str = ""
    applies: tuple[str, ...] = ()
    """The MigConfigurations whose ``appliedBoot`` becomes this boot after the change."""


class ObjectChange(msgspec.Struct, frozen=True):
    """A write to the API server."""

    verb: str
    """``create``, ``patch`` (merge patch of metadata and spec), ``status`` (merge patch of only the status) or
    ``delete``.
    """
    kind: str
    name: str
    body: JSON = {}
    version: str = ""
    """The resourceVersion that the change is based on; empty if it does not matter."""
    uid: str = ""
    why: str = ""
