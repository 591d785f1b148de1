"""Names of the driver, its pools, devices and counter sets.

The names of devices are those of NVIDIA's driver, so that its users find what they know: ``gpu-0``, and
``gpu-0-mig-1g10gb-19-0`` (minor number of the GPU, profile, profile id, first memory slice).

Source: kubernetes-sigs/dra-driver-nvidia-gpu 9593204 (0.5.0-dev), cmd/gpu-kubelet-plugin/mig.go and deviceinfo.go.
"""

from __future__ import annotations

import re

import msgspec

from aliquot.core.model.catalog import Profile
from aliquot.core.model.inventory import Gpu
from aliquot.kubernetes.kinds.claim_status import POOL_SUFFIX

NVIDIA_DRIVER = "gpu.nvidia.com"
"""The name of NVIDIA's driver. Other programs know GPUs by it, among them dcgm-exporter."""
OWN_DRIVER = "gpu.aliquot.dev"
OWN_DOMAIN = "aliquot.dev"
"""The domain of attributes and taints that NVIDIA's driver does not have, under both driver names."""


class DriverNaming(msgspec.Struct, frozen=True):
    """The name under which the driver serves, and the names that follow from it."""

    driver: str = OWN_DRIVER

    def pool(self, node: str) -> str:
        """Return the name of a node's pool.

        It is never the name of the node. That is the pool of every other driver, and the scheduler's free counters are
        keyed by pool without driver: two drivers with one pool name would over-commit each other's GPUs.
        """
        return f"{node}{POOL_SUFFIX}"

    def gpu_pool(self, node: str, gpu: str) -> str:
        """Return the name of the pool of one GPU, by PCI address, where each GPU has its own."""
        return f"{self.pool(node)}-{gpu.replace(':', '-').replace('.', '-')}"

    def whole(self, gpu: Gpu) -> str:
        return f"gpu-{gpu.minor}"

    def instance(self, gpu: Gpu, profile: Profile, start: int) -> str:
        return f"{self.whole(gpu)}-mig-{label_word(profile.name.replace('.', ''))}-{profile.id}-{start}"

    def names(self, gpu: Gpu, device: str) -> bool:
        """Report whether a device has a name of this GPU, whether or not the GPU offers it now."""
        whole = self.whole(gpu)
        return device == whole or device.startswith((f"{whole}-", f"{vm_device_name(gpu)}-"))

    def counter_set(self, gpu: Gpu) -> str:
        return f"{self.whole(gpu)}-counter-set"

    @property
    def parent_class(self) -> str:
        """The domain of the device classes: ``nvidia.com`` of ``gpu.nvidia.com``."""
        return self.driver.partition(".")[2]


def vm_device_name(gpu: Gpu, *parts: str | int) -> str:
    """Return the name of a device for VMs: by PCI address, as a GPU that is passed through has no minor number."""
    words = [gpu.pci.replace(":", "-").replace(".", "-"), *(label_word(str(part)) for part in parts)]
    return "-".join(("vm", *words))


def label_word(text: str) -> str:
    """Return a text as part of a DNS label: ``1g5gb+me`` as ``1g5gb-me``."""
    return re.sub(r"[^a-z0-9-]", "-", text.lower()).strip("-")
