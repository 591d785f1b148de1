"""What the kinds' fields may say, and the columns that ``kubectl get`` shows.

Columns are those of harvester/pcidevices, pkg/crd/crd.go, spelling included: scripts and people read them. The original
has no rules at all; ours refuse what no agent could carry out, and let through everything that the original writes.
"""

from __future__ import annotations

from typing import Any

from aliquot.kubernetes.client.object_base import Condition, KubeObject
from aliquot.kubernetes.kinds import harvester as kinds
from aliquot.kubernetes.kinds import harvester_names as names

JSON = dict[str, Any]

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
        # the first two letters of the third word are Greek, as in the original
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
}
"""Header and place. Every column is of the type string."""

_ADDRESS: JSON = {"pattern": r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", "maxLength": 16}
_NODE: JSON = {"pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253}
_COUNT: JSON = {"minimum": 0}

FIELD_RULES: dict[type, dict[str, JSON]] = {
    kinds.PCIDeviceClaimSpec: {"address": _ADDRESS, "nodeName": _NODE},
    kinds.SRIOVGPUDeviceSpec: {"address": _ADDRESS, "nodeName": _NODE},
    kinds.VGPUDeviceSpec: {
        "address": _ADDRESS,
        "nodeName": _NODE,
        "parentGPUDeviceAddress": _ADDRESS,
        "vGPUTypeName": {"maxLength": 128},
    },
    kinds.HarvesterStatus: {
        "conditions": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        "observedGeneration": _COUNT,
    },
    kinds.VGPUDeviceStatus: {"vGPUStatus": {"enum": ["", names.CONFIGURED]}},
    kinds.MigConfigurationSpec: {
        "gpuAddress": _ADDRESS,
        "nodeName": _NODE,
        "profileSpec": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
    },
    kinds.MigProfileSpec: {"id": _COUNT, "name": {"minLength": 1, "maxLength": 63}, "requested": _COUNT},
    kinds.MigProfileStatus: {"id": _COUNT, "available": _COUNT, "total": _COUNT},
    kinds.MigConfigurationStatus: {"status": {"enum": ["", names.SYNCED, names.OUT_OF_SYNC, names.DISABLED]}},
    Condition: {
        "status": {"enum": ["True", "False", "Unknown"]},
        "reason": {"pattern": r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?$"},
        "lastTransitionTime": {"format": "date-time"},
    },
}
"""More about a field than its type, by its name on the wire; a subclass has what its base has."""

IMMUTABLE_FIELDS: dict[type[KubeObject], tuple[str, ...]] = {
    kinds.PCIDeviceClaim: ("address", "nodeName"),
    kinds.SRIOVGPUDevice: ("address", "nodeName"),
    kinds.VGPUDevice: ("address", "nodeName", "parentGPUDeviceAddress"),
    kinds.MigConfiguration: ("gpuAddress", "nodeName"),
}
"""Fields of the spec that say which function the object is about: they never change. The first gives the object its
name, as ``harvester_names.object_name`` does.
"""

KIND_DESCRIPTIONS: dict[type[KubeObject], str] = {
    kinds.PCIDevice: "One PCI function of a node. Written by the node's agent; a PCIDeviceClaim of the same name hands "
    "the function out to virtual machines.",
    kinds.PCIDeviceClaim: "The wish that the PCI function of the same name be handed out to virtual machines.",
    kinds.SRIOVGPUDevice: "A GPU that can have virtual functions. spec.enabled says whether it should have them.",
    kinds.VGPUDevice: "A virtual function of a GPU. spec.enabled and spec.vGPUTypeName say which vGPU it should carry; "
    "status.availableTypes are the types that fit now.",
    kinds.MigConfiguration: "How a GPU should be cut into MIG instances. Disable it, change spec.profileSpec, enable "
    "it again.",
}
