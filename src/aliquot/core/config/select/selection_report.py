"""What comes to light while entries meet the GPUs of a node: blocks, notes, and what is wrong on every machine."""

from __future__ import annotations

from aliquot.core.config.file import ConfigFile
from aliquot.core.config.text.diagnostics import Faults, Marked, place
from aliquot.core.model.desired import Fault
from aliquot.core.model.inventory import Inventory


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
