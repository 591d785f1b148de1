"""``aliquot slurm check``: what is wrong with Slurm's files for GPUs."""

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
    from aliquot.slurm.check.finding import Given, Live
    from aliquot.slurm.client.models import Version
    from aliquot.slurm.conf.statements import Conf

_FOLDERS = ("/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf", "/var/spool/slurmd/conf-cache", "/var/spool/slurmd")
_NEXT = "aliquot slurm check --conf-dir DIR"


def run(args: Args) -> int:
    from aliquot.cli.slurm import check_view as slurm_checkview
    from aliquot.slurm.check.api import check
    from aliquot.slurm.check.finding import ERROR

    given = _given(args)
    findings = check(given)
    errors = [f for f in findings if f.severity == ERROR]
    fine = not (findings if args.strict else errors)
    document = output.made(
        "SlurmCheck",
        folder=given.folder,
        fine=fine,
        version=str(given.version) if given.version else "",
        compared=sorted(given.machines),
        findings=[slurm_checkview.plain(f) for f in findings],
    )
    text = (
        slurm_checkview.commands(findings, args.typed_node)
        if args.fix
        else slurm_checkview.report(findings, given.folder, args.typed_node)
    )
    output.emit(document, args.output, text)
    return 0 if fine else 30


def _given(args: Args) -> Given:
    """Everything that the rules look at. Raises ConfigError, UsageError."""
    import msgspec

    from aliquot.slurm.check.finding import Given
    from aliquot.slurm.conf.statements import Source

    scripts = tuple(Source(path, output.read_text(path, "script")) for path in args.script or ())
    if scripts and not args.conf_dir and not args.live:
        return Given("", scripts=scripts)
    folder = _folder(args)
    slurm, gres, cgroup, helpers = _files(folder)
    name = slurm_sources.node_name(args)
    given = Given(folder, slurm, gres, cgroup, helpers, _version(args), scripts=scripts)
    machines = _machines(args, given, name)
    here = "" if args.inventory else next(iter(machines), name)
    return msgspec.structs.replace(
        given,
        machines=machines,
        here=here,
        absent=_absent(args, given, machines, here),
        modes=_modes(args, machines),
        live=_live(args, given) if args.live else None,
    )


def _folder(args: Args) -> str:
    typed = args.conf_dir or os.path.dirname(os.environ.get("SLURM_CONF", ""))
    if typed:
        if not os.path.isdir(typed):
            raise ConfigError(f"there is no folder {typed}", next_step=_NEXT)
        return str(typed)
    found = next((f for f in _FOLDERS if os.path.exists(f"{f}/slurm.conf") or os.path.exists(f"{f}/gres.conf")), None)
    if found is None:
        raise ConfigError(
            "there is no slurm.conf and no gres.conf here",
            details=tuple(f"looked in {folder}" for folder in _FOLDERS),
            next_step=_NEXT,
        )
    return found


def _files(folder: str) -> list[Conf | None]:
    from aliquot.slurm.conf.files import read

    names = ("slurm.conf", "gres.conf", "cgroup.conf", "helpers.conf")
    found = [read(os.path.join(folder, name)) for name in names]
    if found[0] is None and found[1] is None:
        raise ConfigError(f"{folder} has neither slurm.conf nor gres.conf", next_step=_NEXT)
    return found


def _version(args: Args) -> Version | None:
    """The release as typed, else that of the programs here; None where there are none."""
    from aliquot.slurm.client import scontrol_output as text

    if args.slurm_version:
        typed = text.version(args.slurm_version)
        if typed is None:
            raise UsageError(
                f"--slurm-version: {args.slurm_version!r} is no release of Slurm (24.11, 22.05.8)",
                next_step=f"{args.prog} --help",
            )
        return typed
    return next(
        (v for v in map(text.version, (slurm_sources.said(p, "-V") for p in ("slurmd", "scontrol"))) if v), None
    )


def _machines(args: Args, given: Given, name: str) -> dict[str, Inventory]:
    """The GPUs of nodes, by their names in Slurm."""
    if args.inventory:
        return dict(slurm_sources.inventories(args.inventory))
    if args.files_only:
        return {}
    try:
        found = node.inventory(args)
    except BlockedError as error:
        streams.note(f"note     no GPUs are compared: {error.brief}")
        return {}
    known = _named(given, name)
    if not known:
        streams.note(f"note     this machine's GPUs are not compared: the files say nothing about {name}")
        return {}
    return dict.fromkeys(known, found)


def _named(given: Given, name: str) -> list[str]:
    """The names that this machine has in the files: its own, else those of the records that lie on this host."""
    from aliquot.slurm.conf.hosts import listed

    everywhere = any(line.nodes is None for line in given.gpu_lines)
    if name in given.line_of or any(name in (line.nodes or ()) for line in given.gpu_lines):
        return [name]
    on_host = [
        each
        for line in given.node_lines
        for each, host in zip(line.names, listed(line.get("NodeHostname")), strict=False)
        if host.partition(".")[0] == name
    ]
    return on_host or ([name] if everywhere and not given.line_of else [])


def _absent(args: Args, given: Given, machines: Mapping[str, Inventory], here: str) -> frozenset[str]:
    """Device files of this machine's lines that are not there. A simulated node has none unless --dev-root says where;
    and a machine whose name nobody typed may be no node at all.
    """
    if _elsewhere(args) or not (machines or args.node_name):
        return frozenset()
    lines = (*given.gpu_lines, *given.fence_lines)
    files = {file for line in lines if line.serves(here) for file in line.files}
    root = args.dev_root or "/"
    return frozenset(file for file in files if not os.path.exists(os.path.join(root, file.lstrip("/"))))


def _modes(args: Args, machines: Mapping[str, Inventory]) -> dict[int, int]:
    """The permissions of the administrators' capabilities, where this machine is a node that has them."""
    from aliquot.slurm.files.fence import ADMIN

    found = {}
    for minor in ADMIN if machines and not _elsewhere(args) else ():
        with suppress(OSError):
            path = os.path.join(args.dev_root or "/", f"dev/nvidia-caps/nvidia-cap{minor}")
            found[minor] = stat.S_IMODE(os.stat(path).st_mode)
    return found


def _elsewhere(args: Args) -> bool:
    """Whether the device files here are not those of the node that is checked."""
    return bool(args.inventory or args.files_only or (args.node is not None and not args.dev_root))


def _live(args: Args, given: Given) -> Live:
    """What slurmctld says. Raises SlurmError."""
    from aliquot.slurm.check.finding import Live
    from aliquot.slurm.client.connect import opened

    conf = os.path.join(given.folder, "slurm.conf")
    with opened(os.environ.get("ALIQUOT_SLURM", ""), conf if os.path.exists(conf) else "") as slurm:
        nodes = slurm.nodes()
    sources = [s.path for c in (given.slurm, given.gres) if c for s in c.sources]
    return Live(nodes, max((int(os.stat(path).st_mtime) for path in sources), default=0))
