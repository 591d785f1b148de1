"""The pictures of slices in docs/pictures: placements of profiles, fragmentation, and the ways of sharing a GPU.

All of them are drawn from the catalog, and the planner decides what fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from tools.docs import svg

from aliquot.core.model import catalog, vgpu_types
from aliquot.core.model.actions import Create, Destroy
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Inventory, Mig
from aliquot.core.model.placement import Placement
from aliquot.core.planner.fragmentation import find_fragmentation
from aliquot.core.planner.plan import plan

FAMILY = "a100-40gb"
CELL, ROW, BAR, LEFT, TOP, NOTE = 52, 34, 26, 136, 46, 250
"""Pixels: a memory slice, the distance of two rows, the height of a bar, what stands left of and above the slices, and
right of them."""
Part = tuple[float, float, str, str]
"""Of a bar: where it begins, its width, its class and what is written on it."""


def placements() -> str:
    """Return a picture of every placement of each plain profile of one family."""
    family = catalog.family(FAMILY)
    parts = list(_slice_numbers(family, "memory slice"))
    for number, profile in enumerate(family.plain_profiles):
        y = TOP + number * ROW
        found = [(p.start, p.size, svg.LETTERS[(p.start // p.size) % 2], str(p)) for p in profile.placements]
        parts += [svg.text(profile.name, LEFT - 10, y + 18, 13, anchor="end"), *_slices(family, y, found)]
        width = f"{profile.compute_slices} of {family.compute_slices} compute slices, at most {profile.max_instances}"
        parts.append(svg.text(width, _right(family) + 14, y + 18, 11, "soft", anchor="start"))
    label = f"Every placement of the profiles of {family.title}"
    return svg.picture(_right(family) + NOTE, TOP + len(family.plain_profiles) * ROW + 8, label, parts)


def fragmentation() -> str:
    """Return a picture of a GPU whose free slices no 3g.20gb can use, and of the plan that makes room."""
    family = catalog.family(FAMILY)
    wanted = family.by_name["3g.20gb"]
    inventory = _inventory(family, [("1g.5gb", 0), ("1g.5gb", 4)])
    gpu = inventory.gpus[0]
    measured = find_fragmentation(inventory, gpu)
    assert measured is not None
    capacity = next(each for each in measured.capacities if each.profile_id == wanted.id)
    assert (capacity.now, capacity.lost) == (0, 1), "the picture shows what fragmentation costs"
    rows = [("now", _placed(gpu.instances))]
    notes = [f"{len(measured.free)} of {family.memory_slices} memory slices are free"]
    for place in wanted.placements:
        taken = [i for i in gpu.instances if i.place.mask & place.mask]
        rows.append(("does not fit", [(place.start, place.size, "bad", f"{wanted.name} at {place}")]))
        notes.append(f"{', '.join(f'{i.profile} at {i.placement}' for i in taken)} blocks it")
    rows.append(("after the plan", _planned(inventory, gpu, [wanted, *(family.by_name["1g.5gb"],) * 2])))
    notes.append("one idle instance moved")
    parts = list(_slice_numbers(family, "memory slice"))
    for number, ((title, found), note) in enumerate(zip(rows, notes, strict=True)):
        y = TOP + number * ROW
        parts += [svg.text(title, LEFT - 10, y + 18, 13, anchor="end"), *_slices(family, y, found)]
        parts.append(svg.text(note, _right(family) + 14, y + 18, 11, "soft", anchor="start"))
    label = f"Six memory slices are free, and no {wanted.name} fits until an instance moves"
    return svg.picture(_right(family) + NOTE, TOP + len(rows) * ROW + 8, label, parts)


def sharing() -> str:
    """Return a picture of a GPU divided in each of the four ways."""
    bars = [_mig_bars(), _time_sliced_bars(), _mig_backed_bars(), _whole_bars()]
    parts: list[str] = []
    for number, (title, users, memory, compute) in enumerate(bars):
        y = 20 + number * 104
        parts += [
            svg.text(title, 16, y + 4, 14, anchor="start"),
            svg.text(users, 16, y + 22, 11, "soft", anchor="start"),
        ]
        for line, (what, found) in enumerate((("memory", memory), ("compute", compute))):
            top = y + 32 + line * 30
            parts.append(svg.text(what, 76, top + 17, 11, "soft", anchor="end"))
            parts += _bar(86, top, 600, found)
    return svg.picture(702, 4 * 104 + 10, "How each sharing mode divides the memory and the compute of a GPU", parts)


def _mig_bars() -> tuple[str, str, list[Part], list[Part]]:
    family = catalog.family(FAMILY)
    placed = [("1g.5gb", 0), ("1g.5gb", 1), ("2g.10gb", 2), ("3g.20gb", 4)]
    memory, compute = _instance_parts(family, placed, [name for name, _ in placed])
    return "MIG", "Containers, pods and jobs: each has its own memory and its own compute slices.", memory, compute


def _mig_backed_bars() -> tuple[str, str, list[Part], list[Part]]:
    table = _vgpu_table("NVIDIA H100 80GB HBM3")
    family = catalog.family(table.mig_family or "")
    names = ["H100XM-2-20C", "H100XM-2-20C", "H100XM-3-40C"]
    profiles = [table.by_name[name].profile for name in names]
    memory, compute = _instance_parts(family, list(zip(profiles, (0, 2, 4), strict=True)), names)
    return "MIG-backed vGPU", "VMs: each vGPU has a GPU instance, and so its own compute slices.", memory, compute


def _time_sliced_bars() -> tuple[str, str, list[Part], list[Part]]:
    table = _vgpu_table("NVIDIA L40S")
    each = table.by_name["L40S-12Q"]
    memory = [(n / each.max, 1 / each.max, svg.LETTERS[n], each.short) for n in range(each.max)]
    turns = 4 * each.max
    compute = [(n / turns, 1 / turns, svg.LETTERS[n % each.max], "all" if n < each.max else "") for n in range(turns)]
    return "Time-sliced vGPU", "VMs: each has its own memory, and in turn all of the compute.", memory, compute


def _whole_bars() -> tuple[str, str, list[Part], list[Part]]:
    whole: list[Part] = [(0, 1, "a", "the whole GPU")]
    return "Passthrough", "One VM has the whole PCI function, and its own driver for it.", whole, whole


def _instance_parts(
    family: catalog.Family, placed: Sequence[tuple[str, int]], names: Sequence[str]
) -> tuple[list[Part], list[Part]]:
    """Return memory and compute of some instances, as shares of the GPU."""
    memory: list[Part] = []
    compute: list[Part] = []
    done = 0
    for letter, (name, start), words in zip(svg.LETTERS, placed, names, strict=False):
        profile = family.by_name[name]
        assert start in profile.starts, f"{name} cannot begin at {start}"
        memory.append((start / family.memory_slices, profile.size / family.memory_slices, letter, words))
        share = profile.compute_slices / family.compute_slices
        compute.append(
            (done / family.compute_slices, share, letter, f"{profile.compute_slices}/{family.compute_slices}")
        )
        done += profile.compute_slices
    assert done <= family.compute_slices, "more compute slices than the GPU has"
    return memory, compute


def _vgpu_table(name: str) -> vgpu_types.VgpuTable:
    row = next(row for row in vgpu_types.rows() if row.name == name)
    table = vgpu_types.table(row.pci_device, row.subsystem)
    assert table is not None, name
    return table


def _bar(x: float, y: float, width: float, found: Iterable[Part]) -> Iterator[str]:
    yield svg.rect("free", x, y, width, BAR)
    for start, share, kind, words in found:
        yield svg.rect(kind, x + start * width, y, share * width, BAR)
        assert svg.width_of(words, 11) <= share * width, f"no room for: {words}"
        yield svg.text(words, x + (start + share / 2) * width, y + 17, 11)


def _slices(family: catalog.Family, y: float, found: Iterable[tuple[int, int, str, str]]) -> Iterator[str]:
    """Draw a row of memory slices with the instances on them."""
    for slice_ in range(family.memory_slices):
        yield svg.rect("free", LEFT + slice_ * CELL, y, CELL, BAR)
    for start, size, kind, words in found:
        yield svg.rect(kind, LEFT + start * CELL + 1, y + 1, size * CELL - 2, BAR - 2, 3)
        assert svg.width_of(words, 11) <= size * CELL, f"no room for: {words}"
        yield svg.text(words, LEFT + (start + size / 2) * CELL, y + 17, 11)


def _slice_numbers(family: catalog.Family, words: str) -> Iterator[str]:
    yield svg.text(words, LEFT - 10, TOP - 12, 11, "soft", anchor="end")
    for slice_ in range(family.memory_slices):
        yield svg.text(str(slice_), LEFT + (slice_ + 0.5) * CELL, TOP - 12, 11, "soft")


def _right(family: catalog.Family) -> int:
    return LEFT + family.memory_slices * CELL


def _inventory(family: catalog.Family, placed: Sequence[tuple[str, int]]) -> Inventory:
    """Build a node with one GPU that has these idle instances."""
    instances = []
    for number, (name, start) in enumerate(placed):
        profile = family.by_name[name]
        inside = profile.default_compute
        compute = ComputeInstance(0, inside.name, inside.id, str(inside.placements[0]))
        place = str(profile.placement(start))
        instances.append(GpuInstance(number, name, profile.id, place, compute_instances=(compute,)))
    product = family.products[0]
    mig = Mig(capable=True, current="enabled", pending="enabled")
    gpu = Gpu("0000:01:00.0", "GPU-0", 0, product.name, product.pci_device, family=family.name, mig=mig)
    return Inventory("node", (msgspec.structs.replace(gpu, instances=tuple(instances)),))


def _planned(inventory: Inventory, gpu: Gpu, wanted: Sequence[catalog.Profile]) -> list[tuple[int, int, str, str]]:
    """Return the instances on the slices after the planner's plan."""
    requests = tuple(DesiredInstance(p.id, p.name, (p.default_compute.id,)) for p in wanted)
    found = plan(inventory, Desired((DesiredGpu(gpu.pci, mig=True, instances=requests),)))
    assert not found.blocked, found.blockers
    gone = {action.instance for action in found.actions if isinstance(action, Destroy)}
    stay = _placed([i for i in gpu.instances if i.id not in gone])
    new = [action for action in found.actions if isinstance(action, Create)]
    places = [(Placement.parse(each.placement), each.profile) for each in new]
    return stay + [
        (place.start, place.size, letter, name)
        for letter, (place, name) in zip(svg.LETTERS[1:], sorted(places, key=lambda p: p[0].start), strict=False)
    ]


def _placed(instances: Iterable[GpuInstance]) -> list[tuple[int, int, str, str]]:
    return [(i.place.start, i.place.size, svg.LETTERS[n], i.profile) for n, i in enumerate(instances)]
