"""What comes to light while entries meet the GPUs of a node: blocks, notes, and what is wrong on every machine."""

from __future__ import annotations

from aliquot.config.faults import Faults, Marked, place
from aliquot.config.file import ConfigFile
from aliquot.model.desired import Fault
from aliquot.model.inventory import Inventory


class Report:
    """Collects; ``wrong`` is raised, ``faults`` block, ``notes`` are told. ``left_alone``: some GPU was passed over
    because it cannot be shared in the way that was asked.
    """

    def __init__(self, config: ConfigFile, inventory: Inventory) -> None:
        self.config = config
        self.inventory = inventory
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.wrong = Faults(config.source)
        self.left_alone = ""

    def block(self, rule: str, at: Marked, sentence: str, pci: str = "", next_step: str | None = None) -> None:
        self.faults.append(Fault(rule, f"{place(self.config.source, at)}: {sentence}", pci, next_step))
