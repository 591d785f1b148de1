"""Device nodes that open GPUs and MIG devices. Pure: numbers in, nodes out.

Minors: a GPU's own, 255 nvidiactl, 254 nvidia-modeset, uvm 0, uvm-tools 1 (open-gpu-kernel-modules). Capability minors
are in the inventory. ``nvidia-cap1`` (mig/config) and ``nvidia-cap2`` (mig/monitor) allow changing and seeing every
instance, so a workload never gets them.
"""

from __future__ import annotations

from aliquot.cdi.options import CdiDeviceNode, CdiHost, Majors
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance
from aliquot.errors import BlockedError

CONFIG, MONITOR = 1, 2
_CAP_MODE = 0o444
"""The mode that the kernel requests: ``DeviceFileMode: 292``, and 256 (0400) for mig/config."""


def control_nodes(host: CdiHost) -> tuple[CdiDeviceNode, ...]:
    """Return the nodes that every container with a GPU needs in addition."""
    majors = host.majors
    nodes = [CdiDeviceNode("/dev/nvidiactl", majors.gpu, 255)]
    if host.modeset:
        nodes.append(CdiDeviceNode("/dev/nvidia-modeset", majors.gpu, 254))
    if majors.uvm >= 0:
        nodes += [
            CdiDeviceNode("/dev/nvidia-uvm", majors.uvm, 0),
            CdiDeviceNode("/dev/nvidia-uvm-tools", majors.uvm, 1),
        ]
    return tuple(nodes)


def whole_gpu_nodes(gpu: Gpu, host: CdiHost) -> tuple[CdiDeviceNode, ...]:
    """Return the nodes of a whole GPU, with those of all its instances."""
    nodes = [_gpu(gpu, host.majors), *host.drm.get(gpu.pci, ())]
    for instance in gpu.instances:
        nodes.append(_cap(host.majors, instance.capability_minor, gpu))
        nodes += [_cap(host.majors, c.capability_minor, gpu) for c in instance.compute_instances]
    return tuple(nodes)


def mig_device_nodes(
    gpu: Gpu, instance: GpuInstance, compute: ComputeInstance, host: CdiHost
) -> tuple[CdiDeviceNode, ...]:
    """Return the nodes of one MIG device: its GPU, and the two capabilities that open only this instance."""
    nodes = [_gpu(gpu, host.majors)]
    nodes += [_cap(host.majors, part.capability_minor, gpu) for part in (instance, compute)]
    if "+gfx" in instance.profile:
        nodes += host.drm.get(gpu.pci, ())
    return tuple(nodes)


def management_nodes(host: CdiHost) -> tuple[CdiDeviceNode, ...]:
    """Return the nodes that change and monitor instances. Only the management document has them."""
    if host.majors.caps < 0:
        return host.extras
    capabilities = ((CONFIG, 0o400), (MONITOR, _CAP_MODE))
    return (*(_cap_node(host.majors, minor, mode) for minor, mode in capabilities), *host.extras)


def _gpu(gpu: Gpu, majors: Majors) -> CdiDeviceNode:
    if gpu.minor < 0:
        raise BlockedError(
            f"the device minor of GPU {gpu.index} ({gpu.pci}) is not known: its device node cannot be named",
            code="NO_MINOR",
            next_step="aliquot show",
        )
    return CdiDeviceNode(f"/dev/nvidia{gpu.minor}", majors.gpu, gpu.minor)


def _cap(majors: Majors, minor: int, gpu: Gpu) -> CdiDeviceNode:
    if minor <= MONITOR:
        raise BlockedError(
            f"the capability of an instance of GPU {gpu.index} ({gpu.pci}) is unknown (minor {minor})",
            code="WRONG_CAPABILITY",
            next_step="aliquot show",
        )
    if majors.caps < 0:
        raise BlockedError(
            "the kernel lists no nvidia-caps devices: containers cannot use MIG devices",
            code="NO_KERNEL_DEVICE",
            details=("/proc/devices has no line nvidia-caps; is the nvidia kernel module loaded?",),
            next_step="grep nvidia /proc/devices",
        )
    return _cap_node(majors, minor, _CAP_MODE)


def _cap_node(majors: Majors, minor: int, mode: int) -> CdiDeviceNode:
    return CdiDeviceNode(f"/dev/nvidia-caps/nvidia-cap{minor}", majors.caps, minor, mode)
