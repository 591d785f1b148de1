"""``aliquot slurm siblings``: render a host's CLOUD records as lines and as a file, check them, and open one."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from aliquot.cli.framework import desired_args, output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.slurm import apply as slurm_apply
from aliquot.cli.slurm import switch as slurm_switch
from aliquot.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from aliquot.slurm.client.port import Slurm
    from aliquot.slurm.layouts.cloud_nodes import CloudNodeShape, Sibling
    from aliquot.slurm.layouts.cloud_siblings import SiblingAction

_PROGRAMS = {"resume": "/usr/local/libexec/aliquot/slurm-resume", "suspend": "/usr/local/libexec/aliquot/slurm-suspend"}


def run(args: Args) -> int:
    if args.check:
        return _check(args)
    if args.open:
        return _open(args)
    from aliquot.core.planner.placement_table import compiled_table as table_of
    from aliquot.slurm.layouts import cloud_nodes as cloud
    from aliquot.slurm.layouts.families import fits
    from aliquot.slurm.node.layout_switch import gpu_group

    inventory = node.inventory(args)
    node_gpus = gpu_group(inventory, slurm_switch.offers(args, inventory))
    layouts = slurm_switch.layouts(args, node_gpus)
    table = table_of(node_gpus.family)
    for each in layouts:
        counts: dict[int, int] = {}
        for name in each.profiles:
            profile = node_gpus.family.by_name[name].id
            counts[profile] = counts.get(profile, 0) + 1
        if not fits(table, counts):
            raise ConfigError(f"{each} does not fit on one GPU", next_step="aliquot slurm families")
    if args.idle < 1:
        raise UsageError("--idle takes seconds, 1 or more", next_step=f"{args.prog} --help")
    shape = _shape(args)
    siblings = cloud.siblings(slurm_apply.node_name(args), node_gpus.gpus, layouts, shape)
    _emit(args, siblings, shape)
    return 0


def _shape(args: Args) -> CloudNodeShape:
    from aliquot.slurm.layouts.cloud_nodes import CloudNodeShape

    return CloudNodeShape(
        keys=args.hardware or _hardware(args),
        features=tuple(args.feature or ("mig",)),
        address=args.address or "",
        first_port=args.port,
        style=args.type_style,
    )


def _hardware(args: Args) -> str:
    """Return the hardware that slurmd reports for this host.

    Raises UsageError without slurmd, because jobs do not fit a record without CPUs.
    """
    from aliquot.cli.slurm.render_sources import slurmd_output
    from aliquot.slurm.files.node_line import NodeHardware

    found = str(NodeHardware.parse(slurmd_output("slurmd", "-C")))
    if not found:
        raise UsageError(
            "cannot detect the host's CPUs and memory: slurmd is not installed",
            next_step=f"{args.prog} --hardware 'CPUs=64 RealMemory=500000'",
        )
    return " ".join(word for word in found.split() if not word.lower().startswith(("uptime=", "gres=")))


def _emit(args: Args, siblings: tuple[Sibling, ...], shape: CloudNodeShape) -> None:
    from aliquot.slurm.files import managed_block as block
    from aliquot.slurm.layouts import cloud_nodes as cloud
    from aliquot.slurm.layouts.power_saving import KIND

    lines = [cloud.node_line(each, shape) for each in siblings]
    blocks = [
        block.render_block(each.node_name, cloud.absent_gres_lines(each.node_name, each.gres)) for each in siblings
    ]
    keys = cloud.keys(slurm_switch.release(args), _PROGRAMS, args.idle)
    document = output.build(
        KIND,
        host=siblings[0].host,
        reach=args.via or "",
        run=_run(args),
        siblings=siblings,
        slurm_conf=[*keys, *lines],
        gres_conf="".join(blocks),
    )
    text = ["# slurm.conf", *keys, *lines, "", "# gres.conf of slurmctld", *blocks]
    output.emit(document, args.output, "\n".join(text).rstrip())
    if args.output == "text":
        for each in siblings[1:]:
            streams.note(
                f"note: keep one record open: scontrol update nodename={each.node_name} state=drain reason=aliquot:"
            )


def _run(args: Args) -> list[str]:
    """Return the options of ``power start`` and ``stop`` on the host."""
    named = {
        "--conf-dir": args.conf_dir,
        "--type-style": args.type_style,
        "--slurmd-start": args.slurmd_start,
        "--slurmd-stop": args.slurmd_stop,
        "--dev-root": args.dev_root,
        "--node": args.sim,  # "--sim" to the next release: the host may have an older one
    }
    return [word for name, value in named.items() if value for word in (name, value)]


def _slurm(args: Args) -> AbstractContextManager[Slurm]:
    from aliquot.slurm.client.connect import open_client

    path = os.path.join(slurm_apply.conf_dir(args), "slurm.conf")
    return open_client(conf=path if os.path.exists(path) else "")


def _hosts(args: Args) -> dict[str, str]:
    """Return the host of each CLOUD record in slurm.conf. Raises ConfigError if it cannot be read."""
    from aliquot.slurm.layouts.cloud_siblings import hosts_of
    from aliquot.slurm.node.config_files import conf_of
    from aliquot.slurm.node.request import SlurmNodeSettings

    return hosts_of(conf_of(SlurmNodeSettings("", conf_dir=slurm_apply.conf_dir(args))))


def _open(args: Args) -> int:
    """Make one record the only open one of its host, step by step."""
    from aliquot.slurm.controller.sibling_swap import swap

    def report(action: SiblingAction) -> None:
        streams.note(f"{action.verb:<10} {action.node_name}" + (f"  {action.why}" if action.why else ""))

    seconds = desired_args.args_timeout(args)
    if not 0 <= seconds < float("inf"):
        raise UsageError("--timeout takes seconds, 0 or more", next_step=f"{args.prog} --help")
    with _slurm(args) as slurm:
        swap(slurm, args.open, _hosts(args), seconds, (time.monotonic, time.sleep), report)
    output.emit(
        output.build("SlurmRecordOpen", record=args.open),
        args.output,
        f"{args.open} is the only open record of its host",
    )
    return 0


def _check(args: Args) -> int:
    """Print the open records of each host."""
    from aliquot.slurm.layouts import cloud_siblings as rule

    with _slurm(args) as slurm:
        groups = rule.groups(slurm.nodes(), _hosts(args))
    wrong = rule.breaches(groups)
    hosts: list[dict[str, Any]] = [
        {"host": host, "records": [n.name for n in nodes], "open": [n.name for n in nodes if rule.is_open(n)]}
        for host, nodes in groups.items()
    ]
    lines = [f"{h['host']}: {', '.join(h['open']) or 'none'} open of {', '.join(h['records'])}" for h in hosts]
    lines += [f"error: {host} has {len(names)} open records, must have one" for host, names in wrong.items()]
    output.emit(output.build("SlurmSiblingsCheck", hosts=hosts), args.output, "\n".join(lines) or "no CLOUD siblings")
    return 30 if wrong else 0
