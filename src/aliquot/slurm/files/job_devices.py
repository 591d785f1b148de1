"""The devices that jobs can get: one ``GresDevice`` per MIG device or whole GPU, each GPU counted once. Pure.

A job that may open ``/dev/nvidia0`` and the capability nodes of one GPU instance and one compute instance has exactly
that MIG device. The minor of a GPU instance is 3 + 135 * gpu + 9 * gi, and that of a compute instance is 1 + ci more.
Here gpu is the N of ``/dev/nvidiaN`` (MIG User Guide; nv-caps.c of open-gpu-kernel-modules). Minors 1 (mig/config) and
2 (mig/monitor) allow to change and to monitor every instance, so no device here ever has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Inventory
from aliquot.errors import BlockedError
from aliquot.slurm.files import fence
from aliquot.slurm.gpus import gres_types as types
from aliquot.slurm.gpus.gres_types import TypeStyle

MOST = 1024
"""Slurm's limit of GRES of one type with device files on a node (gres.conf(5))."""

_TYPE = re.compile(r"[A-Za-z0-9_.+-]+")
"""``+`` and ``-`` in types work from gres.conf to ``--gres`` and ``--gpus`` (tested on 22.05 and 24.11)."""


class GresDevice(msgspec.Struct, frozen=True):
    """A GRES: a MIG device, or a whole GPU (``instance`` and ``compute`` are None)."""

    type: str
    files: tuple[str, ...]
    """Its device nodes; that of the GPU comes first."""
    uuid: str
    """The value for CUDA_VISIBLE_DEVICES."""
    pci: str
    gpu: int
    """The GPU's index."""
    minor: int
    """The N of /dev/nvidiaN."""
    instance: int | None = None
    compute: int | None = None
    detected: str = ""
    """The name that Slurm's NVML plugin would give it."""


class OfferedDevices(msgspec.Struct, frozen=True):
    """The devices that a Slurm node offers."""

    devices: tuple[GresDevice, ...]
    """In Slurm's order: type by type as in ``Gres=``, and by gres.conf's lines within a type. Both are written in this
    order.
    """
    notes: tuple[str, ...] = ()
    """Reasons why a GPU offers nothing."""
    visible: tuple[str, ...] = ()
    """Reasons of GPUs that offer nothing, but that slurmd's own detection would find."""
    fenced: tuple[str, ...] = ()
    """Files of the host's other GPUs, which jobs of the node must not open (see ``fence``)."""

    @property
    def counts(self) -> dict[str, int]:
        """The number of devices of each type, in order."""
        found: dict[str, int] = {}
        for device in self.devices:
            found[device.type] = found.get(device.type, 0) + 1
        return found


class GresChoice(msgspec.Struct, frozen=True):
    """The choice of GPUs and names for a Slurm node."""

    gpus: tuple[str, ...] | None = None
    """PCI addresses; None means all GPUs."""
    style: TypeStyle = "short"
    """The style of type names."""
    dev: str = "/dev"
    """The directory of device nodes."""
    fence: bool = False
    """Whether to deny jobs access to GPUs of the host that the node does not offer."""


def offered_devices(inventory: Inventory, choice: GresChoice | None = None) -> OfferedDevices:
    """Return the devices that the GPUs offer now.

    Raises BlockedError if a device node's name is unknown or wrong, a type name is invalid, or a type has too many.
    """
    chosen = choice or GresChoice()
    devices: list[GresDevice] = []
    notes: list[str] = []
    visible: list[str] = []
    for gpu in inventory.gpus:
        if chosen.gpus is not None and gpu.pci not in chosen.gpus:
            visible.append(f"{_named(gpu)} is not among the chosen GPUs")
            continue
        reason = _unusable_reason(gpu)
        if reason:
            notes.append(f"{_named(gpu)} offers nothing: {reason}")
            visible += [] if gpu.lost or gpu.passthrough else notes[-1:]
        else:
            devices += _slices(gpu, chosen) if gpu.mig.enabled else [_whole(gpu, chosen)]
            notes += _remarks(gpu)
    order = {kind: n for n, kind in enumerate(dict.fromkeys(d.type for d in devices))}
    taken = {file for device in devices for file in device.files}
    fenced = fence.files(inventory.gpus, taken, chosen.dev) if chosen.fence else ()
    found = OfferedDevices(tuple(sorted(devices, key=lambda d: order[d.type])), tuple(notes), tuple(visible), fenced)
    for kind, count in found.counts.items():
        if not _TYPE.fullmatch(kind):
            raise BlockedError(
                f"invalid GRES type {kind!r}: use letters, digits and _ . + -",
                code="GRES_TYPE",
                next_step="aliquot slurm render --type-style profile",
            )
        if count > MOST:
            raise BlockedError(
                f"{count} GRES of type {kind}: Slurm accepts at most {MOST} on a node",
                code="GRES_TYPE",
                next_step="aliquot show",
            )
    return found


