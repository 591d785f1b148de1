"""``aliquot __complete``: words for the completion scripts, one a line. It never fails, and prints nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.errors import AliquotError


def run(args: Args) -> int:
    try:
        lines = list(_words(args))
    except AliquotError:
        return 0
    if lines:
        streams.result("\n".join(lines))
    return 0


def _words(args: Args) -> Iterable[str]:
    if args.what == "configs":
        return _configs(args.file)
    if args.what == "nodes":
        return _nodes()
    if args.what == "templates":
        from aliquot.sim.template import ALIASES, products

        return [*ALIASES, *products()]
    if args.what == "faults":
        from aliquot.sim.faults import KEYS

        return [*KEYS, "none"]
    inventory = node.inventory(args)
    if args.what == "gpus":
        # No PCI addresses: bash takes a colon for the end of a word.
        return [str(g.index) for g in inventory.gpus] + [g.uuid for g in inventory.gpus]
    if args.what == "types":
        tables = [table for g in inventory.gpus if (table := inventory.vgpu_table(g)) is not None]
        return dict.fromkeys(t.short for table in tables for t in table.types if t.id is not None)
    families = [inventory.family(g) for g in inventory.gpus if g.mig.capable and g.family]
    return dict.fromkeys(p.name for family in families for p in family.profiles)


def _configs(path: str | None) -> Iterable[str]:
    from aliquot.core.config.load import load

    return load(output.read_text(path, "config file"), path, compat=True).names if path else ()


def _nodes() -> Iterable[str]:
    from aliquot.foundation.paths import state_dir
    from aliquot.sim import lifecycle as control

    return control.names(state_dir())
