"""The table of a GPU's instances: profile, holder and usage."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.model.usage import Usage
from aliquot.core.rendering import mig_picture
from aliquot.dashboard import formatting as words


class ComputeInstanceRow(msgspec.Struct, frozen=True):
    """A compute instance that is not the whole of its GPU instance."""

    profile: str
    uuid: str
    state: str


class InstanceRow(msgspec.Struct, frozen=True):
    """A GPU instance. ``since`` is when it was last seen held (seconds of wall time), 0 if unknown.

    ``rest`` is the GPU's geometry without it, as ``PartitionGpu.mig``; "" if it cannot be destroyed by itself.
    """

    letter: str
    profile: str
    slices: str
    id: int
    uuid: str
    state: str
    held: bool
    since: int
    memory: str
    used: float | None
    busy: str
    peak: str = ""
    inside: tuple[ComputeInstanceRow, ...] = ()
    vgpus: tuple[str, ...] = ()
    rest: str = ""


def rows(gpu: Gpu, usage: Sequence[Usage]) -> tuple[InstanceRow, ...]:
    """Build the rows in the order of memory slices, with the letters of the picture."""
    known = {u.instance: u for u in usage if u.gpu == gpu.pci}
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    return tuple(_row(gpu, mig_picture.LETTERS[n], i, known.get(i.id)) for n, i in enumerate(ordered))


def _row(gpu: Gpu, letter: str, instance: GpuInstance, usage: Usage | None) -> InstanceRow:
    parts = instance.compute_instances
    whole = len(parts) == 1 and parts[0].profile == instance.profile
    known = usage or Usage(gpu.pci)
    total, used = known.memory_total_mib, known.memory_used_mib
    inside = () if whole else tuple(_inside(c.profile, c.uuid, bool(c.holders)) for c in parts)
    since = known.idle_since
    return InstanceRow(
        letter=letter,
        profile=words.clean(instance.profile),
        slices=words.place(instance.place),
        id=instance.id,
        uuid=words.clean(parts[0].uuid) if whole else "" if parts else "no compute instance: nothing can run on it",
        state=words.state(instance) if instance.held or instance.holders else words.idle(since, words.now()),
        held=instance.held,
        since=int(since) if since is not None and not instance.held else 0,
        memory=_memory(used, total),
        used=used / total if used is not None and total else None,
        busy=words.percent(known.compute),
        peak=f"peak {words.memory(known.peak_mib)}" if known.peak_mib is not None else "",
        inside=inside,
        vgpus=tuple(f"{words.clean(v.type)} on {v.function}" for v in gpu.vgpus if v.gpu_instance == instance.id),
        rest=_rest(gpu, instance) if not instance.held and not mig_picture.has_divided_instances(gpu) else "",
    )


def _inside(profile: str, uuid: str, held: bool) -> ComputeInstanceRow:
    return ComputeInstanceRow(words.clean(profile), words.clean(uuid), "held" if held else "idle")


def _memory(used: int | None, total: int | None) -> str:
    if used is None:
        return words.UNKNOWN if total is None else f"{words.memory(total)}, use {words.UNKNOWN}"
    return words.memory(used) + (f" of {words.memory(total)}" if total is not None else "")


def _rest(gpu: Gpu, removed: GpuInstance) -> str:
    return ",".join(f"{i.profile}@{i.place.start}" for i in gpu.instances if i is not removed) or "empty"
