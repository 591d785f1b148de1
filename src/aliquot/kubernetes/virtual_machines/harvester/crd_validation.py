"""The validation rules of the kinds' fields, and the columns that ``kubectl get`` shows.

Columns and their spelling are those of harvester/pcidevices, pkg/crd/crd.go: scripts and people read them. Harvester
has no validation rules. Ours reject values that no agent could apply, and accept everything that Harvester writes.
"""

from __future__ import annotations

from typing import Any, get_args

from aliquot.kubernetes.client.object_base import Condition, KubeObject
from aliquot.kubernetes.kinds import harvester as kinds
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds import harvester_peripherals as peripherals
from aliquot.kubernetes.kinds.vgpu_pools import VGPUPool, VGPUPoolSpec, VGPUPoolStatus
from aliquot.kubernetes.virtual_machines.harvester.conditions import ConditionStatus

JSON = dict[str, Any]
MOST_IN_POOL = 4096

COLUMNS: dict[type[KubeObject], tuple[tuple[str, str], ...]] = {
    kinds.PCIDevice: (
        ("Address", ".status.address"),
        ("Vendor Id", ".status.vendorId"),
        ("Device Id", ".status.deviceId"),
        ("Node Name", ".status.nodeName"),
        ("Description", ".status.description"),
        ("Kernel Driver In Use", ".status.kernelDriverInUse"),
    ),
    kinds.PCIDeviceClaim: (
        ("Address", ".spec.address"),
        ("Node Name", ".spec.nodeName"),
        ("User Name", ".spec.userName"),
        # The first two letters of the third word are Greek, as in Harvester.
        ("Kernel Driver \u03a4\u03bf Unbind", ".status.kernelDriverToUnbind"),
        ("Passthrough Enabled", ".status.passthroughEnabled"),
    ),
    kinds.SRIOVGPUDevice: (
        ("Address", ".spec.address"),
        ("Node Name", ".spec.nodeName"),
        ("Enabled", ".spec.enabled"),
        ("VGPUDevices", ".status.vGPUDevices"),
    ),
    kinds.VGPUDevice: (
        ("Address", ".spec.address"),
        ("Node Name", ".spec.nodeName"),
        ("Enabled", ".spec.enabled"),
        ("UUID", ".status.uuid"),
        ("VGPUType", ".status.configureVGPUTypeName"),
        ("ParentGPUDevice", ".spec.parentGPUDeviceAddress"),
    ),
    kinds.MigConfiguration: (
        ("Node Name", ".spec.nodeName"),
        ("Address", ".spec.gpuAddress"),
        ("Enabled", ".spec.enabled"),
        ("Status", ".status.status"),
        ("Message", ".status.message"),
    ),
    peripherals.USBDevice: (
        ("Vendor ID", ".status.vendorID"),
        ("Product ID", ".status.productID"),
        ("Node Name", ".status.nodeName"),
        ("Description", ".status.description"),
        ("Resource Name", ".status.resourceName"),
        ("PCI Address", ".status.pciAddress"),
        ("Enabled", ".status.enabled"),
    ),
    peripherals.USBDeviceClaim: (
        ("Node Name", ".status.nodeName"),
        ("PCI Address", ".status.pciAddress"),
        ("User Name", ".spec.userName"),
    ),
    peripherals.SRIOVNetworkDevice: (
        ("Address", ".spec.address"),
        ("Node Name", ".spec.nodeName"),
        ("NumVFs", ".spec.numVFs"),
        ("VF Addresses", ".status.vfAddresses"),
    ),
    VGPUPool: (
        ("Type", ".spec.vGPUTypeName"),
        ("Count", ".spec.count"),
        ("Ready", ".status.ready"),
        ("In Use", ".status.inUse"),
        ("State", ".status.conditions[?(@.type=='Ready')].reason"),
        ("Message", ".status.conditions[?(@.type=='Ready')].message"),
    ),
}
"""Header and JSON path. Every column of Harvester's kinds has the type string."""

