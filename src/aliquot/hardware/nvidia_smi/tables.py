"""The geometry tables that hold for GPUs behind nvidia-smi: the catalog's, corrected by what it lists."""

from __future__ import annotations

from aliquot.core.engine.programs import Ran
from aliquot.core.model.ids import pci_address
from aliquot.hardware.nvidia_smi import list_output as lists
from aliquot.hardware.nvidia_smi.command import Smi
from aliquot.hardware.nvidia_smi.query_output import Report
from aliquot.hardware.nvml.profiles import Row
from aliquot.hardware.nvml.tables import Product


class SmiSource:
    """Implements ``nvml.tables.Source``. A product's ``handle`` is its GPU's report."""

    def __init__(self, smi: Smi) -> None:
        self._smi = smi

    def rows(self, card: Product, *, placements: bool) -> tuple[Row, ...]:
        """Empty while MIG mode is off: nvidia-smi lists profiles of GPUs in MIG mode only."""
        pci = pci_address(_report(card).pci)
        attempt = f"listing the profiles of {pci}"
        listed = self._smi.listed(attempt, "mig", "-i", pci, "-lgip", gpu=pci)
        # The list of placements takes more rights than that of profiles: without them the catalog's hold.
        places = self._smi.run("mig", "-i", pci, "-lgipp") if listed and placements else Ran(0)
        return lists.profiles(listed, lists.placements("" if places.status else places.out))

    def architecture(self, card: Product) -> str:
        told = _report(card).architecture
        return told if told in ("ampere", "ada", "hopper", "blackwell") else ""

    def memory_mib(self, card: Product) -> int | None:
        return _report(card).memory_mib or None


def _report(card: Product) -> Report:
    assert isinstance(card.handle, Report)
    return card.handle
