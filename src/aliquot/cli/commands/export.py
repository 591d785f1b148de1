"""``aliquot export``: the geometry of this host as a config file."""

from __future__ import annotations

from aliquot.cli.framework import file_output as documents
from aliquot.cli.framework import streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError


def run(args: Args) -> int:
    from aliquot.core.config.export import export, export_native

    if not args.label:
        raise UsageError("--label is empty: give a name for the config", next_step=f"{args.prog} --help")
    inventory = node.inventory(args)
    if not args.native and any(g.vgpus or g.passthrough for g in inventory.gpus):
        streams.note(
            "note: mig-parted's format has no word for vGPUs and passthrough, which are left out: see --native"
        )
    return documents.give((export_native if args.native else export)(inventory, args.label), args)
