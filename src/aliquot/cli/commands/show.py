"""``aliquot show``: the GPUs, their geometry drawn to the slice, who holds what, and a verdict."""

from __future__ import annotations

from aliquot.cli.framework import color as colour
from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.cli.framework.views import vgpu_view as vgpuview
from aliquot.cli.watch.snapshot import WatchSnapshot
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.rendering import action_text as acts
from aliquot.core.rendering import mig_picture


def run(args: Args) -> int:
    if args.watch is not None:
        from aliquot.cli.watch.watch import watch

        return watch(snapshot, args)
    found = snapshot(args)
    if args.output == "markdown":
        from aliquot.cli.views import ticket

        gpus = (node.gpu(found.inventory, args.gpu),) if args.gpu else found.inventory.gpus
        streams.result(ticket.shown(found.inventory, gpus, found.text))
        return 0
    output.emit(found.document, args.output, found.text)
    return 0


def snapshot(args: Args) -> WatchSnapshot:
    """One fresh look, for programs and for people."""
    from aliquot.core.model import driver_checks as drivers

    inventory = node.inventory(args)
    verdicts = drivers.verdicts(inventory)
    gpus = (node.gpu(inventory, args.gpu),) if args.gpu else inventory.gpus
    document = output.document(inventory) | {"fingerprint": inventory.fingerprint, "verdicts": list(verdicts)}
    advice = vgpuview.advice(gpus, inventory)
    document["notes"] = notes = [*inventory.notes, *drivers.notes(inventory), *advice, *node.set_aside(args.node)]
    document["gpus"] = [output.document(g) for g in gpus]
    for tables in ("tables", "vgpu_tables"):
        document.pop(tables, None)
    return WatchSnapshot(inventory, document, _text(inventory, gpus, notes, verdicts, colour.wanted()))


def _text(
    inventory: Inventory, gpus: tuple[Gpu, ...], notes: list[str], verdicts: tuple[str, ...], tinted: bool
) -> str:
    column = draw.width([line for g in gpus for line in (mig_picture.title(g), _now(g), vgpuview.now(g, inventory))])
    parts = ["\n".join(_gpu(g, inventory, column, tinted)) for g in gpus]
    foot = [f"note: {line}" for line in notes] + [f"warning: {line}" for line in verdicts]
    foot.append(f"verdict: {_verdict(inventory, verdicts)}")
    return "\n\n".join([_head(inventory), *parts, *(["\n".join(foot)] if foot else [])])


def _verdict(inventory: Inventory, verdicts: tuple[str, ...]) -> str:
    capable = sum(g.mig.capable for g in inventory.gpus)
    if verdicts:
        return f"look at the {'warning' if len(verdicts) == 1 else f'{len(verdicts)} warnings'} first"
    hosts = sum(vgpuview.hosts(g, inventory) for g in inventory.gpus)
    if not capable and hosts:
        return f"ready: {'the GPU' if hosts == 1 else f'{hosts} GPUs'} can be shared with virtual machines"
    passed_through = sum(g.passthrough for g in inventory.gpus)
    if not capable and passed_through:
        rest = "" if passed_through == len(inventory.gpus) else ", the rest cannot be divided"
        which = "the GPU is" if passed_through == 1 else f"{passed_through} GPUs are"
        return f"{which} handed out to virtual machines{rest}"
    if not capable:
        return "no GPU of this node can be divided"
    return f"ready: this driver can divide {'the GPU' if capable == 1 else f'all {capable} MIG-capable GPUs'}"


def _head(inventory: Inventory) -> str:
    capable = sum(g.mig.capable for g in inventory.gpus)
    count = "1 GPU" if len(inventory.gpus) == 1 else f"{len(inventory.gpus)} GPUs"
    driver = f"driver {inventory.driver or 'unknown'}   NVML {inventory.nvml or 'unknown'}"
    return f"{inventory.node}   {driver}   {count}, {capable} MIG-capable"


def _now(gpu: Gpu) -> str:
    return f"  now  {mig_picture.summary(mig_picture.current_instances(gpu))}" if gpu.mig.enabled else ""


def _gpu(gpu: Gpu, inventory: Inventory, column: int, tinted: bool) -> list[str]:
    lines = vgpuview.picture(gpu, inventory, column, tinted)
    if gpu.mig.enabled and gpu.family and not gpu.lost:
        family = inventory.family(gpu)
        lines[0] = draw.ruler(mig_picture.title(gpu), family, column)
        lines.insert(1, draw.row(_now(gpu), mig_picture.current_instances(gpu), family, column, tinted))
    lines.append("  " + "   ".join(_facts(gpu, inventory)))
    if gpu.holders:
        lines.append(f"  in use by {acts.holders(gpu.holders)}")
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    lines += draw.table([r for n, i in enumerate(ordered) for r in _rows(mig_picture.LETTERS[n], i)])
    members = vgpuview.members(gpu)
    return [*lines, *([members] if members else []), *draw.table(vgpuview.rows(gpu))]


def _facts(gpu: Gpu, inventory: Inventory) -> list[str]:
    facts = [gpu.uuid, *(["has fallen off the bus"] if gpu.lost else [] if gpu.mig.capable else ["no MIG"])]
    if gpu.mig.capable:
        pending = f" ({gpu.mig.pending} after a reset)" if gpu.mig.pending != gpu.mig.current else ""
        facts.append(f"MIG {gpu.mig.current}{pending}")
    if gpu.family and gpu.mig.capable:
        family = inventory.family(gpu)
        minimum = f", needs driver {family.driver_min} or later" if family.driver_min else ""
        facts.append(f"family {family.name}{minimum}")
    shared = vgpuview.fact(gpu, inventory)
    return facts + ([shared] if shared else [])


def _rows(letter: str, instance: GpuInstance) -> list[tuple[str, ...]]:
    """One line per GPU instance, and one per compute instance where they are more than the whole."""
    inner = instance.compute_instances
    whole = len(inner) == 1 and inner[0].profile == instance.profile
    uuid = inner[0].uuid if whole else "" if inner else "no compute instance"
    first = (letter, f"{instance.profile} at {instance.placement}", f"id {instance.id}", uuid, acts.state(instance))
    if whole:
        return [first]
    return [
        first,
        *(("", f"  {c.profile}", f"ci {c.id}", c.uuid, acts.holders(c.holders)) for c in inner),
    ]
