"""The findings of a selection: failures on this node, notes, and errors on every node."""

from __future__ import annotations

from aliquot.core.config.file import ConfigFile
from aliquot.core.config.text.diagnostics import Diagnostics, Marked, located
from aliquot.core.model.desired import ResolutionFailure, RuleCode
from aliquot.core.model.inventory import Inventory


class SelectionReport:
    """A collector: ``errors`` are raised, ``failures`` block, ``notes`` are printed. ``missing_capability``: the
    capability that a skipped GPU lacks for the requested share, "" if none was skipped.
    """

    def __init__(self, config: ConfigFile, inventory: Inventory) -> None:
        self.config = config
        self.inventory = inventory
        self.failures: list[ResolutionFailure] = []
        self.notes: list[str] = []
        self.errors = Diagnostics(config.source)
        self.missing_capability = ""

    def block(self, rule: RuleCode, at: Marked, sentence: str, pci: str = "", next_step: str | None = None) -> None:
        text = located(self.config.source, at, sentence)
        self.failures.append(ResolutionFailure(rule, text, pci, next_step))
