"""``aliquot usage``: how much of each instance is used, and whether a smaller profile suffices."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.usage import Usage
from aliquot.core.model.vgpu_usage import VgpuUsage, find_vgpu
from aliquot.core.planner.rightsizing import RightsizingHint, hints
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import usage_text as words
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.node.connect import Connection

MEASURE_S = 0.25
EVERY_S = 5.0
_UNWATCHED_S = 60.0


def run(args: Args) -> int:
    """Measure and print the usage. The NVML session is closed between samples, because it would block a GPU reset."""
    from aliquot.node.dcgm_exporter import DcgmExporter
    from aliquot.node.usage_tracker import UsageTracker, read_vgpus

    if args.watch_for is not None and not (math.isfinite(args.watch_for) and args.watch_for > 0):
        raise UsageError("--watch-for takes a number of seconds above 0", next_step="aliquot usage --watch-for 60")
    exporter = DcgmExporter(args.dcgm, streams.note) if args.dcgm else None
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        node.gpus(inventory, node.gpu_words(args))  # refuses an absent one at once, not after the samples
        watch = UsageTracker(connection, persist=False, fill=exporter.fill if exporter is not None else None)
        usage: tuple[Usage, ...] = ()
        for inventory in _samples(connection, args.watch_for or 0.0):
            usage = watch.sample(connection, inventory, MEASURE_S)
        vgpus = read_vgpus(connection)
    gpus = node.gpus(inventory, node.gpu_words(args))
    _emit(args, inventory, gpus, usage, vgpus)
    return 0


def _samples(connection: Connection, seconds: float) -> Iterator[Inventory]:
    """Yield an inventory at once, and then one every few seconds until ``seconds`` have passed."""
    end = time.monotonic() + seconds
    while True:
        yield connection.backend.read()
        rest = end - time.monotonic()
        if rest <= 0:
            return
        with connection.backend.suspend():
            time.sleep(min(rest, EVERY_S))


def _emit(
    args: Args, inventory: Inventory, gpus: tuple[Gpu, ...], usage: tuple[Usage, ...], vgpus: tuple[VgpuUsage, ...]
) -> None:
    now = time.time()
    chosen = {gpu.pci for gpu in gpus}
    usage = tuple(each for each in usage if each.gpu in chosen)
    vgpus = tuple(each for each in vgpus if each.gpu in chosen)
    found = hints(inventory, usage, now)
    document = output.build("Usage", node=inventory.node, usage=usage, hints=found, vgpus=vgpus)
    output.emit(document, args.output, _text(gpus, usage, vgpus, found, now))
    if args.output != "text":
        return
    if usage and all(now - each.watched_since < _UNWATCHED_S for each in usage) and args.watch_for is None:
        streams.note(
            "idle times and peaks are unknown, because no process samples this host all the time; an agent does, or "
            "aliquot metrics --listen 127.0.0.1:9837"
        )
    if any(each.compute is None and each.instance is not None for each in usage):
        streams.note(
            f"{words.NOT_MEASURED}: the driver measures how busy an instance is from Hopper on; else use DCGM (--dcgm)"
        )


def _text(
    gpus: tuple[Gpu, ...],
    usage: tuple[Usage, ...],
    vgpus: tuple[VgpuUsage, ...],
    found: tuple[RightsizingHint, ...],
    now: float,
) -> str:
    parts = []
    for gpu in gpus:
        lines = _gpu(gpu, [u for u in usage if u.gpu == gpu.pci], found, now)
        lines += draw.table([_vgpu_row(gpu, each) for each in vgpus if each.gpu == gpu.pci])
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _gpu(gpu: Gpu, usage: list[Usage], found: tuple[RightsizingHint, ...], now: float) -> list[str]:
    lines = [mig_picture.title(gpu)]
    if not usage:
        return [*lines, f"  {_nothing(gpu)}"]
    lines += draw.table([_row(gpu, each, now) for each in usage])
    for hint in (h for h in found if h.gpu == gpu.pci):
        lines.append(f"  instance {hint.instance} ({hint.now}): {words.hint(hint)}")
    return lines


def _nothing(gpu: Gpu) -> str:
    if gpu.lost:
        return "it has fallen off the bus"
    if gpu.passthrough:
        return "passed through: only its virtual machine can measure the usage"
    return "MIG mode without instances: nothing can be used"


def _row(gpu: Gpu, usage: Usage, now: float) -> tuple[str, ...]:
    instance = gpu.instance(usage.instance) if usage.instance is not None else None
    name = f"{instance.profile} at {instance.placement}" if instance is not None else "whole GPU"
    number = f"id {usage.instance}" if usage.instance is not None else ""
    memory = words.bar(usage), words.memory(usage)
    return name, number, *memory, words.compute(usage), words.idle(usage, now), _peak(usage, now)


def _vgpu_row(gpu: Gpu, usage: VgpuUsage) -> tuple[str, ...]:
    name = next((each.type for each in gpu.vgpus if each.type_id == usage.type_id), f"vGPU type {usage.type_id}")
    found = find_vgpu(gpu, usage)
    users = ", ".join(map(str, found.holders)) if found is not None else ""
    memory = "" if usage.memory_used_mib is None else f"{words.gib(usage.memory_used_mib)} GiB used"
    return name, found.function if found else "", memory, words.vgpu_shares(usage), words.license_state(usage), users


def _peak(usage: Usage, now: float) -> str:
    seconds = now - usage.watched_since
    if usage.peak_mib is None or seconds < 1:
        return ""
    return f"at most {words.gib(usage.peak_mib)} GiB in {words.span(seconds)}"