_ADDRESS: JSON = {"pattern": r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", "maxLength": 16}
_PLACE: JSON = {"pattern": r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](/[0-9]{2})?$", "maxLength": 19}
"""A virtual function, or a slot of a board without them."""
_NODE: JSON = {"pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253}
_COUNT: JSON = {"minimum": 0}

FIELD_RULES: dict[type, dict[str, JSON]] = {
    kinds.PCIDeviceClaimSpec: {"address": _ADDRESS, "nodeName": _NODE},
    kinds.SRIOVGPUDeviceSpec: {"address": _ADDRESS, "nodeName": _NODE},
    kinds.VGPUDeviceSpec: {
        "address": _PLACE,
        "nodeName": _NODE,
        "parentGPUDeviceAddress": _ADDRESS,
        "vGPUTypeName": {"maxLength": 128},
    },
    VGPUPoolSpec: {
        "vGPUTypeName": {"minLength": 1, "maxLength": 128},
        "count": {"minimum": 0, "maximum": MOST_IN_POOL},
        "sriovGPUDevice": {"maxLength": 253},
        "nodeName": {"maxLength": 253},
    },
    VGPUPoolStatus: {"ready": _COUNT, "inUse": _COUNT},
    kinds.HarvesterStatus: {
        "conditions": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        "observedGeneration": _COUNT,
    },
    kinds.VGPUDeviceStatus: {"vGPUStatus": {"enum": ["", *get_args(names.VgpuDeviceState)]}},
    kinds.MigConfigurationSpec: {
        "gpuAddress": _ADDRESS,
        "nodeName": _NODE,
        "profileSpec": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
    },
    kinds.MigProfileSpec: {"id": _COUNT, "name": {"minLength": 1, "maxLength": 63}, "requested": _COUNT},
    kinds.MigProfileStatus: {"id": _COUNT, "available": _COUNT, "total": _COUNT},
    kinds.MigConfigurationStatus: {"status": {"enum": ["", *get_args(names.MigConfigurationState)]}},
    peripherals.USBDeviceStatus: {"status": {"enum": ["", *get_args(peripherals.UsbState)]}},
    peripherals.SRIOVNetworkDeviceSpec: {"address": _ADDRESS, "nodeName": _NODE, "numVFs": _COUNT},
    peripherals.SRIOVNetworkDeviceStatus: {"status": {"enum": ["", *get_args(peripherals.NetworkState)]}},
    Condition: {
        "status": {"enum": list(get_args(ConditionStatus))},
        "reason": {"pattern": r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?$"},
        "lastTransitionTime": {"format": "date-time"},
    },
}
"""Rules for fields beyond their types, by wire name. A subclass inherits the rules of its base."""

IMMUTABLE_FIELDS: dict[type[KubeObject], tuple[str, ...]] = {
    kinds.PCIDeviceClaim: ("address", "nodeName"),
    kinds.SRIOVGPUDevice: ("address", "nodeName"),
    kinds.VGPUDevice: ("address", "nodeName", "parentGPUDeviceAddress"),
    kinds.MigConfiguration: ("gpuAddress", "nodeName"),
    peripherals.SRIOVNetworkDevice: ("address", "nodeName"),
}
"""The spec fields that identify the function, which never change. The first one gives the object its name, as in
``harvester_names.object_name``, unless the kind is in ``NAMED_OTHERWISE``.
"""
NAMED_OTHERWISE: tuple[type[KubeObject], ...] = (peripherals.SRIOVNetworkDevice,)
"""Kinds whose names do not follow from an address: a port's object has the name of the interface."""

POOL_PLACE: JSON = {
    "rule": "[self.sriovGPUDevice != '', self.nodeName != '', has(self.nodeSelector) && size(self.nodeSelector) > 0]"
    ".filter(each, each).size() <= 1",
    "message": "at most one of sriovGPUDevice, nodeName and nodeSelector can be set",
}
"""The rule for a pool's place."""

KIND_DESCRIPTIONS: dict[type[KubeObject], str] = {
    VGPUPool: "A number of vGPUs of one type, on a GPU, on a node, on the nodes of a selector, or in the cluster. The "
    "controller enables as many VGPUDevices, and the GPUs and GPU instances that they need.",
    kinds.PCIDevice: "A PCI function of a node. The node's agent writes it. A PCIDeviceClaim of the same name passes "
    "the function through to VMs.",
    kinds.PCIDeviceClaim: "A request to pass the PCI function of the same name through to VMs.",
    kinds.SRIOVGPUDevice: "A GPU that supports virtual functions. spec.enabled requests them.",
    kinds.VGPUDevice: "A virtual function of a GPU. spec.enabled and spec.vGPUTypeName request a vGPU on it; "
    "status.availableTypes are the types that fit now. The annotation aliquot.dev/plugin-parameters requests plugin "
    "parameters.",
    kinds.MigConfiguration: "The MIG geometry that is requested for a GPU. To change it, disable the object, change "
    "spec.profileSpec, and enable the object again.",
    peripherals.USBDevice: "A USB device of a node. The node's agent writes it. A USBDeviceClaim of the same name "
    "passes the device through to VMs.",
    peripherals.USBDeviceClaim: "A request to pass the USB device of the same name through to VMs.",
    peripherals.SRIOVNetworkDevice: "A network port that supports virtual functions. spec.numVFs requests them.",
}
