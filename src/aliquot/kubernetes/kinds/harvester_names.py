"""Names that Harvester, its user interface and existing VMs depend on.

Source: harvester/pcidevices (pkg/apis, pkg/util/gpuhelper, pkg/deviceplugins). Aliquot adds the names below
``aliquot.dev/``.
"""

from __future__ import annotations

import re
from typing import Final, Literal

NODE_LABEL = "nodename"
PARENT_LABEL = "harvesterhci.io/parentSRIOVGPUDevice"
PARENT_NETWORK_LABEL = "harvesterhci.io/parent-sriov-network-device"
"""On the PCIDevice of a network card's virtual function: the name of the card's SRIOVNetworkDevice."""
DRIVER_NEEDED_LABEL = "sriovgpu.harvesterhci.io/driver-needed"
"""On a node: ``true`` while the node has an SRIOVGPUDevice, absent otherwise."""
CUSTOM_DRIVER_ANNOTATION = "sriovgpu.harvesterhci.io/custom-driver"
SKIP_MIG_ANNOTATION = "harvesterhci.io/skip-mig-configuration"
"""On an SRIOVGPUDevice, ``true``: the GPU stays time-sliced although it supports MIG."""
SKIP_BINDING_ANNOTATION = "pcidevices.harvesterhci.io/skip-vfio-binding"
"""On a claim, ``true``: the claim reserves the function, which keeps its driver."""
DRIVER_ANNOTATION = "harvesterhci.io/pcideviceDriver"
"""On a PCIDevice: the driver when the function was first seen."""
RESOURCE_ANNOTATION = "pcidevice.harvesterhci.io/override-resource-name"
ALLOCATION_ANNOTATION = "harvesterhci.io/deviceAllocationDetails"
"""On a VirtualMachine: JSON ``{"gpus": {resource: [object names]}, "hostdevices": {resource: [object names]}}``."""
CLAIM_FINALIZER = "wrangler.cattle.io/PCIDeviceClaimOnRemove"
VgpuDeviceState = Literal["vGPUConfigured"]
CONFIGURED: Final = "vGPUConfigured"
MigConfigurationState = Literal["synced", "out-of-sync", "disabled"]
SYNCED: Final = "synced"
OUT_OF_SYNC: Final = "out-of-sync"
DISABLED: Final = "disabled"

WITHOUT_PCIDEVICES = "aliquot.dev/without-pcidevices"
"""On a node, with any value: pcidevices' DaemonSet leaves the node out, because the HelmChartConfig of
``manifests.pcidevices_addon`` says so, and our agent serves it.
"""
HEAL_ANNOTATION = "aliquot.dev/self-heal"
"""On a MigConfiguration, ``true``: the agent reverts changes that were made by hand."""
UNTRACKED_ANNOTATION = "aliquot.dev/untracked"
"""On a MigConfiguration or VGPUDevice, ``delete``: the agent may destroy instances or vGPUs that were created by hand.
Without it, the agent only reports them.
"""
PARAMETERS_ANNOTATION = "aliquot.dev/plugin-parameters"
"""On a VGPUDevice: the plugin parameters of its vGPU (``enable_uvm=1,frame_rate_limiter=0``), empty for the defaults.
Without it, those of an existing vGPU stay.
"""

SCHEDULER_ANNOTATION = "aliquot.dev/scheduler"
"""On an SRIOVGPUDevice: the scheduler of time-sliced vGPUs, as files write it (``equal-share,2ms``). Without it the
scheduler is left as it is.
"""

POOL_INSTANCES_ANNOTATION = "aliquot.dev/pool-instances"
"""On a MigConfiguration, by the controller: the GPU instances that pools requested (``1g.5gb=3,3g.20gb=1``)."""

PLACEMENTS_ANNOTATION = "aliquot.dev/placements"
"""On an SRIOVGPUDevice in mixed-size mode, by the agent: its vGPUs (``0000:01:00.4=NVIDIA A2-8Q@0``, with commas)."""

MDEV_ENV = "MDEV_PCI_RESOURCE"
PCI_ENV = "PCI_RESOURCE"
SOCKET_FOLDER = "/var/lib/kubelet/device-plugins"
_SOCKET_MOST = 108


def object_name(node: str, address: str) -> str:
    """Return the name of a function's objects, the same in every kind: ``node-000008004`` for ``0000:08:00.4``.

    The slot of a board without virtual functions (``0000:08:00.0/03``) gives ``node-000008000-03``.
    """
    return f"{node}-{address.replace(':', '').replace('.', '').replace('/', '-')}"


def vgpu_resource(type_name: str) -> str:
    """Return the resource of a vGPU type: ``nvidia.com/NVIDIA_A2-4A`` for ``NVIDIA A2-4A``. Case and hyphens stay."""
    return "nvidia.com/" + re.sub(r"[/. ]", "_", type_name.strip())


def pci_resource(vendor: str, product: str, device_id: str) -> str:
    """Return the resource of a PCI function from its vendor and product names in pci.ids.

    ``NVIDIA Corporation`` and ``GA100 [A100 SXM4 40GB]`` give ``nvidia.com/GA100_A100_SXM4_40GB``.
    """
    prefix = vendor_domain(vendor)
    word = _product(product) or device_id
    if _too_long(prefix, word):
        word = word.replace("VIRTUAL_FUNCTION", "VF")
    return f"{prefix}/{device_id if _too_long(prefix, word) else word}"


def vendor_domain(vendor: str) -> str:
    """Return the domain of a vendor: its name in letters and digits, lower case, and ``.com``.

    The name is the text in brackets up to a slash, otherwise the first word. It is ``unknown`` for a vendor that
    pci.ids does not know.
    """
    bracketed = re.search(r"\[([^\]/]*)", vendor)
    word = bracketed.group(1) if bracketed else (vendor.split() or ["unknown"])[0]
    return re.sub(r"[^A-Za-z0-9]", "", word).lower() + ".com"


def _product(product: str) -> str:
    word = re.sub(r"\s+", "_", re.sub(r"[/.]", "_", product.strip().upper()))
    return re.sub(r"[^A-Za-z0-9_.]", "", word).rstrip("_.-")


def _too_long(prefix: str, word: str) -> bool:
    """Report whether the path of the socket that Harvester names after the resource is too long for a Unix socket."""
    return len(f"{SOCKET_FOLDER}/kubevirt-/{prefix}-{word}.sock") > _SOCKET_MOST


def environment(resource: str, prefix: str) -> str:
    """Return the environment variable from which virt-launcher reads the devices of a resource.

    For example ``MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4Q``.
    """
    return f"{prefix}_{re.sub(r'[/.]', '_', resource.upper())}"
