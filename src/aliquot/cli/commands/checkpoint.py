"""``aliquot checkpoint``: the exact state, placements included."""

from __future__ import annotations

from aliquot.cli.framework import file_output as documents
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args


def run(args: Args) -> int:
    from aliquot.core.config.formats.checkpoint import checkpoint

    return documents.give(checkpoint(node.inventory(args)), args, text_form="json")
