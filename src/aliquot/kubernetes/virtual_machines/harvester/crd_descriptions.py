"""What each field means, for ``kubectl explain``."""

from __future__ import annotations

from aliquot.kubernetes.client.object_base import Condition
from aliquot.kubernetes.kinds import harvester as kinds

_NODE = "The node that has it. It cannot change."
_FUNCTION = "The function's PCI address, as 0000:08:00.4. It cannot change."
_PROFILE = "The profile as nvidia-smi prints it, as MIG 1g.5gb+me."
_ID = "The profile's number, as nvidia-smi mig -lgip lists it. It says which profile is meant."

FIELD_DESCRIPTIONS: dict[type, dict[str, str]] = {
    kinds.HarvesterStatus: {
        "conditions": "Ready: True as wished; False with a reason, a sentence and the next command; Unknown while no "
        "driver answers.",
        "observedGeneration": "The generation of the spec that this status answers.",
    },
    Condition: {
        "type": "Ready; of a MigConfiguration also Synced.",
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
        "iommuGroup": "The group that goes to a virtual machine as a whole; empty while the IOMMU is off.",
        "nodeName": "The node that has it.",
        "resourceName": "What a virtual machine asks for to get it, once it is claimed.",
        "description": "Subclass, vendor and product.",
        "kernelDriverInUse": "The driver that has it now.",
    },
    kinds.PCIDeviceClaimSpec: {
        "address": _FUNCTION,
        "nodeName": _NODE,
        "userName": "Who asked for it.",
        "disableResourcePooling": "True: it is a resource of its own, not one of many of its kind.",
    },
    kinds.PCIDeviceClaimStatus: {
        "kernelDriverToUnbind": "The driver that it had before, and gets back when the claim is deleted.",
        "passthroughEnabled": "Whether vfio-pci has it, so that a virtual machine can.",
    },
    kinds.SRIOVGPUDeviceSpec: {
        "address": "The GPU's PCI address. It cannot change.",
        "nodeName": _NODE,
        "enabled": "Whether it should have virtual functions. A GPU that can be cut is put into MIG mode, too, unless "
        "the annotation harvesterhci.io/skip-mig-configuration is true.",
    },
    kinds.SRIOVGPUDeviceStatus: {
        "vfAddresses": "Its virtual functions, in the order in which the kernel's virtfn links sort as text.",
        "vGPUDevices": "The VGPUDevice objects of these, in the same order.",
    },
    kinds.VGPUDeviceSpec: {
        "address": _FUNCTION,
        "enabled": "Whether it should carry a vGPU. Not taken back while a virtual machine uses it.",
        "nodeName": _NODE,
        "parentGPUDeviceAddress": "The PCI address of the GPU that it belongs to. It cannot change.",
        "vGPUTypeName": "Which: one of status.availableTypes, as NVIDIA A2-4Q. Changed while it is disabled.",
    },
    kinds.VGPUDeviceStatus: {
        "availableTypes": "The types that fit now, with the driver's name of each; empty while it carries one.",
        "configureVGPUTypeName": "The type that it carries.",
        "uuid": "The mdev's UUID; with vendor-specific VFIO the type's number.",
        "vGPUStatus": "vGPUConfigured while it carries one.",
    },
    kinds.MigConfigurationSpec: {
        "enabled": "Whether the GPU should be cut so. Disabling destroys what was made for this object.",
        "gpuAddress": "The GPU's PCI address. It cannot change.",
        "nodeName": _NODE,
        "profileSpec": "How many instances of each profile. Changed while it is disabled.",
    },
    kinds.MigProfileSpec: {"id": _ID, "name": _PROFILE, "requested": "How many there should be."},
    kinds.MigProfileStatus: {
        "available": "How many more can be made now.",
        "id": _ID,
        "name": _PROFILE,
        "total": "How many fit on the empty GPU.",
        "vGPUID": "The GPU instances that were made for this object.",
    },
    kinds.MigConfigurationStatus: {
        "profileStatus": "What there is of each profile, and what fits.",
        "status": "synced, out-of-sync (somebody changed it), disabled, or empty: never enabled.",
        "message": "What differs and the next command, or what is going on.",
        "appliedBoot": "The boot of the node in which it was carried out.",
        "differences": "Out of sync: each difference, a sentence.",
    },
}
"""By the field's name on the wire; a subclass has what its base has."""
