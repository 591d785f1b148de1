"""Names that Harvester, its user interface and existing virtual machines rely on.

Source: harvester/pcidevices (pkg/apis, pkg/util/gpuhelper, pkg/deviceplugins). Those below ``aliquot.dev/`` are ours.
"""

from __future__ import annotations

import re

NODE_LABEL = "nodename"
PARENT_LABEL = "harvesterhci.io/parentSRIOVGPUDevice"
DRIVER_NEEDED_LABEL = "sriovgpu.harvesterhci.io/driver-needed"
"""On a node, ``true`` exactly while it has an SRIOVGPUDevice."""
CUSTOM_DRIVER_ANNOTATION = "sriovgpu.harvesterhci.io/custom-driver"
SKIP_MIG_ANNOTATION = "harvesterhci.io/skip-mig-configuration"
"""On an SRIOVGPUDevice, ``true``: the GPU stays time-sliced although it could be cut."""
SKIP_BINDING_ANNOTATION = "pcidevices.harvesterhci.io/skip-vfio-binding"
"""On a claim, ``true``: it reserves the function, whose driver stays."""
DRIVER_ANNOTATION = "harvesterhci.io/pcideviceDriver"
"""On a PCIDevice: the driver at first sight."""
RESOURCE_ANNOTATION = "pcidevice.harvesterhci.io/override-resource-name"
ALLOCATION_ANNOTATION = "harvesterhci.io/deviceAllocationDetails"
"""On a VirtualMachine: JSON ``{"gpus": {resource: [object names]}, "hostdevices": {resource: [object names]}}``."""
CLAIM_FINALIZER = "wrangler.cattle.io/PCIDeviceClaimOnRemove"
CONFIGURED = "vGPUConfigured"
SYNCED, OUT_OF_SYNC, DISABLED = "synced", "out-of-sync", "disabled"

HEAL_ANNOTATION = "aliquot.dev/self-heal"
"""On a MigConfiguration, ``true``: what somebody changed by hand is put right."""
UNTRACKED_ANNOTATION = "aliquot.dev/untracked"
"""On a MigConfiguration or VGPUDevice, ``delete``: what was made by hand may go. Without it, it is only reported."""

MDEV_ENV = "MDEV_PCI_RESOURCE"
PCI_ENV = "PCI_RESOURCE"
SOCKET_FOLDER = "/var/lib/kubelet/device-plugins"
_SOCKET_MOST = 108


def object_name(node: str, address: str) -> str:
    """``node-000008004`` for the function ``0000:08:00.4``: one name for a function in every kind."""
    return f"{node}-{address.replace(':', '').replace('.', '')}"


def vgpu_resource(type_name: str) -> str:
    """``nvidia.com/NVIDIA_A2-4A`` for the vGPU type ``NVIDIA A2-4A``: case and hyphens stay."""
    return "nvidia.com/" + re.sub(r"[/. ]", "_", type_name.strip())


def pci_resource(vendor: str, product: str, device_id: str) -> str:
    """``nvidia.com/GA100_A100_SXM4_40GB`` for names of pci.ids (``NVIDIA Corporation``, ``GA100 [A100 SXM4 40GB]``)."""
    prefix = vendor_domain(vendor)
    word = _product(product) or device_id
    if _too_long(prefix, word):
        word = word.replace("VIRTUAL_FUNCTION", "VF")
    return f"{prefix}/{device_id if _too_long(prefix, word) else word}"


def vendor_domain(vendor: str) -> str:
    """The text in brackets up to a slash, else the first word; letters and digits, lower case, and ``.com``."""
    bracketed = re.search(r"\[([^\]/]*)", vendor)
    word = bracketed.group(1) if bracketed else (vendor.split() or [""])[0]
    return re.sub(r"[^A-Za-z0-9]", "", word).lower() + ".com"


def _product(product: str) -> str:
    word = re.sub(r"[/. ]", "_", product.strip().upper())
    return re.sub(r"[^A-Za-z0-9_.]", "", word).rstrip("_.-")


def _too_long(prefix: str, word: str) -> bool:
    """The length of the socket that the original names after the resource."""
    return len(f"{SOCKET_FOLDER}/kubevirt-/{prefix}-{word}.sock") > _SOCKET_MOST


def environment(resource: str, prefix: str) -> str:
    """``MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4Q``: what virt-launcher reads the devices of a resource from."""
    return f"{prefix}_{re.sub(r'[/.]', '_', resource.upper())}"
