"""Blockers of requests for vGPUs, virtual functions or passthrough, with next commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from aliquot.core.model.inventory import Gpu, Holder, Vgpu
from aliquot.core.model.plan import Blocker
from aliquot.core.model.structured_text import GpuName, GpuPart, Part, StructuredText
from aliquot.core.model.vgpu_checks import DRIVER
from aliquot.core.planner.blockers import holders_next_step
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu.naming import plan_command, vgpu_argument
from aliquot.core.planner.vgpu.placement_policies import Types
from aliquot.core.planner.vgpu.rules import counts_by_name, types_text

_TRIES = 24
"""Number of parts of a request to try one by one for the nearest. After that, ``nearest`` goes type by type."""


Feasible = Callable[[Types], bool]


def nearest(types: Types, feasible: Feasible) -> Types:
    """Return a large feasible part of some wanted vGPUs. Empty if nothing is feasible.

    It is the largest by number, then by size, if found within ``_TRIES``.
    """
    for counts in islice(_by_size([n for _, n in types]), _TRIES):
        some = [(t, n) for (t, _), n in zip(types, counts, strict=True) if n]
        if some and feasible(some):
            return some
    best: Types = []
    for ordered in (types, list(reversed(types))):
        some = []
        for each, n in ordered:
            fits = _most(n, lambda k, chosen=some, each=each: feasible([*chosen, (each, k)]))  # type: ignore[misc]
            some = [*some, (each, fits)] if fits else some
        best = max(best, some, key=lambda found: sum(n for _, n in found))
    return best


def _by_size(most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every vector of counts below ``most``, by falling sum. The first ones reduce the last types."""

    def reduced(index: int, gone: int) -> Iterator[tuple[int, ...]]:
        if index == len(most):
            if not gone:
                yield ()
            return
        for lost in range(max(0, gone - sum(most[index + 1 :])), min(gone, most[index]) + 1):
            for tail in reduced(index + 1, gone - lost):
                yield (most[index] - lost, *tail)

    for gone in range(sum(most)):
        yield from reduced(0, gone)


def _most(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number that fits, given that every smaller one fits."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def impossible(gpu: Gpu, types: Types, refusal: RuleRefusal, near: Types, mixed: bool) -> Blocker:
    """Return the blocker for vGPUs that no state of this GPU can hold together."""
    counts = counts_by_name(near)
    return Blocker(
        rule=refusal.rule,
        text=f"{gpu.product} cannot hold {types_text(types)}: {refusal.message}",
        gpu=gpu.pci,
        suggestion=vgpu_argument(counts) if near else None,
        step=plan_command(gpu, counts, mixed) if near else StructuredText("aliquot vgpu types ", GpuPart(gpu.pci)),
    )


def _about(gpu: Gpu, *parts: Part) -> StructuredText:
    """Return a message about a GPU: ``GPU 0000:41:00.0: it has no virtual functions``."""
    return StructuredText(GpuName(gpu.pci, ": "), *parts)


def list_vgpus(gpu: Gpu, vgpus: Sequence[Vgpu]) -> StructuredText:
    """List vGPUs with their functions, of which one may be the GPU itself: ``NVIDIA A2-4Q on 0000:41:00.4``."""
    functions = (GpuPart(v.function) if v.function == gpu.pci else v.function for v in vgpus)
    return StructuredText.joined(
        ", ", (StructuredText(f"{v.type} on ", each) for v, each in zip(vgpus, functions, strict=True))
    )


def refused(gpu: Gpu, refusal: RuleRefusal, next_step: str | None = None) -> Blocker:
    """Return the blocker for a refusal that names its reason in full."""
    step = next_step or StructuredText("aliquot vgpu types ", GpuPart(gpu.pci))
    return Blocker(refusal.rule, _about(gpu, refusal.message), gpu.pci, step=step)


def held(gpu: Gpu, what: str, vgpus: Sequence[Vgpu], near: Types = ()) -> Blocker:
    """Return the blocker for a request that can only be met by destroying vGPUs that VMs have open."""
    count = "1 vGPU is held" if len(vgpus) == 1 else f"{len(vgpus)} vGPUs are held"
    counts = counts_by_name(near)
    return Blocker(
        rule="HELD",
        text=_about(gpu, f"{what} while {count} (", list_vgpus(gpu, vgpus), ")"),
        gpu=gpu.pci,
        holders=tuple(h for v in vgpus for h in v.holders),
        suggestion=vgpu_argument(counts) if near else None,
        step=holders_next_step([h for v in vgpus for h in v.holders]),
    )


def functions_in_use(gpu: Gpu, what: str, holders: Sequence[Holder], listed: str, next_step: str = "") -> Blocker:
    """Return the blocker for virtual functions in use that would have to be disabled."""
    return Blocker(
        rule="FUNCTIONS_IN_USE",
        text=_about(gpu, f"{what} while its virtual functions are in use (", listed, ")"),
        gpu=gpu.pci,
        holders=tuple(holders),
        step=next_step or holders_next_step(holders),
    )


def no_driver(gpu: Gpu, why: str) -> Blocker:
    text = StructuredText(GpuName(gpu.pci, " "), f"({gpu.product}) cannot have vGPUs here: {why}")
    return Blocker("NO_VGPU_DRIVER", text, gpu.pci, step=DRIVER)


def no_iommu(gpu: Gpu, what: str) -> Blocker:
    text = _about(gpu, f"{what} needs an IOMMU, and none is on")
    step = "turn on VT-d or AMD-Vi (firmware, and intel_iommu=on), reboot, then: aliquot passthrough list"
    return Blocker("NO_IOMMU", text, gpu.pci, step=step)


def no_vfio(gpu: Gpu) -> Blocker:
    """Return the blocker for a missing vfio-pci. Found only during the apply, everything else would be destroyed by
    then.
    """
    text = _about(gpu, "passthrough needs the driver vfio-pci, which is not loaded")
    step = "modprobe vfio-pci, then: aliquot passthrough list"
    return Blocker("NO_VFIO", text, gpu.pci, step=step)


def foreign_group(gpu: Gpu, foreign: Sequence[str]) -> Blocker:
    """Return the blocker for other devices in the GPU's IOMMU group. Passthrough affects the whole group."""
    group = gpu.virtual.iommu_group if gpu.virtual else None
    listed = ", ".join(foreign)
    return Blocker(
        rule="IOMMU_GROUP",
        text=StructuredText(GpuName(gpu.pci, " "), f"shares IOMMU group {group} with other devices: {listed}"),
        gpu=gpu.pci,
        step=StructuredText(
            "move the GPU to another slot, or stop using those devices; see aliquot passthrough check ",
            GpuPart(gpu.pci),
        ),
    )


def passed_through(gpu: Gpu) -> Blocker:
    """Return the blocker for a GPU that a VM has."""
    return Blocker(
        rule="PASSTHROUGH",
        text=StructuredText(GpuName(gpu.pci, " "), f"({gpu.product}) is passed through and in use"),
        gpu=gpu.pci,
        holders=gpu.holders,
        step=holders_next_step(gpu.holders),
    )


def unknown_functions(gpu: Gpu, why: str, functions: Sequence[str]) -> Blocker:
    """Return the blocker for virtual functions that were named and do not exist."""
    text = _about(gpu, f"{', '.join(functions)} {why}")
    return Blocker("NO_FUNCTION", text, gpu.pci, step=StructuredText("aliquot vgpu list ", GpuPart(gpu.pci)))
