"""The machine around GPUs whose driver's programs run elsewhere."""

from __future__ import annotations

from aliquot.core.engine.programs import Programs
from aliquot.foundation.signals import whole
from aliquot.hardware.host import RESET_TIMEOUT_S, LocalHost, reset_refused
from aliquot.hardware.nvidia_smi.command import Smi


class SmiHost:
    """Implements ``engine.ports.Host``: a reset is asked for where the driver is, processes are this machine's."""

    def __init__(self, programs: Programs) -> None:
        self._smi = Smi(programs)
        self._here = LocalHost()

    def reset(self, pci: str) -> None:
        with whole():
            ran = self._smi.run("-r", "-i", pci, timeout_s=RESET_TIMEOUT_S)
        if ran.status:
            raise reset_refused(f"resetting GPU {pci}", pci, ran.status, ran.words)

    def terminate(self, pid: int) -> None:
        self._here.terminate(pid)
