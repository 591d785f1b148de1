"""The host control for GPUs whose driver's programs, including ``sriov-manage``, run elsewhere."""

from __future__ import annotations

from aliquot.core.engine.programs import DriverPrograms
from aliquot.errors import AliquotError
from aliquot.foundation.signals import uninterrupted
from aliquot.hardware.host import RESET_TIMEOUT_S, LocalHost, reset_error
from aliquot.hardware.kernel.sriov_manage import PROGRAM, TIMEOUT_S
from aliquot.hardware.nvidia_smi.command import Smi

_PROBE_TIMEOUT_S = 30.0
_CANNOT_RUN = (126, 127)
"""Exit statuses of shells and container runtimes for a program that does not exist or cannot be started."""


class SmiHost:
    """The implementation of ``engine.ports.HostControl``: the driver's program resets GPUs, processes belong to the
    local host.
    """

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


class ProgramTools:
    """The implementation of ``kernel.sriov_manage.Tools``. Once the program was found, it is not looked up again."""

    def __init__(self, programs: DriverPrograms) -> None:
        self._programs = programs
        self._found = False

    @property
    def sriov_manage(self) -> str:
        """The program's path, as ``programs`` see it; "" if it does not exist, or nothing can be run now."""
        if not self._found:
            try:
                self._found = self._programs.run((PROGRAM, "-h"), _PROBE_TIMEOUT_S).status not in _CANNOT_RUN
            except AliquotError:
                self._found = False
        return PROGRAM if self._found else ""

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        """Run the program. Raises NoDriverError if nothing can be run any more, HardwareError if it does not end."""
        with uninterrupted():
            result = self._programs.run((PROGRAM, "-e" if on else "-d", pci), TIMEOUT_S)
        if result.status in _CANNOT_RUN:
            self._found = False
        return result.status, result.output
