"""Descriptions of the fields, for ``kubectl explain``."""

from __future__ import annotations

from aliquot.kubernetes.client.object_base import Condition
from aliquot.kubernetes.kinds import harvester as kinds
from aliquot.kubernetes.kinds import harvester_peripherals as peripherals
from aliquot.kubernetes.kinds.vgpu_pools import VGPUPoolSpec, VGPUPoolStatus

_NODE = "The node that has it. It cannot change."
_FUNCTION = "The function's PCI address, for example 0000:08:00.4. It cannot change."
_PROFILE = "The profile's name in nvidia-smi, for example MIG 1g.5gb+me."
_ID = "The profile's number in nvidia-smi mig -lgip. It identifies the profile."
_CONTROLLER = "The PCI address of the USB controller to which the device is connected."

FIELD_DESCRIPTIONS: dict[type, dict[str, str]] = {
    kinds.HarvesterStatus: {
        "conditions": "Ready: True if the object is in its desired state; False with a reason, a sentence and the next "
        "command; Unknown while no driver answers.",
        "observedGeneration": "The generation of the spec that this status describes.",
    },
    VGPUPoolSpec: {
        "vGPUTypeName": "The full name of the vGPU type, for example NVIDIA A2-4Q. If it changes, idle vGPUs are "
        "replaced, and those of VMs later.",
        "count": "How many vGPUs there should be. If it falls, only vGPUs that no VM uses are destroyed.",
        "sriovGPUDevice": "The SRIOVGPUDevice of the only GPU that may have them.",
        "nodeName": "The only node that may have them.",
        "nodeSelector": "The labels of the nodes that may have them.",
    },
    VGPUPoolStatus: {
        "ready": "How many of its vGPUs exist.",
        "inUse": "How many of its vGPUs VMs use, or are about to use.",
        "devices": "Its VGPUDevices. They have the label aliquot.dev/pool.",
    },
    Condition: {
        "type": "Ready; a MigConfiguration also has Synced.",
        "status": "True, False or Unknown.",
        "reason": "One word for programs.",
        "message": "A sentence for people; after '| next:' the command to type.",
        "lastTransitionTime": "When the status changed last.",
    },
    kinds.PCIDeviceStatus: {
        "address": "The function's PCI address.",
        "vendorId": "Four hexadecimal digits; 10de is NVIDIA.",
        "deviceId": "Four hexadecimal digits.",
        "classId": "PCI class and subclass; 0302 is a 3D controller.",
        "iommuGroup": "The group, which a VM gets as a whole; empty while the IOMMU is off.",
        "nodeName": "The node that has it.",
        "resourceName": "The resource that a VM requests to get the function, once it is claimed.",
        "description": "Subclass, vendor and product.",
        "kernelDriverInUse": "The driver that is bound to it now.",
    },
    kinds.PCIDeviceClaimSpec: {
        "address": _FUNCTION,
        "nodeName": _NODE,
        "userName": "The user who requested it.",
        "disableResourcePooling": "If true, the function has a resource of its own instead of one that it shares with "
        "other functions of its model.",
    },
    kinds.PCIDeviceClaimStatus: {
        "kernelDriverToUnbind": "The driver that was bound before, and is bound again when the claim is deleted.",
        "passthroughEnabled": "Whether the function is bound to vfio-pci, so that a VM can use it.",
    },
    kinds.SRIOVGPUDeviceSpec: {
        "address": "The GPU's PCI address. It cannot change.",
        "nodeName": _NODE,
        "enabled": "Whether it should have virtual functions. MIG mode is also enabled if the GPU supports it, unless "
        "the annotation harvesterhci.io/skip-mig-configuration is true.",
    },
    kinds.SRIOVGPUDeviceStatus: {
        "vfAddresses": "Its virtual functions, in the order in which the kernel's virtfn links sort as text.",
        "vGPUDevices": "The VGPUDevice objects of these, in the same order.",
    },
    kinds.VGPUDeviceSpec: {
        "address": f"{_FUNCTION} On a board without virtual functions, the GPU's address, a slash and a number: "
        "0000:3b:00.0/03.",
        "enabled": "Whether it should carry a vGPU. The vGPU is not destroyed while a VM uses it.",
        "nodeName": _NODE,
        "parentGPUDeviceAddress": "The PCI address of the GPU that it belongs to. It cannot change.",
        "vGPUTypeName": "The vGPU type, one of status.availableTypes, for example NVIDIA A2-4Q. It can change while "
        "the object is disabled.",
    },
    kinds.VGPUDeviceStatus: {
        "availableTypes": "The types that fit now, with the driver's id of each; empty while it carries a vGPU.",
        "configureVGPUTypeName": "The type of the vGPU that it carries.",
        "uuid": "The mdev's UUID; with vendor-specific VFIO, the number of the type.",
        "vGPUStatus": "vGPUConfigured while it carries a vGPU.",
    },
    kinds.MigConfigurationSpec: {
        "enabled": "Whether the GPU should have this geometry. Disabling destroys the instances that were created for "
        "this object.",
        "gpuAddress": "The GPU's PCI address. It cannot change.",
        "nodeName": _NODE,
        "profileSpec": "The number of instances of each profile. It can change while the object is disabled.",
    },
    kinds.MigProfileSpec: {"id": _ID, "name": _PROFILE, "requested": "How many instances there should be."},
    kinds.MigProfileStatus: {
        "available": "How many more instances can be created now.",
        "id": _ID,
        "name": _PROFILE,
        "total": "How many fit on the empty GPU.",
        "vGPUID": "The GPU instances that were created for this object.",
    },
    kinds.MigConfigurationStatus: {
        "profileStatus": "The instances of each profile, and how many fit.",
        "status": "synced, out-of-sync (another program or user changed it), disabled, or empty: never enabled.",
        "message": "The drift and the next command, or the change in progress.",
        "appliedBoot": "The boot of the node in which the spec was applied last.",
        "differences": "While out of sync: each difference, as a sentence.",
    },
    peripherals.USBDeviceStatus: {
        "vendorID": "Four hexadecimal digits.",
        "productID": "Four hexadecimal digits.",
        "nodeName": "The node that has it.",
        "resourceName": "The resource that a VM requests to get the device, once it is claimed.",
        "devicePath": "The device's file on the node, for example /dev/bus/usb/001/004.",
        "description": "The names of the product and of the vendor, and the name that the device reports.",
        "pciAddress": _CONTROLLER,
        "classType": "The name of the device's class, for example Mass Storage.",
        "enabled": "Whether a claim passes the device through to VMs.",
        "status": "orphaned while a claimed device is unplugged.",
        "message": "What to do about an orphaned device.",
    },
    peripherals.USBDeviceClaimSpec: {"userName": "The user who requested it. It cannot change."},
    peripherals.USBDeviceClaimStatus: {"nodeName": "The node that has the device.", "pciAddress": _CONTROLLER},
    peripherals.SRIOVNetworkDeviceSpec: {
        "address": "The port's PCI address. It cannot change.",
        "nodeName": _NODE,
        "numVFs": "How many virtual functions it should have. The number changes only while none of them is in use.",
    },
    peripherals.SRIOVNetworkDeviceStatus: {
        "vfAddresses": "Its virtual functions, in the order in which the kernel's virtfn links sort as text.",
        "vfPCIDevices": "The PCIDevice objects of these, in the same order.",
        "status": "sriovNetworkDeviceEnabled while it has virtual functions, otherwise sriovNetworkDeviceDisabled.",
    },
}
"""By the field's name on the wire. A subclass inherits the descriptions of its base."""
