"""The machine around GPUs whose driver's programs run elsewhere."""

from __future__ import annotations

from aliquot.core.engine.programs import DriverPrograms
from aliquot.foundation.signals import uninterrupted
from aliquot.hardware.host import RESET_TIMEOUT_S, LocalHost, reset_error
from aliquot.hardware.nvidia_smi.command import Smi


class SmiHost:
    """Implements ``engine.ports.HostControl``: the driver's program resets, processes are this machine's."""

    def __init__(self, programs: DriverPrograms) -> None:
        self._smi = Smi(programs)
        self._local = LocalHost()

    def reset(self, pci: str) -> None:
        with uninterrupted():
            result = self._smi.run("-r", "-i", pci, timeout_s=RESET_TIMEOUT_S)
        if result.status:
            raise reset_error(f"resetting GPU {pci}", pci, result.status, result.output)

    def terminate(self, pid: int) -> None:
        self._local.terminate(pid)
