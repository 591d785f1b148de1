"""The GPUs of a node that containers can have, with what is known of each; and what stands against strategy single."""

from __future__ import annotations

import msgspec

from aliquot.core.model.facts import Facts, GpuFacts, MigDevice
from aliquot.core.model.inventory import Gpu, Inventory


class ContainerGpu(msgspec.Struct, frozen=True):
    """One GPU, its facts, and its MIG devices in the order of ``nvidia-smi -L``."""

    gpu: Gpu
    facts: GpuFacts
    devices: tuple[MigDevice, ...] = ()

    @property
    def enabled(self) -> bool:
        return self.gpu.mig.enabled

    def __str__(self) -> str:
        return f"GPU {self.gpu.index} ({self.gpu.pci})"


def usable_gpus(inventory: Inventory, facts: Facts) -> tuple[tuple[ContainerGpu, ...], tuple[str, ...]]:
    """The GPUs that containers can have, by index, and a sentence for each other one. A GPU that is lost, passed
    through to a virtual machine or shared out as vGPUs is none of them: NVIDIA's plugin either fails on it or does
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
        return "it is passed through to virtual machines"
    if gpu.vgpus:
        return f"it is shared out as vGPUs ({len(gpu.vgpus)} in use)"
    if gpu.virtual is not None and gpu.virtual.functions:
        return "it belongs to virtual machines (virtual functions are on)"
    if gpu.pci not in known:
        return "it did not answer when its facts were read"
    return ""


def single_strategy_error(gpus: tuple[ContainerGpu, ...]) -> str | None:
    """Why strategy single cannot name these GPUs, in the order of GFD's checks: an empty MIG GPU, MIG mode on some
    GPUs only, several profile names. None if it can, also when MIG mode is on nowhere.
    """
    mig_gpus = [container_gpu for container_gpu in gpus if container_gpu.enabled]
    whole_gpus = [container_gpu for container_gpu in gpus if not container_gpu.enabled]
    empty = [container_gpu for container_gpu in mig_gpus if not container_gpu.devices]
    if empty:
        return f"MIG mode is on for {_list(empty)}, with no MIG device"
    if mig_gpus and whole_gpus:
        return f"MIG mode is on for {_list(mig_gpus)} and off for {_list(whole_gpus)}"
    profiles = sorted({device.profile for container_gpu in mig_gpus for device in container_gpu.devices})
    if len(profiles) > 1:
        return f"there are MIG devices of several profiles: {', '.join(profiles)}"
    return None


def size_mismatch(gpus: tuple[ContainerGpu, ...]) -> str | None:
    """Why NVIDIA's plugin would refuse MIG devices of one profile name: they differ in size, as those of different
    products may. None if all are alike.
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
    """What NVML tells of a MIG device's size, by GFD's names; -1 where nobody says."""
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
