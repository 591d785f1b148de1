"""``aliquot export``: the geometry of this machine as a config file."""

from __future__ import annotations

from aliquot.cli import documents, node
from aliquot.cli.parse import Args


def run(args: Args) -> int:
    from aliquot.config.export import export, export_native

    made = (export_native if args.native else export)(node.inventory(args), args.label)
    return documents.give(made, args)
