"""vGPUs, virtual functions and passthrough against a wish: every difference, as a sentence."""

from __future__ import annotations

from collections import Counter

from aliquot.core.model.desired import GpuWish, VgpuWish
from aliquot.core.model.inventory import Gpu, Vgpu, Virtual
from aliquot.core.model.plan import Drift
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.vgpu.naming import asked_text


def handed_out(gpu: Gpu, wish: GpuWish) -> list[Drift] | None:
    """What passthrough says of a wish: the drift, or None if the rest is to be looked at."""
    from aliquot.core.planner.vgpu.passthrough import cut_off, needed_back

    if wish.passthrough and cut_off(gpu):
        return [Drift(gpu.pci, "passthrough", f"GPU {gpu.pci} has no driver, it should have {VFIO}", VFIO, "")]
    if wish.passthrough and not gpu.passthrough:
        text = f"GPU {gpu.pci} is not handed out, it should be"
        return [Drift(gpu.pci, "passthrough", text, "passthrough", gpu.virtual.driver if gpu.virtual else "")]
    if not gpu.passthrough:
        return None
    if wish.passthrough or not needed_back(gpu, wish):
        return []
    return [Drift(gpu.pci, "passthrough", f"GPU {gpu.pci} is handed out, it should be here", "", "passthrough")]


def shares(gpu: Gpu, wish: GpuWish) -> list[Drift]:
    """Differences in virtual functions, mixed-size mode and vGPUs."""
    virtual = gpu.virtual or Virtual()
    out: list[Drift] = []
    if wish.functions is not None and wish.functions != virtual.enabled:
        want, have = ("on", "off") if wish.functions else ("off", "on")
        text = f"GPU {gpu.pci}: its virtual functions are {have}, they should be {want}"
        out.append(Drift(gpu.pci, "functions", text, want, have))
    if wish.mixed is not None and virtual.mixed is not None and wish.mixed != virtual.mixed:
        want, have = ("on", "off") if wish.mixed else ("off", "on")
        text = f"GPU {gpu.pci}: mixed-size mode is {have}, it should be {want}"
        out.append(Drift(gpu.pci, "mixed-size", text, want, have))
    if wish.bound is not None:
        out += _bound(gpu, virtual, set(wish.bound))
    if wish.vgpus is not None:
        out += _vgpus(gpu, wish.vgpus)
    return out


def _bound(gpu: Gpu, virtual: Virtual, wanted: set[str]) -> list[Drift]:
    here = {f.pci for f in virtual.functions if f.driver == VFIO}
    missing = [f"virtual function {pci} is not bound to {VFIO}, it should be" for pci in sorted(wanted - here)]
    extra = [f"virtual function {pci} is bound to {VFIO}, it should not be" for pci in sorted(here - wanted)]
    want, have = ", ".join(sorted(wanted)), ", ".join(sorted(here))
    return [Drift(gpu.pci, "bound", f"GPU {gpu.pci}: {text}", want, have) for text in missing + extra]


def _vgpus(gpu: Gpu, wishes: tuple[VgpuWish, ...]) -> list[Drift]:
    """Wishes for a function or a UUID are met by that vGPU alone, the others by any of their type."""
    left = list(gpu.vgpus)
    missing: list[VgpuWish] = []
    for wish in sorted(wishes, key=lambda w: (not w.function, not w.uuid, w.placement is None)):
        found = next((v for v in left if meets(v, wish)), None)
        if found is None:
            missing.append(wish)
        else:
            left.remove(found)
    if not missing and not left:
        return []
    want, have = asked_text(Counter(w.type for w in wishes)), asked_text(Counter(v.type for v in gpu.vgpus))
    out: list[Drift] = []
    for wish in [w for w in missing if w.function]:
        other = next((v for v in left if v.function == wish.function and v.type_id != wish.type_id), None)
        if other is not None and sum(v.function == wish.function for v in gpu.vgpus) == 1:
            missing.remove(wish)
            left.remove(other)
            text = f"GPU {gpu.pci}: {wish.function} has {other.type}, it should have {wish.type}"
            out.append(Drift(gpu.pci, "vgpu-type", text, wish.type, other.type))
    for wish_text, n in Counter(_text(w) for w in missing).items():
        text = f"GPU {gpu.pci}: {n} x {wish_text} missing"
        out.append(Drift(gpu.pci, "vgpu-missing", text, want, have))
    for vgpu in left:
        text = f"GPU {gpu.pci}: {vgpu.type} on {vgpu.function} should not be there"
        out.append(Drift(gpu.pci, "vgpu-extra", text, want, have))
    return out


def meets(vgpu: Vgpu, wish: VgpuWish) -> bool:
    """Whether a vGPU is what was asked."""
    return (
        vgpu.type_id == wish.type_id
        and wish.function in ("", vgpu.function)
        and (not wish.uuid or vgpu.uuid in ("", wish.uuid))
        and (wish.placement is None or vgpu.placement in (None, wish.placement))
    )


def _text(wish: VgpuWish) -> str:
    where = f" on {wish.function}" if wish.function else ""
    name = f" with UUID {wish.uuid}" if wish.uuid and not wish.function else ""
    return wish.type + where + name
