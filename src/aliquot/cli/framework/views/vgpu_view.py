"""The lines of ``aliquot show`` and ``aliquot vgpu list`` about GPUs for VMs."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.cli.framework.views import vgpu_drawing as vgpu_drawings
from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.model.vgpu_scheduler import DEFAULT, scheduler_of
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import vgpu_picture as shares


def fact(gpu: Gpu, inventory: Inventory) -> str:
    """Describe how VMs can use this GPU, in a few words; empty if they cannot."""
    virtual = gpu.virtual
    if gpu.passthrough:
        if virtual is not None and not virtual.driver:
            return "has no driver: a change of its passthrough was interrupted"
        group = f", IOMMU group {virtual.iommu_group}" if virtual and virtual.iommu_group is not None else ""
        return f"passed through to virtual machines (vfio-pci{group})"
    if virtual is None or not (hosts(gpu, inventory) or virtual.functions):
        return ""
    parts = ["vGPU host" if hosts(gpu, inventory) else "SR-IOV"]
    parts += [f"{len(virtual.functions)} VFs"] if virtual.functions else ["VFs off"] if virtual.total else []
    parts += [f"framework {virtual.framework}"] if virtual.framework else []
    parts += ["mixed-size mode"] if gpu.mixed_size else []
    parts += [f"scheduler {scheduler_of(gpu)}"] if scheduler_of(gpu) not in ("", DEFAULT) else []
    return ", ".join(parts)


def hosts(gpu: Gpu, inventory: Inventory) -> bool:
    """Report whether vGPUs can be created on it: the vGPU driver manages it, or will once virtual functions are
    enabled.
    """
    virtual = gpu.virtual
    able = inventory.host is not None and bool(inventory.host.vgpu_manager)
    return virtual is not None and not gpu.passthrough and (bool(virtual.framework) or (able and virtual.total > 0))


def advice(gpus: Sequence[Gpu], inventory: Inventory) -> list[str]:
    """Return sentences about how to give VMs those GPUs that offer them nothing now."""
    off = [g for g in gpus if hosts(g, inventory) and g.virtual and g.virtual.total and not g.virtual.enabled]
    gone = [g for g in off if g.virtual and g.virtual.recorded_vgpus]
    sentences = []
    if gone:
        sentences.append(
            f"{_named(gone)} had vGPUs before the reboot: 'aliquot restore --boot' restores what was requested"
        )
    rest = [g for g in off if g not in gone]
    if rest:
        sentences.append(
            f"the virtual functions of {_named(rest)} are off: an apply of vGPUs switches them on, "
            f"'aliquot vgpu enable {rest[0].index}' does only that"
        )
    return sentences


def _named(gpus: Sequence[Gpu]) -> str:
    return f"GPU {', '.join(str(g.index) for g in gpus)}"


def picture(gpu: Gpu, title: str, inventory: Inventory, column: int, tinted: bool) -> list[str]:
    """Return the title, with the GPU's vGPUs over its memory below; without a bar if vGPUs have no placement."""
    if not gpu.vgpus:
        return [title]
    table = inventory.vgpu_table(gpu)
    found = shares.current_vgpus(gpu, table)
    left = now(gpu, inventory)
    if table is None or not shares.drawable(gpu, table, found):
        return [title, left]
    return [vgpu_drawings.ruler(title, table, column), vgpu_drawings.bar(left, found, table, column, tinted)]


def now(gpu: Gpu, inventory: Inventory) -> str:
    """Return ``  now  A2-4Q:3  (a held)``, empty without vGPUs."""
    return f"  now  {shares.summary(shares.current_vgpus(gpu, inventory.vgpu_table(gpu)))}" if gpu.vgpus else ""


def rows(gpu: Gpu) -> list[tuple[str, ...]]:
    """Return a table: letter (in MIG mode that of the GPU instance), type, virtual function, UUID, place on the GPU,
    holder. vGPUs lost in a reboot come last.
    """
    found: list[tuple[str, ...]] = [
        (
            mig_picture.instance_letter(gpu, v.gpu_instance) or shares.vgpu_letter(gpu, n),
            v.type,
            v.function,
            v.uuid,
            _where(gpu, v),
            state(v.holders),
        )
        for n, v in enumerate(gpu.vgpus)
    ]
    if gpu.virtual is None:
        return found
    found += [
        ("", f.driver, f.pci, "", f"VF {f.number}" + _group(f.iommu_group), state(f.holders))
        for f in gpu.virtual.functions
        if f.driver == "vfio-pci"
    ]
    present = {v.key for v in gpu.vgpus}
    gone = [v for v in gpu.virtual.recorded_vgpus if v.key not in present]
    return found + [("", v.type, v.function, v.uuid, "", "remembered: a reboot took it") for v in gone]


def members(gpu: Gpu) -> str:
    """Name the other devices in the IOMMU group of a passed-through GPU: its VM gets them too."""
    others = [m for m in (gpu.virtual.group_members if gpu.virtual else ()) if m != gpu.pci]
    return f"  the group also has {', '.join(others)}" if gpu.passthrough and others else ""


def state(holders: Sequence[object]) -> str:
    """Return ``held by vm 4711 (win10)`` or ``idle``."""
    return f"held by {', '.join(map(str, holders))}" if holders else "idle"


def _where(gpu: Gpu, vgpu: Vgpu) -> str:
    if vgpu.gpu_instance is not None:
        instance = gpu.instance(vgpu.gpu_instance)
        place = f"instance {vgpu.gpu_instance}" + (f" ({instance.profile})" if instance else "")
        # One that all GPU instances have is a fact of the GPU.
        own = f"scheduler {instance.scheduler}" if instance and instance.scheduler and not scheduler_of(gpu) else ""
        return ", ".join(filter(None, (place, own, vgpu.parameters)))
    place = f"place {vgpu.placement}" if vgpu.placement is not None else ""
    return ", ".join(filter(None, (place, vgpu.parameters)))


def _group(number: int | None) -> str:
    return f", IOMMU group {number}" if number is not None else ""
