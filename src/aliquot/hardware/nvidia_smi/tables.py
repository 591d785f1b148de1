"""The geometry tables that hold for GPUs behind nvidia-smi: the catalog's, corrected by what it lists."""

from __future__ import annotations

from aliquot.core.engine.programs import ProgramResult
from aliquot.core.model.ids import pci_address
from aliquot.hardware.nvidia_smi import list_output as lists
from aliquot.hardware.nvidia_smi.command import Smi
from aliquot.hardware.nvidia_smi.query_output import GpuReport
from aliquot.hardware.nvml.profiles import GpuProfileRow
from aliquot.hardware.nvml.tables import GpuProduct


class SmiSource:
    """Implements ``nvml.tables.ProfileSource``. A product's ``handle`` is its GPU's report."""

    def __init__(self, smi: Smi) -> None:
        self._smi = smi

    def rows(self, gpu: GpuProduct, *, placements: bool) -> tuple[GpuProfileRow, ...]:
        """Empty while MIG mode is off: nvidia-smi lists profiles of GPUs in MIG mode only."""
        pci = pci_address(_report(gpu).pci)
        attempt = f"listing the profiles of {pci}"
        listed = self._smi.run_listing(attempt, "mig", "-i", pci, "-lgip", gpu=pci)
        # The list of placements takes more rights than that of profiles: without them the catalog's hold.
        placement_result = self._smi.run("mig", "-i", pci, "-lgipp") if listed and placements else ProgramResult(0)
        return lists.parse_profiles(
            listed, lists.parse_placements("" if placement_result.status else placement_result.out)
        )

    def architecture(self, gpu: GpuProduct) -> str:
        name = _report(gpu).architecture
        return name if name in ("ampere", "ada", "hopper", "blackwell") else ""

    def memory_mib(self, gpu: GpuProduct) -> int | None:
        return _report(gpu).memory_mib or None


def _report(gpu: GpuProduct) -> GpuReport:
    assert isinstance(gpu.handle, GpuReport)
    return gpu.handle
