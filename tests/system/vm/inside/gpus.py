"""The cards of the guest as NVML would report them, and our kernel code over the real kernel's files."""

from __future__ import annotations

from pathlib import Path

from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.planner.vgpu.naming import stable_uuid
from aliquot.hardware.kernel.backend import Kernel
from aliquot.hardware.kernel.sriov_manage import NoTools
from system.vm.inside.machine import A2, FILES, GROUPED, T4

GPUS = (
    Gpu(A2, "GPU-00000000-0000-4000-8000-000000000100", 0, "NVIDIA A2", "0x25B610DE", "0x157E10DE"),
    Gpu(T4, "GPU-00000000-0000-4000-8000-000000000200", 1, "Tesla T4", "0x1EB810DE", "0x12A210DE"),
    Gpu(GROUPED, "GPU-00000000-0000-4000-8000-000000000501", 2, "Tesla T4", "0x1EB810DE", "0x12A210DE"),
)
DIRECTORY = "/var/lib/aliquot-in-the-guest"


def kernel(directory: str = DIRECTORY) -> Kernel:
    Path(directory).mkdir(parents=True, exist_ok=True)
    return Kernel(FILES, NoTools(), directory, Path("/proc/sys/kernel/random/boot_id").read_text)


def read() -> Inventory:
    """Read the inventory as NodeBackend does: NVML's part, then the kernel's. No remarks are expected."""
    unavailable = {gpu.pci for gpu in kernel().passthrough()}
    seen = kernel().read(Inventory(node="guest", gpus=tuple(gpu for gpu in GPUS if gpu.pci not in unavailable)))
    assert not seen.notes, seen.notes
    return seen


def gpu(pci: str) -> Gpu:
    """Return one GPU, read again."""
    return next(each for each in read().gpus if each.pci == pci)


def bare(pci: str) -> Gpu:
    """Return only NVML's part of a GPU."""
    return next(each for each in GPUS if each.pci == pci)


def make(pci: str, number: int, type_id: int) -> Vgpu:
    """Create a vGPU on virtual function ``number``, or in that slot of a GPU without any. Return it as read back."""
    seen = gpu(pci)
    assert seen.virtual is not None
    function = seen.virtual.functions[number].pci if seen.virtual.functions else pci
    uuid = stable_uuid(seen, number)
    kernel().create_vgpu(bare(pci), function, type_id, uuid)
    return next(each for each in gpu(pci).vgpus if each.uuid == uuid)


def destroy(pci: str, vgpu: Vgpu) -> None:
    kernel().destroy_vgpu(bare(pci), vgpu.function, vgpu.type_id, vgpu.uuid, vgpu.ownership_token)


def destroy_all(pci: str) -> None:
    for each in gpu(pci).vgpus:
        destroy(pci, each)
    assert not gpu(pci).vgpus
