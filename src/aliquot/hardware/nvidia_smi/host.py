"""The machine around GPUs whose driver's programs, ``sriov-manage`` among them, run elsewhere."""

from __future__ import annotations

from aliquot.core.engine.programs import DriverPrograms
from aliquot.errors import AliquotError
from aliquot.foundation.signals import uninterrupted
from aliquot.hardware.host import RESET_TIMEOUT_S, LocalHost, reset_error
from aliquot.hardware.kernel.sriov_manage import PROGRAM, TIMEOUT_S
from aliquot.hardware.nvidia_smi.command import Smi

_PROBE_TIMEOUT_S = 30.0
_CANNOT_RUN = (126, 127)
"""What a shell, and a container runtime, say of a program that is not there or cannot be started."""


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


class ProgramTools:
    """Implements ``kernel.sriov_manage.Tools``. Whether the program is there is asked once: it is looked for again
    only while it was not found.
    """

    def __init__(self, programs: DriverPrograms) -> None:
        self._programs = programs
        self._found = False

    @property
    def sriov_manage(self) -> str:
        """Its path where ``programs`` run; empty where it is not there, or nothing can be run now."""
        if not self._found:
            try:
                self._found = self._programs.run((PROGRAM, "-h"), _PROBE_TIMEOUT_S).status not in _CANNOT_RUN
            except AliquotError:
                self._found = False
        return PROGRAM if self._found else ""

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        """Raises NoDriverError where nothing can be run any more, HardwareError where it does not end."""
        with uninterrupted():
            result = self._programs.run((PROGRAM, "-e" if on else "-d", pci), TIMEOUT_S)
        if result.status in _CANNOT_RUN:
            self._found = False
        return result.status, result.output
