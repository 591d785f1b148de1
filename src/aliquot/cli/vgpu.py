"""``aliquot vgpu``: types, what there is, and virtual functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliquot.cli import colour, draw, node, output, sharing, vgpuview
from aliquot.cli.parse import Args
from aliquot.model.desired import GpuWish
from aliquot.model.inventory import Gpu, Inventory


def run(args: Args) -> int:
    verbs: dict[str, Callable[[Args], int]] = {"types": _types, "list": _list, "enable": _enable, "disable": _disable}
    return verbs[args.verb](args)


def _enable(args: Args) -> int:
    def wished(inventory: Inventory) -> GpuWish:
        return GpuWish(node.gpu(inventory, args.gpu).pci, mig=None, instances=None, functions=True)

    return sharing.change(args, args.gpu, wished)


def _disable(args: Args) -> int:
    def wished(inventory: Inventory) -> GpuWish:
        return GpuWish(node.gpu(inventory, args.gpu).pci, mig=None, instances=None, vgpus=(), functions=False)

    return sharing.change(args, args.gpu, wished)


def _types(args: Args) -> int:
    inventory = node.inventory(args)
    gpus = (node.gpu(inventory, args.gpu),) if args.gpu else inventory.gpus
    tables = [(g, found) for g in gpus if (found := inventory.vgpu_table(g)) is not None]
    document = output.made(
        "VgpuTypes",
        node=inventory.node,
        gpus=[{"pci": g.pci, "product": g.product, "source": t.source, "types": t.types} for g, t in tables],
    )
    head = ("type", "id", "MiB", "max", "per VM")
    blocks = [
        [
            draw.title(g),
            *draw.table(
                [head, *((t.short, str(t.id or "?"), str(t.fb_mib), str(t.max), str(t.per_vm)) for t in found.types)]
            ),
        ]
        for g, found in tables
    ]
    text = "\n\n".join("\n".join(lines) for lines in blocks)
    output.emit(document, args.output, text or f"no GPU of {inventory.node} has vGPU types that are known")
    return 0


def _list(args: Args) -> int:
    inventory = node.inventory(args)
    gpus = (node.gpu(inventory, args.gpu),) if args.gpu else inventory.gpus
    document = output.made("Vgpus", node=inventory.node, gpus=[_plain(g) for g in gpus])
    output.emit(document, args.output, _listed(gpus, inventory))
    return 0


def _plain(gpu: Gpu) -> dict[str, Any]:
    virtual = gpu.virtual
    return {
        "pci": gpu.pci,
        "uuid": gpu.uuid,
        "index": gpu.index,
        "product": gpu.product,
        "world": virtual.world if virtual else "",
        "functions": len(virtual.functions) if virtual else 0,
        "functions_possible": virtual.total if virtual else 0,
        "mixed": virtual.mixed if virtual else None,
        "vgpus": gpu.vgpus,
        "remembered": virtual.remembered if virtual else (),
    }


def _listed(gpus: tuple[Gpu, ...], inventory: Inventory) -> str:
    shown = [g for g in gpus if g.vgpus or vgpuview.fact(g) or vgpuview.rows(g)]
    if not shown:
        return f"no GPU of {inventory.node} is shared with virtual machines"
    column = draw.width([line for g in shown for line in (draw.title(g), vgpuview.now(g, inventory))])
    return "\n\n".join("\n".join(_gpu(g, inventory, column)) for g in shown)


def _gpu(gpu: Gpu, inventory: Inventory, column: int) -> list[str]:
    facts = [vgpuview.fact(gpu)] if vgpuview.fact(gpu) else []
    lines = [*vgpuview.picture(gpu, inventory, column, colour.wanted()), *(f"  {f}" for f in facts)]
    return lines + (draw.table(vgpuview.rows(gpu)) or ["  no vGPU"])
