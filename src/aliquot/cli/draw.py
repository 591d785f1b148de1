"""GPUs and plans, drawn to the memory slice."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.cli import colour, vgpudraw
from aliquot.model.actions import (
    Action,
    Create,
    CreateCompute,
    CreateVgpu,
    Destroy,
    DestroyCompute,
    DestroyVgpu,
    Reset,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
)
from aliquot.model.catalog import Family
from aliquot.model.geometry import geometry, geometry_text
from aliquot.model.inventory import Gpu, GpuInstance, Holder
from aliquot.model.placement import Placement

LETTERS = "abcdefghijklmnopqrstuvwxyz"
_RULER = "memory slice  "


class Piece(msgspec.Struct, frozen=True):
    """One instance in a picture: a letter on its memory slices."""

    letter: str
    profile: str
    place: Placement
    held: bool = False
    tint: str = ""


def now(gpu: Gpu) -> tuple[Piece, ...]:
    """The instances that are, lettered from the lowest memory slice on."""
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    return tuple(
        Piece(LETTERS[n], i.profile, i.place, i.held, colour.YELLOW if i.held else "") for n, i in enumerate(ordered)
    )


def planned(gpu: Gpu, actions: Sequence[Action]) -> tuple[Piece, ...]:
    """The instances that will be: those that stay keep their letters, new ones get the next, from the left."""
    gone = {Placement.parse(a.placement) for a in actions if isinstance(a, Destroy)}
    wiped = any(isinstance(a, Reset) for a in actions)
    stay = [p for p in now(gpu) if p.place not in gone and not wiped]
    new = sorted((Placement.parse(a.placement), a.profile) for a in actions if isinstance(a, Create))
    offset = len(gpu.instances)
    made = [Piece(LETTERS[offset + n], name, place, tint=colour.GREEN) for n, (place, name) in enumerate(new)]
    return tuple(sorted([*stay, *made], key=lambda p: p.place.start))


def product(gpu: Gpu) -> str:
    """The product name without the vendor, which is always the same."""
    return gpu.product.removeprefix("NVIDIA ")


def title(gpu: Gpu) -> str:
    return f"GPU {gpu.index}  {gpu.pci}  {product(gpu)}"


def summary(pieces: Sequence[Piece]) -> str:
    """``1g.5gb:3  (a held)``."""
    held = [p.letter for p in pieces if p.held]
    return geometry_text(geometry(p.profile for p in pieces)) + (f"  ({', '.join(held)} held)" if held else "")


def width(lines: Sequence[str]) -> int:
    """The column at which the ruler starts, so that every GPU of a picture lines up."""
    return max((len(line) for line in lines), default=0) + 2


def ruler(left: str, family: Family, column: int) -> str:
    """A GPU's first line, with the numbers of its memory slices."""
    cell = len(str(family.memory_slices - 1))
    numbers = " ".join(f"{n:>{cell}}" for n in range(family.memory_slices))
    return f"{left:<{column}}{_RULER}{numbers}"


def row(left: str, pieces: Sequence[Piece], family: Family, column: int, tinted: bool) -> str:
    """A line of letters under the ruler."""
    cell = len(str(family.memory_slices - 1))
    letters = ["."] * family.memory_slices
    for piece in pieces:
        for n in range(piece.place.start, min(piece.place.start + piece.place.size, family.memory_slices)):
            letters[n] = colour.paint(piece.letter, piece.tint, tinted)
    return f"{left:<{column}}{' ' * len(_RULER)}" + " ".join(" " * (cell - 1) + letter for letter in letters)


def act(action: Action, gpu: Gpu, actions: Sequence[Action]) -> tuple[str, str, str]:
    """An action as verb, letter and object."""
    match action:
        case Destroy():
            letter = _letter(now(gpu), action.placement)
            return "destroy", letter, f"{action.profile} at {action.placement}"
        case Create():
            letter = _letter(planned(gpu, actions), action.placement)
            inside = [part.profile for part in action.compute]
            more = "" if inside == [action.profile] else f" with {' + '.join(inside) or 'no compute instance'}"
            return "create", letter, f"{action.profile} at {action.placement}{more}"
        case DestroyCompute():
            return "destroy", instance_letter(gpu, action.instance), f"{action.profile} (compute instance)"
        case CreateCompute():
            return "create", instance_letter(gpu, action.instance), f"{action.profile} (compute instance)"
        case SetMode():
            return "set", "", f"MIG mode {action.mode}"
        case Reset():
            return "reset", "", "the GPU"
        case SetFunctions():
            count = "1 virtual function" if action.count == 1 else f"{action.count} virtual functions"
            return "set", "", f"{count} on" if action.count else "virtual functions off"
        case SetMixedSize():
            return "set", "", f"mixed-size mode {'on' if action.on else 'off'}"
        case CreateVgpu():
            letter = _letter(planned(gpu, actions), action.instance) if action.instance is not None else ""
            letter = letter or _share(vgpudraw.planned(gpu, actions, None), action)
            return "create", letter, f"{_vgpu(action)}{_where(action)}"
        case DestroyVgpu():
            named = (action.function, action.uuid)
            owner = next((v.gpu_instance for v in gpu.vgpus if (v.function, v.uuid) == named), None)
            return "destroy", instance_letter(gpu, owner) or _share(vgpudraw.now(gpu, None), action), _vgpu(action)
        case SetPassthrough():
            what = f"passthrough of {action.function}" if action.function else "passthrough"
            return "set", "", f"{what} {'on' if action.on else 'off'}"


def _vgpu(action: CreateVgpu | DestroyVgpu) -> str:
    return f"{vgpudraw.short(action.type)} on {action.function}"


def _where(action: CreateVgpu) -> str:
    if action.instance is not None:
        return f", instance at {action.instance}"
    return f" at {action.placement} GiB" if action.placement is not None else ""


def _share(shares: Sequence[vgpudraw.Share], action: CreateVgpu | DestroyVgpu) -> str:
    return next((s.letter for s in shares if s.key == (action.function, action.uuid)), "")


def _letter(pieces: Sequence[Piece], placement: str) -> str:
    place = Placement.parse(placement)
    return next((p.letter for p in pieces if p.place == place), "")


def instance_letter(gpu: Gpu, instance_id: int | None) -> str:
    """The letter of a GPU instance, empty for none."""
    instance = None if instance_id is None else gpu.instance(instance_id)
    return _letter(now(gpu), instance.placement) if instance else ""


def holders(found: Sequence[Holder]) -> str:
    return ", ".join(map(str, found))


def state(instance: GpuInstance) -> str:
    """``held by process 4711 (python)`` or ``idle``."""
    found = [
        *instance.holders,
        *(h for c in instance.compute_instances for h in c.holders if h not in instance.holders),
    ]
    if len(found) > 2 and all(h.kind == "vgpu" for h in found):
        return f"held by {len(found)} vGPUs"
    if found:
        return f"held by {holders(found)}"
    return "held" if instance.held else "idle"


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows in aligned columns; empty columns vanish."""
    if not rows:
        return []
    widths = [max(len(r[n]) for r in rows) for n in range(len(rows[0]))]
    keep = [n for n, w in enumerate(widths) if w]
    return [(indent + "  ".join(f"{r[n]:<{widths[n]}}" for n in keep)).rstrip() for r in rows]
