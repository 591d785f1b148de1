"""Rules about our own lines in gres.conf: somebody else's hand in them would be lost at the next apply."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.slurm.check.finding import CheckInput, SlurmFinding, error, warning
from aliquot.slurm.conf.statements import ConfLocation
from aliquot.slurm.files.managed_block import blocks


def edited_blocks(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Blocks whose digest does not hold, and nodes with two blocks."""
    seen: dict[str, int] = {}
    for source in inputs.gres.sources if inputs.gres else ():
        for block in blocks(source.text):
            location = ConfLocation(source.path, block.first)
            if block.node in seen:
                sentence = f"the block of {block.node} is there twice (line {seen[block.node]})"
                yield error("BLOCK_TWICE", location, sentence, "leave out one of them")
            seen.setdefault(block.node, block.first)
            if block.edited:
                sentence = f"the lines of {block.node} between the marks were changed by hand"
                fix = "move your lines out of the block; 'aliquot slurm apply --force' replaces it"
                yield warning("HAND_EDITED", location, sentence, fix)
