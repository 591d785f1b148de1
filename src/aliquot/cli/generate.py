"""``aliquot generate``: a config file for this machine, with the names that mig-manager generates."""

from __future__ import annotations

from aliquot.cli import documents, node
from aliquot.cli.parse import Args


def run(args: Args) -> int:
    from aliquot.config.generate import generate
    from aliquot.config.generate_vgpu import generate_native, has_vgpus

    inventory = node.inventory(args)
    return documents.give(generate_native(inventory) if has_vgpus(inventory) else generate(inventory), args)
