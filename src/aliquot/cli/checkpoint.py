"""``aliquot checkpoint``: the exact state, placements included."""

from __future__ import annotations

from aliquot.cli import documents, node
from aliquot.cli.parse import Args


def run(args: Args) -> int:
    from aliquot.config.checkpoint import checkpoint

    return documents.give(checkpoint(node.inventory(args)), args, text_form="json")
