"""The geometry tables of GPUs behind nvidia-smi: the catalog's, corrected by nvidia-smi's lists."""

from __future__ import annotations

from aliquot.core.engine.programs import ProgramResult
from aliquot.core.model.ids import pci_address
from aliquot.hardware.nvidia_smi import list_output as lists
from aliquot.hardware.nvidia_smi.command import Smi
from aliquot.hardware.nvidia_smi.query_output import GpuReport
from aliquot.hardware.nvml.profiles import GpuProfileRow
from aliquot.hardware.nvml.tables import GpuProduct


class SmiSource:
    """The implementation of ``nvml.tables.ProfileSource``. A product's ``handle`` is its GPU's report."""

    def __init__(self, smi: Smi) -> None:
        self._smi = smi

    def rows(self, gpu: GpuProduct, *, placements: bool) -> tuple[GpuProfileRow, ...]:
        """Return the profiles; none while MIG mode is off, because nvidia-smi lists only profiles
        of GPUs in MIG mode.
        """
        pci = pci_address(_report(gpu).pci)
        attempt = f"listing the profiles of {pci}"
        listed = self._smi.run_listing(attempt, "mig", "-i", pci, "-lgip", gpu=pci)
        # The placement list needs more privileges than the profile list: without them the catalog's placements apply.
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
