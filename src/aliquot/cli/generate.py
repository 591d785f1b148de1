"""``aliquot generate``: a config file for this machine, with the names that mig-manager generates."""

from __future__ import annotations

from aliquot.cli import documents, node
from aliquot.cli.parse import Args


def run(args: Args) -> int:
    from aliquot.config.generate import generate

    return documents.give(generate(node.inventory(args)), args)
