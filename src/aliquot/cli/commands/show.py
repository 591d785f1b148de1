"""``aliquot show``: the GPUs, their geometry drawn by memory slice, the holders, and a verdict."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from aliquot.cli.framework import color as colors
from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.cli.framework.views import vgpu_view as vgpu_views
from aliquot.cli.watch.snapshot import WatchSnapshot
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.rendering import action_text as action_texts
from aliquot.core.rendering import gpu_groups, mig_picture


def run(args: Args) -> int:
    if args.watch is not None:
        from aliquot.cli.watch.watch import watch

        return watch(snapshot, args)
    found = snapshot(args)
    if args.output == "markdown":
        from aliquot.cli.views import ticket

        gpus = node.gpus(found.inventory, node.gpu_words(args))
        streams.result(ticket.shown(found.inventory, gpus, found.text))
        return 0
    output.emit(found.document, args.output, found.text)
    return 0


def snapshot(args: Args) -> WatchSnapshot:
    """Read the node, and return the result for programs and as text."""
    from aliquot.core.model import driver_checks as drivers

    inventory = node.inventory(args)
    verdicts = drivers.verdicts(inventory)
    gpus = node.gpus(inventory, node.gpu_words(args))
    document = output.document(inventory) | {"fingerprint": inventory.fingerprint, "verdicts": list(verdicts)}
    advice = vgpu_views.advice(gpus, inventory)
    document["notes"] = notes = [*inventory.notes, *drivers.notes(inventory), *advice, *node.set_aside(args.sim)]
    document["gpus"] = [output.document(g) for g in gpus]
    for tables in ("tables", "vgpu_tables"):
        document.pop(tables, None)
    groups = gpu_groups.group_gpus(
        gpus, lambda gpu: _drawing(gpu, inventory), each=args.each or args.output == "markdown"
    )
    lines = _lines(inventory, groups, notes, verdicts, colors.wanted())
    return WatchSnapshot(inventory, document, draw.lines_in_parts(lines))


def _lines(
    inventory: Inventory, groups: list[tuple[Gpu, ...]], notes: list[str], verdicts: tuple[str, ...], tinted: bool
) -> Iterator[str]:
    lefts = ((gpu_groups.group_title(g), _now(g[0]), vgpu_views.now(g[0], inventory)) for g in groups)
    column = draw.width([line for left in lefts for line in left])
    yield _head(inventory)
    for group in groups:
        yield from ("", *_group(group, inventory, column, tinted))
    yield ""
    yield from (f"note: {line}" for line in notes)
    yield from (f"warning: {line}" for line in verdicts)
    yield f"verdict: {_verdict(inventory, verdicts)}"


def _verdict(inventory: Inventory, verdicts: tuple[str, ...]) -> str:
    capable = sum(g.mig.capable for g in inventory.gpus)
    if verdicts:
        return f"look at the {'warning' if len(verdicts) == 1 else f'{len(verdicts)} warnings'} first"
    hosts = sum(vgpu_views.hosts(g, inventory) for g in inventory.gpus)
    if not capable and hosts:
        return f"ready: {'the GPU' if hosts == 1 else f'{hosts} GPUs'} can be shared with virtual machines"
    passed_through = sum(g.passthrough for g in inventory.gpus)
    if not capable and passed_through:
        rest = "" if passed_through == len(inventory.gpus) else ", the rest cannot be divided"
        which = "the GPU is" if passed_through == 1 else f"{passed_through} GPUs are"
        return f"{which} passed through to virtual machines{rest}"
    if not capable:
        return "no GPU of this node can be divided"
    return f"ready: this driver can divide {'the GPU' if capable == 1 else f'all {capable} MIG-capable GPUs'}"


def _head(inventory: Inventory) -> str:
    capable = sum(g.mig.capable for g in inventory.gpus)
    count = "1 GPU" if len(inventory.gpus) == 1 else f"{len(inventory.gpus)} GPUs"
    driver = f"driver {inventory.driver or 'unknown'}   NVML {inventory.nvml or 'unknown'}"
    return draw.Columns(inventory.node, f"   {driver}", f"   {count}, {capable} MIG-capable")


def _now(gpu: Gpu) -> str:
    return f"  now  {mig_picture.summary(mig_picture.current_instances(gpu))}" if gpu.mig.enabled else ""


def _drawing(gpu: Gpu, inventory: Inventory) -> Hashable:
    """Return what ``show`` draws for a GPU, without its identity."""
    return gpu.product, *_gpu(gpu_groups.without_identity(gpu), "", inventory, 0, False)


def _group(group: tuple[Gpu, ...], inventory: Inventory, column: int, tinted: bool) -> list[str]:
    """Return the picture of equal GPUs, followed by the names of each."""
    lines = _gpu(gpu_groups.drawn_gpu(group), gpu_groups.group_title(group), inventory, column, tinted)
    return lines if len(group) == 1 else [*lines, *draw.table([(f"GPU {g.index}", g.pci, g.uuid) for g in group])]


def _gpu(gpu: Gpu, title: str, inventory: Inventory, column: int, tinted: bool) -> list[str]:
    lines = vgpu_views.picture(gpu, title, inventory, column, tinted)
    if gpu.mig.enabled and gpu.family and not gpu.lost:
        family = inventory.family(gpu)
        lines[0] = draw.ruler(title, family, column)
        lines.insert(1, draw.row(_now(gpu), mig_picture.current_instances(gpu), family, column, tinted))
    lines.append(draw.Columns(*(f"{'   ' if n else '  '}{fact}" for n, fact in enumerate(_facts(gpu, inventory)))))
    if gpu.holders:
        lines.append(f"  in use by {action_texts.holders(gpu.holders)}")
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    lines += draw.table([r for n, i in enumerate(ordered) for r in _rows(mig_picture.LETTERS[n], i)])
    members = vgpu_views.members(gpu)
    return [*lines, *([members] if members else []), *draw.table(vgpu_views.rows(gpu))]


def _facts(gpu: Gpu, inventory: Inventory) -> list[str]:
    facts = [gpu.uuid] if gpu.uuid else []
    facts += ["has fallen off the bus"] if gpu.lost else [] if gpu.mig.capable else ["no MIG"]
    if gpu.mig.capable:
        pending = f" ({gpu.mig.pending} after a reset)" if gpu.mig.pending != gpu.mig.current else ""
        facts.append(f"MIG {gpu.mig.current}{pending}")
    if gpu.family and gpu.mig.capable:
        family = inventory.family(gpu)
        minimum = f", needs driver {family.driver_min} or later" if family.driver_min else ""
        facts.append(f"family {family.name}{minimum}")
    shared = vgpu_views.fact(gpu, inventory)
    return facts + ([shared] if shared else [])


def _rows(letter: str, instance: GpuInstance) -> list[tuple[str, ...]]:
    """Return a line per GPU instance, and one per compute instance unless a single one fills the GPU instance."""
    inner = instance.compute_instances
    whole = len(inner) == 1 and inner[0].profile == instance.profile
    uuid = inner[0].uuid if whole else "" if inner else "no compute instance"
    first = (
        letter,
        f"{instance.profile} at {instance.placement}",
        f"id {instance.id}",
        uuid,
        action_texts.state(instance),
    )
    if whole:
        return [first]
    return [
        first,
        *(("", f"  {c.profile}", f"ci {c.id}", c.uuid, action_texts.holders(c.holders)) for c in inner),
    ]
