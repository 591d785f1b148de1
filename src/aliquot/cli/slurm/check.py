"""``aliquot slurm check``: check Slurm's GPU files."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.slurm import render_sources as slurm_sources
from aliquot.errors import BlockedError, ConfigError, UsageError

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.slurm.check.finding import CheckInput, LiveState
    from aliquot.slurm.client.models import Version
    from aliquot.slurm.conf.statements import Conf

_NEXT = "aliquot slurm check --conf-dir DIR"


def run(args: Args) -> int:
    from aliquot.cli.slurm import check_view as slurm_checkview
    from aliquot.slurm.check.api import check

    given = check_input(args)
    findings = check(given)
    errors = [f for f in findings if f.severity == "error"]
    fine = not (findings if args.strict else errors)
    document = output.build(
        "SlurmCheck",
        folder=given.folder,
        fine=fine,
        version=str(given.version) if given.version else "",
        compared=sorted(given.inventories),
        findings=[slurm_checkview.plain(f) for f in findings],
    )
    text = (
        slurm_checkview.commands(findings, args.typed_node)
        if args.fix
        else slurm_checkview.report(findings, given.folder, args.typed_node)
    )
    output.emit(document, args.output, text)
    return 0 if fine else 30


def check_input(args: Args) -> CheckInput:
    """Collect the input of the rules. Raises ConfigError, UsageError."""
    import msgspec

    from aliquot.slurm.check.finding import CheckInput
    from aliquot.slurm.conf.statements import ConfSource

    scripts = tuple(ConfSource(path, output.read_text(path, "script")) for path in args.script or ())
    if scripts and not args.conf_dir and not args.live:
        return CheckInput("", scripts=scripts)
    folder = slurm_sources.conf_folder(args.conf_dir, _NEXT)
    slurm, gres, cgroup, helpers = _files(folder)
    name = slurm_sources.node_name(args)
    given = CheckInput(folder, slurm, gres, cgroup, helpers, _version(args), scripts=scripts)
    inventories = _inventories(args, given, name)
    local_name = "" if args.inventory else next(iter(inventories), name)
    return msgspec.structs.replace(
        given,
        inventories=inventories,
        local_node=local_name,
        absent=_absent(args, given, inventories, local_name),
        modes=_modes(args, inventories),
        order_file=_order_file(folder),
        live=_live(args, given) if args.live else None,
    )


def _files(folder: str) -> list[Conf | None]:
    from aliquot.slurm.conf.files import read

    names = ("slurm.conf", "gres.conf", "cgroup.conf", "helpers.conf")
    found = [read(os.path.join(folder, name)) for name in names]
    if found[0] is None and found[1] is None:
        raise ConfigError(f"{folder} has neither slurm.conf nor gres.conf", next_step=_NEXT)
    return found


def _order_file(folder: str) -> str | None:
    from aliquot.slurm.files.slot_board import ORDER_FILE

    try:
        with open(os.path.join(folder, ORDER_FILE), errors="replace") as file:
            return file.read(1)
    except OSError:
        return None


def _version(args: Args) -> Version | None:
    """Return the release: from the command line, else of the installed programs, else None."""
    from aliquot.slurm.client import scontrol_output as text

    if args.slurm_version:
        typed = text.version(args.slurm_version)
        if typed is None:
            raise UsageError(
                f"--slurm-version: invalid release {args.slurm_version!r}: use a release such as 24.11 or 22.05.8",
                next_step=f"{args.prog} --help",
            )
        return typed
    return next(
        (v for v in map(text.version, (slurm_sources.slurmd_output(p, "-V") for p in ("slurmd", "scontrol"))) if v),
        None,
    )


def _inventories(args: Args, check_input: CheckInput, name: str) -> dict[str, Inventory]:
    """Return the inventories of nodes, by their names in Slurm."""
    if args.inventory:
        return dict(slurm_sources.inventories(args.inventory))
    if args.files_only:
        return {}
    try:
        found = node.inventory(args)
    except BlockedError as error:
        streams.note(f"note     no GPUs are compared: {error.brief}")
        return {}
    known = _named(check_input, name)
    if not known:
        streams.note(f"note     this host's GPUs are not compared: the files do not name {name}")
        return {}
    return dict.fromkeys(known, found)


def _named(check_input: CheckInput, name: str) -> list[str]:
    """Return this host's node names in the files: its own, else those of the node records on this host."""
    from aliquot.slurm.conf.hosts import expand_leniently

    everywhere = any(line.nodes is None for line in check_input.gpu_lines)
    if name in check_input.line_of or any(name in (line.nodes or ()) for line in check_input.gpu_lines):
        return [name]
    on_host = [
        each
        for line in check_input.node_lines
        for each, host in zip(line.names, expand_leniently(line.get("NodeHostname")), strict=False)
        if host.partition(".")[0] == name
    ]
    return on_host or ([name] if everywhere and not check_input.line_of else [])


def _absent(
    args: Args, check_input: CheckInput, inventories: Mapping[str, Inventory], local_name: str
) -> frozenset[str]:
    """Return the device files of this host's lines that do not exist.

    Returns none for a simulated node without --dev-root, and for a host that may not be a node because neither its
    name was given nor its inventory compared.
    """
    if _is_other_host(args) or not (inventories or args.node_name):
        return frozenset()
    lines = (*check_input.gpu_lines, *check_input.fence_lines)
    files = {file for line in lines if line.serves(local_name) for file in line.files}
    root = args.dev_root or "/"
    return frozenset(file for file in files if not os.path.exists(os.path.join(root, file.lstrip("/"))))


def _modes(args: Args, inventories: Mapping[str, Inventory]) -> dict[int, int]:
    """Return the file modes of the administrators' capabilities, if this host is a node that has them."""
    from aliquot.slurm.files.fence import ADMIN

    found = {}
    for minor in ADMIN if inventories and not _is_other_host(args) else ():
        with suppress(OSError):
            path = os.path.join(args.dev_root or "/", f"dev/nvidia-caps/nvidia-cap{minor}")
            found[minor] = stat.S_IMODE(os.stat(path).st_mode)
    return found


def _is_other_host(args: Args) -> bool:
    """Report whether the device files of this host are not those of the checked node."""
    return bool(args.inventory or args.files_only or (args.sim is not None and not args.dev_root))


def _live(args: Args, check_input: CheckInput) -> LiveState:
    """Read slurmctld's state. Raises SlurmError."""
    from aliquot.slurm.check.finding import LiveState
    from aliquot.slurm.client.connect import open_client

    conf = os.path.join(check_input.folder, "slurm.conf")
    with open_client(os.environ.get("ALIQUOT_SLURM", ""), conf if os.path.exists(conf) else "") as slurm:
        nodes = slurm.nodes()
    sources = [s.path for c in (check_input.slurm, check_input.gres) if c for s in c.sources]
    return LiveState(nodes, max((int(os.stat(path).st_mtime) for path in sources), default=0))
