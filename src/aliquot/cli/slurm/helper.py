"""``aliquot slurm helper`` and ``aliquot slurm families``: layouts that Slurm switches as features of a node."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.slurm import apply as slurm_apply
from aliquot.cli.slurm import switch as slurm_switch
from aliquot.errors import AliquotError, BlockedError, UsageError

if TYPE_CHECKING:
    from aliquot.slurm.layouts.families import FeatureLayout
    from aliquot.slurm.node.context import SlurmChangeContext
    from aliquot.slurm.node.layout_switch import GpuGroup


def run(args: Args) -> int:
    return {"helper": _feature, "families": _families}[args.verb](args)


def _feature(args: Args) -> int:
    from aliquot.slurm.layouts.families import layout_of
    from aliquot.slurm.node import layout_switch as switch

    with node.connected(args) as connection:
        inventory = connection.backend.read()
        chosen = slurm_switch.settings(args, connection, slurm_apply.node_name(args), inventory)
        with slurm_switch.open_context(args, connection, chosen) as context:
            if not args.feature:
                return _emit_active(args, switch.gpu_group(inventory, chosen.gpus), chosen.name, context)
            node_gpus = switch.gpu_group(inventory, chosen.gpus)
            layout = layout_of(node_gpus.family, args.feature)
            switch.require_count(layout, node_gpus, chosen, context)
            change_record = switch.switch(layout, node_gpus, chosen, context, typed=False)
    reloaded = 0 if args.no_reload else _reload_slurmd()
    document = output.build(
        "SlurmSwitch", feature=layout.feature, devices=len(change_record.expected.devices), reloaded=reloaded
    )
    output.emit(document, args.output, f"{chosen.name} is {layout.feature}" if args.output != "text" else "")
    streams.note(f"{chosen.name}: {layout} on {len(node_gpus.gpus)} GPUs")
    return 0


def _emit_active(args: Args, node_gpus: GpuGroup, name: str, context: SlurmChangeContext) -> int:
    """Print the active feature, one per line, as Slurm reads it. Raises BlockedError if there is none."""
    layout = node_gpus.layout
    if layout is None:
        sentence = "no feature describes the layout of its GPUs"
        _drain(name, sentence, context)
        raise BlockedError(f"{name}: {sentence}", code="NO_LAYOUT", next_step="aliquot show")
    output.emit(output.build("SlurmFeatures", active=[layout.feature]), args.output, layout.feature)
    return 0


def _drain(name: str, sentence: str, context: SlurmChangeContext) -> None:
    """Drain the node, because Slurm treats missing output as success."""
    from aliquot.slurm.node.request import MARK

    try:
        if not context.slurm.node(name).draining:
            context.slurm.drain(name, f"{MARK}{sentence}")
    except AliquotError as error:
        streams.error(f"note: cannot drain {name}: {error.brief}")


def _reload_slurmd() -> int:
    """Let the slurmd that runs us read gres.conf again. Returns its process id, or 0 if no slurmd runs us."""
    pid = slurmd_above()
    if pid:
        os.kill(pid, signal.SIGHUP)
    else:
        streams.note("note: no slurmd runs this command: reload slurmd to read gres.conf (systemctl reload slurmd)")
    return pid


def slurmd_above(start: int | None = None) -> int:
    """Return the process id of the nearest slurmd above us, or 0."""
    pid = os.getppid() if start is None else start
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat") as file:
                text = file.read()
        except OSError:
            return 0
        name, _, rest = text.partition("(")[2].rpartition(")")
        # Debian 13's daemons set their thread's name, and slurmd's step daemons have other names.
        if name == "slurmd":
            return pid
        pid = int(rest.split()[1])
    return 0


def _families(args: Args) -> int:
    from aliquot.slurm.layouts.families import families, maximal_layouts
    from aliquot.slurm.node.layout_switch import gpu_group

    slurm_switch.typed_release(args)
    inventory = node.inventory(args)
    node_gpus = gpu_group(inventory, slurm_switch.offers(args, inventory))
    chosen = slurm_switch.layouts(args, node_gpus)
    if chosen:
        return _rendered(args, node_gpus, chosen)
    found = families(maximal_layouts(node_gpus.family, attributes=args.all))
    document = output.build(
        "SlurmFamilies",
        family=node_gpus.family.name,
        gpus=[g.pci for g in node_gpus.gpus],
        families=[
            {
                "devices": n,
                "layouts": [{"feature": x.feature, "profiles": x.profiles, "uniform": x.uniform} for x in each],
            }
            for n, each in found.items()
        ],
    )
    output.emit(document, args.output, _table(node_gpus, found))
    return 0


def _table(node_gpus: GpuGroup, found: dict[int, tuple[FeatureLayout, ...]]) -> str:
    lines = [f"{node_gpus.family.title}: layouts by devices per GPU; a node can have those of one number as features"]
    for count, layouts in found.items():
        lines.append(f"{count} device{'s' if count > 1 else ''}")
        lines += [f"  {'*' if x.uniform else ' '} {x.feature:<44} {x}" for x in layouts]
    lines.append("* all devices alike: a job that requests one of them knows what it gets")
    return "\n".join(lines)


def _rendered(args: Args, node_gpus: GpuGroup, layouts: tuple[FeatureLayout, ...]) -> int:
    from aliquot.slurm.files import helpers_conf as helpersconf
    from aliquot.slurm.layouts.families import require_same_count

    if min(args.exec_time, args.boot_time) < 1:
        raise UsageError("--exec-time and --boot-time take seconds, 1 or more", next_step=f"{args.prog} --help")
    devices = require_same_count(node_gpus.family, layouts)
    version = slurm_switch.release(args)
    program = helpersconf.FeatureProgram(args.helper, args.exec_time, args.boot_time, tuple(args.allow_user or ()))
    name = slurm_apply.node_name(args)
    parts: dict[str, Any] = {
        "helpers_conf": helpersconf.lines(name, layouts, program, version),
        "slurm_conf": helpersconf.keys(program, version),
        "gres": helpersconf.gres(devices, len(node_gpus.gpus)),
    }
    text = [
        "# helpers.conf",
        *parts["helpers_conf"],
        "",
        "# slurm.conf",
        *parts["slurm_conf"],
        f"# on the line of {name}: Gres={parts['gres']}, and none of these features in Feature=",
    ]
    output.emit(output.build("SlurmHelpers", node=name, devices=devices, **parts), args.output, "\n".join(text))
    for each in layouts:
        if not each.uniform:
            streams.note(f"note: {each.feature} has devices of several kinds: a job cannot choose which one it gets")
    return 0