def disagreements(devices: tuple[GresDevice, ...], listed: Mapping[str, int]) -> tuple[str, ...]:
    """Return the devices whose nodes differ from the kernel's list of capabilities, as sentences.

    The list is ``/proc/driver/nvidia-caps/mig-minors``; it maps ``gpu0/gi7/access`` to a minor.
    """
    wrong = []
    for device in devices:
        for key, file in _guards(device):
            minor = listed.get(key)
            if minor is not None and not file.endswith(f"nvidia-cap{minor}"):
                wrong.append(f"{key} is nvidia-cap{minor} in the kernel's list, not {file.rpartition('/')[2]}")
    return tuple(wrong)


def _guards(device: GresDevice) -> Iterator[tuple[str, str]]:
    if device.instance is not None:
        prefix = f"gpu{device.minor}/gi{device.instance}"
        yield f"{prefix}/access", device.files[1]
        yield f"{prefix}/ci{device.compute}/access", device.files[2]


def _named(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.pci})"


def _unusable_reason(gpu: Gpu) -> str:
    """Return why a GPU has no devices for jobs, or ""."""
    if gpu.lost:
        return "it has fallen off the bus"
    if gpu.passthrough:
        return "it is passed through to a VM"
    if gpu.vgpus:
        return "it hosts vGPUs"
    if gpu.mig.enabled and not gpu.instances:
        return "it is in MIG mode without instances"
    if gpu.mig.enabled and not any(i.compute_instances for i in gpu.instances):
        return "its instances have no compute instance"
    return ""


def _remarks(gpu: Gpu) -> Iterator[str]:
    if gpu.mig.current != gpu.mig.pending:
        yield f"{_named(gpu)}: MIG mode will be {gpu.mig.pending} after its next reset"
    for instance in gpu.instances if gpu.mig.enabled else ():
        if not instance.compute_instances:
            yield f"{_named(gpu)}: instance {instance.id} ({instance.profile}) has no compute instance"


def _whole(gpu: Gpu, choice: GresChoice) -> GresDevice:
    return GresDevice(
        type=types.whole_type(gpu, choice.style),
        files=(_gpu_file(gpu, choice),),
        uuid=gpu.uuid,
        pci=gpu.pci,
        gpu=gpu.index,
        minor=gpu.minor,
        detected=types.detected_type(gpu, None, None),
    )


def _slices(gpu: Gpu, choice: GresChoice) -> list[GresDevice]:
    """Return the MIG devices of a GPU in NVML's order: by GPU instance, then by compute instance."""
    found = []
    for instance in sorted(gpu.instances, key=lambda i: i.id):
        for compute in sorted(instance.compute_instances, key=lambda c: c.id):
            found.append(_slice(gpu, instance, compute, choice))
    return found


def _slice(gpu: Gpu, instance: GpuInstance, compute: ComputeInstance, choice: GresChoice) -> GresDevice:
    own = _gpu_file(gpu, choice)
    expected = 3 + 135 * gpu.minor + 9 * instance.id
    caps = (
        _cap_file(gpu, instance.capability_minor, expected, choice),
        _cap_file(gpu, compute.capability_minor, expected + 1 + compute.id, choice),
    )
    return GresDevice(
        type=types.type_of(gpu, instance, compute, choice.style),
        files=(own, *caps),
        uuid=compute.uuid,
        pci=gpu.pci,
        gpu=gpu.index,
        minor=gpu.minor,
        instance=instance.id,
        compute=compute.id,
        detected=types.detected_type(gpu, instance, compute),
    )


def _gpu_file(gpu: Gpu, choice: GresChoice) -> str:
    if gpu.minor < 0:
        raise BlockedError(
            f"the device minor of {_named(gpu)} is unknown, so its device node cannot be named",
            code="NO_MINOR",
            next_step="aliquot show",
        )
    return f"{choice.dev}/nvidia{gpu.minor}"


def _cap_file(gpu: Gpu, minor: int, expected: int, choice: GresChoice) -> str:
    if minor != expected:
        raise BlockedError(
            f"an instance of {_named(gpu)} has an unexpected capability: minor {minor}, not {expected}",
            code="WRONG_CAPABILITY",
            details=("A job must never get a device node that gives access to something else.",),
            next_step="aliquot show",
        )
    return f"{choice.dev}/nvidia-caps/nvidia-cap{minor}"
