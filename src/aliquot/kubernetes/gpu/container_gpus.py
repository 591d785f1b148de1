"""GPUs of a node that containers can use, and the reasons why MIG strategy single cannot apply to them."""

from __future__ import annotations

import msgspec

from aliquot.core.model.facts import Facts, GpuFacts, MigDevice
from aliquot.core.model.inventory import Gpu, Inventory


class ContainerGpu(msgspec.Struct, frozen=True):
    """A GPU that containers can use."""

    gpu: Gpu
    facts: GpuFacts
    devices: tuple[MigDevice, ...] = ()
    """MIG devices in the order of ``nvidia-smi -L``."""

    @property
    def enabled(self) -> bool:
        return self.gpu.mig.enabled

    def __str__(self) -> str:
        return f"GPU {self.gpu.index} ({self.gpu.pci})"


def usable_gpus(inventory: Inventory, facts: Facts) -> tuple[tuple[ContainerGpu, ...], tuple[str, ...]]:
    """Return the GPUs that containers can use, by index, and a sentence for each other GPU.

    A GPU that is lost, passed through to a VM or divided into vGPUs is excluded: NVIDIA's plugin fails on it or does
    not see it.
    """
    known = {gpu.pci: gpu for gpu in facts.gpus}
    gpus, left_out = [], []
    for gpu in sorted(inventory.gpus, key=lambda g: g.index):
        reason = _reason(gpu, known)
        if reason:
            left_out.append(f"GPU {gpu.index} ({gpu.pci}) is not offered: {reason}")
        else:
            devices = tuple(d for d in facts.mig_devices if d.gpu == gpu.pci and gpu.mig.enabled)
            gpus.append(ContainerGpu(gpu, known[gpu.pci], devices))
    return tuple(gpus), tuple(left_out)


def _reason(gpu: Gpu, known: dict[str, GpuFacts]) -> str:
    if gpu.lost:
        return "it has fallen off the bus"
    if gpu.passthrough:
        return "it is passed through to VMs"
    if gpu.vgpus:
        return f"it is divided into vGPUs ({len(gpu.vgpus)} in use)"
    if gpu.virtual is not None and gpu.virtual.functions:
        return "it is reserved for VMs (its virtual functions are enabled)"
    if gpu.pci not in known:
        return "its properties could not be read"
    return ""


def single_strategy_error(gpus: tuple[ContainerGpu, ...]) -> str | None:
    """Return the reason why strategy single cannot apply to these GPUs; None if it can.

    The reasons, in the order of GFD's checks, are an empty GPU in MIG mode, MIG mode on only some GPUs, and several
    profile names. Strategy single applies if no GPU is in MIG mode.
    """
    mig_gpus = [container_gpu for container_gpu in gpus if container_gpu.enabled]
    whole_gpus = [container_gpu for container_gpu in gpus if not container_gpu.enabled]
    empty = [container_gpu for container_gpu in mig_gpus if not container_gpu.devices]
    if empty:
        return f"MIG mode is enabled for {_list(empty)} without any MIG device"
    if mig_gpus and whole_gpus:
        return f"MIG mode is enabled for {_list(mig_gpus)} and disabled for {_list(whole_gpus)}"
    profiles = sorted({device.profile for container_gpu in mig_gpus for device in container_gpu.devices})
    if len(profiles) > 1:
        return f"there are MIG devices of several profiles: {', '.join(profiles)}"
    return None


def size_mismatch(gpus: tuple[ContainerGpu, ...]) -> str | None:
    """Return the reason why NVIDIA's plugin would refuse the MIG devices of one profile name; None if it would not.

    It refuses devices of different sizes, which different products may have.
    """
    by_size: dict[tuple[int, ...], ContainerGpu] = {}
    for container_gpu in gpus:
        for device in container_gpu.devices:
            by_size.setdefault(tuple(attributes(device).values()), container_gpu)
    if len(by_size) < 2:
        return None
    one, other = list(by_size.values())[:2]
    profile = one.devices[0].profile
    return f"MIG devices named {profile} differ in size between {one} and {other}"


def attributes(device: MigDevice) -> dict[str, int]:
    """Return the size of a MIG device as NVML reports it, by GFD's names; -1 for an unknown value."""
    return {
        "memory": device.memory_mib,
        "multiprocessors": device.multiprocessors,
        "slices.gi": device.gi_slices,
        "slices.ci": device.ci_slices,
        "engines.copy": device.copy,
        "engines.decoder": device.decoder,
        "engines.encoder": device.encoder,
        "engines.jpeg": device.jpeg,
        "engines.ofa": device.ofa,
    }


def _list(gpus: list[ContainerGpu]) -> str:
    if len(gpus) > 4:
        return f"{len(gpus)} GPUs (indexes {', '.join(str(container_gpu.gpu.index) for container_gpu in gpus)})"
    return " and ".join(str(container_gpu) for container_gpu in gpus)
