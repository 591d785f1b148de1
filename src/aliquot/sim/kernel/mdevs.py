"""The files of NVIDIA's vGPU driver below a function: mdev types and mdevs, or the files of vendor-specific VFIO."""

from __future__ import annotations

from aliquot.core.model.vgpu_types import VgpuType
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.kernel import rules, vgpus, vms
from aliquot.sim.kernel.tree_entries import Dir, Entry, File, WritableFile, folder, line, text, up
from aliquot.sim.node import SimNode
from aliquot.sim.state import FunctionState, VgpuState

_RESOLUTIONS = {"C": "4096x2400", "A": "1280x1024", "B": "5120x2880", "Q": "7680x4320"}
"""Resolutions of types that have no published one; that of C is captured (A2-4C)."""

_DEPTH = 5
"""The depth of an mdev's directory below /sys."""


def description(kind: VgpuType) -> str:
    resolution = kind.max_res or _RESOLUTIONS.get(kind.series[:1], "4096x2160")
    return (
        f"num_heads={kind.heads}, frl_config={kind.frl}, framebuffer={kind.fb_mib}M, "
        f"max_resolution={resolution}, max_instance={kind.max}"
    )


def parent(node: SimNode, gpu: SimGpu, function: str) -> dict[str, Entry]:
    """Return the entries that mdevs add to the directory of their parent function."""
    found: dict[str, Entry] = {
        "mdev_supported_types": Dir(
            lambda: {k.mdev: _type(node, gpu, function, k) for k in rules.types(gpu.state)},
        )
    }
    for vgpu in gpu.state.vgpus:
        if vgpu.function == function:
            found[vgpu.uuid] = _mdev(node, gpu, vgpu)
    return found


def _type(node: SimNode, gpu: SimGpu, function: str, kind: VgpuType) -> Dir:
    number = kind.id or 0

    def create(value: str) -> None:
        vgpus.create(node, gpu, function, number, value)

    def made() -> dict[str, Entry]:
        own = [v.uuid for v in gpu.state.vgpus if (v.function, v.type_id) == (function, number)]
        return {uuid: up(3, uuid) for uuid in own}

    return Dir(
        lambda: {
            "name": text(f"{kind.name}\n"),
            "description": text(description(kind) + "\n"),
            "device_api": text("vfio-pci\n"),
            "available_instances": line(lambda: rules.available(gpu.state, function, kind)),
            "create": File(write=WritableFile(gpu.state.index, create)),
            "devices": Dir(made),
        }
    )


def _mdev(node: SimNode, gpu: SimGpu, vgpu: VgpuState) -> Dir:
    index = gpu.state.index

    def vm_name() -> str:
        running = vms.open_on(node, vgpu.uuid)
        return running.name if running else ""

    def remove(value: str) -> None:
        vgpus.remove(node, gpu, vgpu, value)

    def params(value: str) -> None:
        vgpus.set_params(node, vgpu, value)

    entries: dict[str, Entry] = {
        "mdev_type": up(1, f"mdev_supported_types/nvidia-{vgpu.type_id}"),
        "driver": up(_DEPTH, "bus/mdev/drivers/nvidia-vgpu-vfio"),
        "subsystem": up(_DEPTH, "bus/mdev"),
        "iommu_group": up(_DEPTH, f"kernel/iommu_groups/{vgpu.group}"),
        "uevent": text("DRIVER=nvidia-vgpu-vfio\nMODALIAS=mdev:c\n"),
        "remove": File(write=WritableFile(index, remove)),
        "nvidia": folder(
            {
                "vgpu_params": File(lambda: f"{vgpu.params}\n", WritableFile(index, params)),
                "vm_name": line(vm_name),
            }
        ),
    }
    return folder(entries)


def vendor(node: SimNode, gpu: SimGpu, function: FunctionState, address: str) -> Dir:
    """Return ``nvidia/`` of a virtual function in a kernel with vendor-specific VFIO."""
    index, state = gpu.state.index, gpu.state

    def listing() -> str:
        rows = (f"{k.id or 0:<5} : {k.name}\n" for k in rules.creatable(state, address))
        return "ID    : vGPU Name\n" + "".join(rows)

    def current() -> int:
        found = vgpus.on(gpu, address)
        return found.type_id if found else 0

    def params() -> str:
        found = vgpus.on(gpu, address)
        return found.params if found else ""

    def writing(apply: vgpus.FunctionWrite) -> WritableFile:
        return WritableFile(index, lambda value: apply(node, gpu, function, value), quiet=True)

    def set_params(value: str) -> None:
        vgpus.set_params(node, vgpus.on(gpu, address), value)

    return folder(
        {
            "creatable_vgpu_types": File(listing),
            "current_vgpu_type": File(lambda: f"{current()}\n", writing(vgpus.set_type)),
            "gpu_instance_id": File(lambda: f"{vgpus.instance_id(gpu, function)}\n", writing(vgpus.move_instance)),
            "placement_id": File(lambda: f"{vgpus.placement_id(gpu, function)}\n", writing(vgpus.move_placement)),
            "vgpu_params": File(lambda: f"{params()}\n", WritableFile(index, set_params, quiet=True)),
            "warm_update": text("0\n"),
        }
    )
