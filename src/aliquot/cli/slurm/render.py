"""``aliquot slurm render``: gres.conf, node lines and related settings for the current GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.slurm import render_sources as slurm_sources
from aliquot.errors import BlockedError, UsageError

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.slurm.client.models import Version
    from aliquot.slurm.files.gres_conf import GresForm
    from aliquot.slurm.files.job_devices import GresChoice
    from aliquot.slurm.files.node_line import NodeHardware
    from aliquot.slurm.files.render import RenderedNode

_SHOWN = 100
"""Created device nodes that are reported one by one. A slot board of 8 GPUs has more than a thousand."""
_HEADS = {"gres": "gres.conf", "slurm": "slurm.conf", "cgroup": "cgroup.conf", "dynamic": "slurmd's options"}


def run(args: Args) -> int:
    slurm_sources.check_words(args)
    entries = _files(args) if args.inventories else [_local_entry(args)]
    for entry in entries:
        for sentence in entry.offered.notes:
            streams.note(f"note     {entry.name}: {sentence}")
        _note_fence(entry)
    parts = _parts(entries, args)
    if args.make_devices:
        _make_devices(entries[0], args)
    checked = _checked(entries, args)
    if args.number:
        _number(entries[0], args)
    shown = "\n".join(parts[args.part]) if args.part else _text(parts)
    output.emit(_document(entries, parts, checked), args.output, shown)
    return 0


def _note_fence(entry: RenderedNode) -> None:
    from aliquot.slurm.files import fence

    if entry.offered.fenced:
        streams.note(
            f"note     {entry.name}: {fence.VALUE} denies jobs access to {entry.offered.fenced[0]} and other devices "
            "that are not its own. After slurmd has registered, remove it from slurmctld, so that no job can request "
            f"it: scontrol update nodename={entry.name} gres={fence.without_fence(entry.line.gres)}"
        )


def _local_entry(args: Args) -> RenderedNode:
    """Render this host's node, or the simulated one."""
    from aliquot.slurm.files import node_line as nodeline
    from aliquot.slurm.files.job_devices import GresChoice, disagreements
    from aliquot.slurm.gpus import cores

    found = node.inventory(args)
    gpus = tuple(gpu.pci for gpu in node.gpus(found, args.gpu)) if args.gpu else None
    root = (args.dev_root or "/").rstrip("/")
    near = cores.near_cores((g.pci for g in found.gpus), args.cores) if args.sim is None else cores.Cores()
    for sentence in near.notes:
        streams.note(f"note     {sentence}")
    hardware = nodeline.NodeHardware.parse(slurm_sources.slurmd_output(args.slurmd, "-C"))
    name = slurm_sources.node_name(args)
    choice = GresChoice(gpus, args.type_style, f"{root}/dev", args.fence == "auto")
    made = _entry(name, found, choice, args, near.by_pci, hardware)
    wrong = disagreements(made.offered.devices, slurm_sources.listed_capabilities()) if args.sim is None else ()
    if wrong:
        raise BlockedError(
            "the kernel's list of capabilities differs from the driver's formula: device nodes cannot be named safely",
            code="WRONG_CAPABILITY",
            details=wrong,
            next_step="cat /proc/driver/nvidia-caps/mig-minors",
        )
    return made


def _files(args: Args) -> list[RenderedNode]:
    """Render the nodes of inventory files."""
    from aliquot.slurm.files.job_devices import GresChoice

    if args.sim and not args.typed_node:
        raise UsageError(
            f"inventory files exclude ALIQUOT_SIM, which is set to {args.sim}", next_step="unset ALIQUOT_SIM"
        )
    own = (("--gpu", args.gpu), ("--sim", args.sim), ("--number", args.number), ("--make-devices", args.make_devices))
    for option, value in own:
        if value:
            raise UsageError(
                f"{option} applies to one host and excludes inventory files",
                next_step="aliquot slurm render --help",
            )
    root = (args.dev_root or "/").rstrip("/")
    choice = GresChoice(None, args.type_style, f"{root}/dev", args.fence == "auto")
    return [_entry(name, found, choice, args, {}, None) for name, found in slurm_sources.inventories(args.inventories)]


def _entry(
    name: str,
    found: Inventory,
    choice: GresChoice,
    args: Args,
    cores: Mapping[str, str],
    hardware: NodeHardware | None,
) -> RenderedNode:
    from aliquot.slurm.files import node_line as nodeline
    from aliquot.slurm.files import render
    from aliquot.slurm.files.job_devices import offered_devices
    from aliquot.slurm.files.slot_board import slot_board

    board = not args.inventories and slurm_sources.is_board(name)
    offered = slot_board(found, choice) if board else offered_devices(found, choice)
    value = nodeline.gres_value(offered)
    line = nodeline.RenderedNodeLine(name, value, tuple(args.feature or ()), hardware or nodeline.NodeHardware())
    return render.RenderedNode(line, offered, _form(args, cores))


def _form(args: Args, cores: Mapping[str, str]) -> GresForm:
    from aliquot.slurm.files.gres_conf import GresForm

    return GresForm(args.autodetect, args.env, dict(cores), _version(args))


