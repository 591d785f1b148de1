"""``aliquot vgpu``: vGPU types, vGPUs and virtual functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aliquot.cli.commands import device_change as sharing
from aliquot.cli.framework import color as colors
from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.cli.framework.views import vgpu_view as vgpu_views
from aliquot.cli.watch.snapshot import WatchSnapshot
from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.vgpu_checks import DRIVER
from aliquot.core.model.vgpu_scheduler import scheduler_of
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import vgpu_picture as shares

if TYPE_CHECKING:
    from aliquot.core.planner.vgpu.creatable_types import TypeAnswer


def run(args: Args) -> int:
    verbs: dict[str, Callable[[Args], int]] = {"types": _types, "list": _list, "enable": _enable, "disable": _disable}
    return verbs[args.verb](args)


def _enable(args: Args) -> int:
    words = node.required_gpu_words(args)

    def make_desired(inventory: Inventory) -> list[DesiredGpu]:
        gpus = node.gpus(inventory, words)
        return [DesiredGpu(gpu.pci, mig=None, instances=None, functions=True) for gpu in gpus]

    return sharing.change(args, words, make_desired)


def _disable(args: Args) -> int:
    words = node.required_gpu_words(args)

    def make_desired(inventory: Inventory) -> list[DesiredGpu]:
        gpus = node.gpus(inventory, words)
        return [DesiredGpu(gpu.pci, mig=None, instances=None, vgpus=(), functions=False) for gpu in gpus]

    return sharing.change(args, words, make_desired)


def _types(args: Args) -> int:
    from aliquot.core.planner.vgpu.creatable_types import type_answers

    inventory = node.inventory(args)
    gpus = node.gpus(inventory, node.gpu_words(args))
    found = [(gpu, type_answers(inventory, gpu)) for gpu in gpus]
    document = output.build("VgpuTypes", node=inventory.node, gpus=[_typed(inventory, g, t) for g, t in found])
    blocks = [[_title(gpu, inventory, answers), *_answers(answers)] for gpu, answers in found if answers]
    text = "\n\n".join("\n".join(lines) for lines in blocks)
    output.emit(document, args.output, text or f"no GPU of {inventory.node} has known vGPU types")
    _advise(args, inventory, [gpu for gpu, answers in found if answers])
    return 0


def _advise(args: Args, inventory: Inventory, gpus: Sequence[Gpu]) -> None:
    """Print what to do if no vGPU can be created now."""
    if args.output != "text":
        return
    if gpus and inventory.host is not None and inventory.host.vgpu_manager is False:
        streams.note(f"next     {DRIVER}")
    for line in vgpu_views.advice(gpus, inventory):
        streams.note(f"note: {line}")


def _typed(inventory: Inventory, gpu: Gpu, answers: Sequence[TypeAnswer]) -> dict[str, Any]:
    table = inventory.vgpu_table(gpu)
    return {
        "pci": gpu.pci,
        "uuid": gpu.uuid,
        "product": gpu.product,
        "source": table.source if table else None,
        "types": [{**output.document(a), "creatable": a.creatable} for a in answers],
    }


def _title(gpu: Gpu, inventory: Inventory, answers: Sequence[TypeAnswer]) -> str:
    shared = vgpu_views.fact(gpu, inventory)
    count = sum(a.creatable for a in answers)
    return f"{mig_picture.title(gpu)}   {count} of {len(answers)} types creatable now" + (
        f"   {shared}" if shared else ""
    )


def _answers(answers: Sequence[TypeAnswer]) -> list[str]:
    backed = any(a.profile for a in answers)
    head = ("type", "id", "GiB", "max", "now", "per VM", "needs" if backed else "", "")
    rows = [
        (
            shares.short(a.name),
            "?" if a.id is None else str(a.id),
            _gib(a.size_mib),
            str(a.max),
            str(a.now) if a.now else "-",
            str(a.per_vm),
            a.profile,
            "; ".join(filter(None, (a.why, a.differs))),
        )
        for a in answers
    ]
    return draw.table([head, *rows])


def _gib(mib: int) -> str:
    return str(mib // 1024) if mib % 1024 == 0 else f"{mib / 1024:g}"


def _list(args: Args) -> int:
    if args.watch is not None:
        from aliquot.cli.watch.watch import watch

        return watch(_listing, args)
    found = _listing(args)
    output.emit(found.document, args.output, found.text)
    _advise(args, found.inventory, [g for g in found.inventory.gpus if found.inventory.vgpu_table(g)])
    return 0


def _listing(args: Args) -> WatchSnapshot:
    inventory = node.inventory(args)
    gpus = node.gpus(inventory, node.gpu_words(args))
    document = output.build("Vgpus", node=inventory.node, gpus=[_plain(g) for g in gpus])
    return WatchSnapshot(inventory, document, draw.lines_in_parts(_listed(gpus, inventory)))


def _plain(gpu: Gpu) -> dict[str, Any]:
    virtual = gpu.virtual
    return {
        "pci": gpu.pci,
        "uuid": gpu.uuid,
        "index": gpu.index,
        "product": gpu.product,
        "world": virtual.framework if virtual else "",
        "functions": len(virtual.functions) if virtual else 0,
        "functions_possible": virtual.total if virtual else 0,
        "mixed": gpu.mixed_size,
        "scheduler": scheduler_of(gpu),
        "vgpus": gpu.vgpus,
        "remembered": virtual.recorded_vgpus if virtual else (),
    }


def _listed(gpus: tuple[Gpu, ...], inventory: Inventory) -> list[str]:
    shown = [g for g in gpus if g.vgpus or vgpu_views.fact(g, inventory) or vgpu_views.rows(g)]
    if not shown:
        return [f"no GPU of {inventory.node} is shared with virtual machines"]
    column = draw.width([line for g in shown for line in (mig_picture.title(g), vgpu_views.now(g, inventory))])
    return [line for g in shown for line in ("", *_gpu(g, inventory, column))][1:]


def _gpu(gpu: Gpu, inventory: Inventory, column: int) -> list[str]:
    facts = list(filter(None, [vgpu_views.fact(gpu, inventory)]))
    lines = [
        *vgpu_views.picture(gpu, mig_picture.title(gpu), inventory, column, colors.wanted()),
        *(f"  {f}" for f in facts),
    ]
    return lines + (draw.table(vgpu_views.rows(gpu)) or ["  no vGPU"])
