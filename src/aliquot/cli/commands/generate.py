"""``aliquot generate``: a config file for this host, with the names that mig-manager generates."""

from __future__ import annotations

from aliquot.cli.framework import file_output as documents
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args


def run(args: Args) -> int:
    from aliquot.core.config.generate import generate
    from aliquot.core.config.generate_vgpu import generate_native, has_vgpus

    inventory = node.inventory(args)
    return documents.give(generate_native(inventory) if has_vgpus(inventory) else generate(inventory), args)