def _version(args: Args) -> Version | None:
    """Return slurmd's release: from the command line, else this host's if its own node is rendered."""
    from aliquot.slurm.client import scontrol_output as text

    typed = args.slurm_version
    found = text.version(typed or ("" if args.inventories else slurm_sources.slurmd_output(args.slurmd, "-V")))
    if typed and found is None:
        raise UsageError(
            f"--slurm-version: invalid release {typed!r}: use a release such as 24.11.5",
            next_step="aliquot slurm render --help",
        )
    return found


def _parts(entries: list[RenderedNode], args: Args) -> dict[str, tuple[str, ...]]:
    from aliquot.slurm.files import render

    nodes = render.node_lines(entries)
    return {
        "gres": render.gres_conf(entries),
        "slurm": (*render.keys(entries, args.task_prolog or ""), *nodes),
        "nodes": nodes,
        "cgroup": render.CGROUP_CONF,
        "dynamic": tuple(r.line.dynamic() for r in entries),
    }


def _text(parts: Mapping[str, tuple[str, ...]]) -> str:
    shown = [f"# {_HEADS[name]}\n" + "\n".join(parts[name]) for name in ("gres", "slurm", "cgroup")]
    options = "\n".join(f"#   {line}" for line in parts["dynamic"])
    return "\n\n".join([*shown, f"# {_HEADS['dynamic']}, for a node that registers itself\n{options}"])


def _checked(entries: list[RenderedNode], args: Args) -> bool:
    """Validate the lines with slurmd, and report whether that was possible.

    Raises BlockedError if slurmd reads them differently, and NoSlurmError if ``--check always`` finds no slurmd.
    """
    from aliquot.slurm.client.errors import NoSlurmError
    from aliquot.slurm.files.gres_conf import explicit

    if args.check == "never" or not all(explicit(r.form) for r in entries):
        return False
    try:
        wrong = {r.name: _wrong(r, args) for r in entries}
    except NoSlurmError as error:
        if args.check == "always":
            raise
        if slurm_sources.slurmd_output(args.slurmd, "-V"):
            streams.note(f"note     not validated by slurmd: {error.brief}")
        return False
    if any(wrong.values()):
        raise BlockedError(
            "slurmd reads these lines differently than intended",
            code="READ_DIFFERENTLY",
            details=tuple(f"{name}: {sentence}" for name, found in wrong.items() for sentence in found),
            next_step="aliquot slurm render --check never",
        )
    return True


def _wrong(entry: RenderedNode, args: Args) -> tuple[str, ...]:
    import shlex

    from aliquot.slurm.files import slot_board as board
    from aliquot.slurm.files import slurmd_validation as validate

    value, lines = entry.line.gres, entry.gres_lines()
    files = {
        "slurm.conf": validate.minimal(entry.name, value),
        "gres.conf": "\n".join(lines) + "\n",
        "cgroup.conf": "",
    }
    files |= {board.ORDER_FILE: ""} if board.is_board(lines) else {}
    parsed = validate.parse(files, entry.name, shlex.split(args.slurmd))
    if parsed.missing and args.sim is None and not args.inventories:
        streams.note(f"note     {entry.name}: slurmd will not start without {', '.join(parsed.missing)}")
    wrong = validate.differences(entry.offered, parsed, value)
    if not wrong and validate.out_of_order(entry.offered, parsed):
        return ("slurmd numbers the devices in another order: a task would get another job's UUID",)
    return wrong


def _make_devices(entry: RenderedNode, args: Args) -> None:
    """Create missing device nodes, as ``slurm apply`` does: nothing else creates those of restored instances."""
    from aliquot.slurm.node import device_nodes as devices

    with node.connected(args) as connection:
        found, simulated = connection.backend.read(), connection.simulated
    fence = args.fence == "auto"
    board = slurm_sources.is_board(entry.name)
    chosen = node.gpus(found, None if fence or board else args.gpu)
    records = len(entry.offered.devices) if board else 0
    made = devices.make(chosen, args.dev_root or "/", simulated=simulated, fence=fence, records=records)
    for path in made[:_SHOWN]:
        streams.note(f"created {path}")
    if made[_SHOWN:]:
        streams.note(f"created {len(made) - _SHOWN} more device nodes")


def _number(entry: RenderedNode, args: Args) -> None:
    """Write the numbering for TaskProlog, Prolog and Epilog."""
    import os

    from aliquot.slurm.files import gpu_numbering as numbering

    made = numbering.Numbering.from_offered(entry.name, entry.offered, entry.form.autodetect)
    streams.note(f"wrote {numbering.write(made, numbering.run_folder(os.environ))}")


def _document(entries: list[RenderedNode], parts: Mapping[str, tuple[str, ...]], checked: bool) -> dict[str, Any]:
    nodes = [
        {
            "name": r.name,
            "gres": r.line.gres,
            "nodeLine": r.line.static(),
            "dynamicOptions": r.line.dynamic(),
            "gresConf": r.gres_lines(),
            "devices": [msgspec.to_builtins(d) for d in r.offered.devices],
            "notes": r.offered.notes,
        }
        for r in entries
    ]
    return output.build(
        "SlurmFiles",
        nodes=nodes,
        gresConf=parts["gres"],
        slurmConf=parts["slurm"],
        cgroupConf=parts["cgroup"],
        checkedBySlurmd=checked,
    )
