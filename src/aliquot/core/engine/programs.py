"""Programs of the GPU driver, which are on this host, below a root directory, or in the driver's own pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class ProgramResult(msgspec.Struct, frozen=True):
    """The exit status and the output of a program."""

    status: int
    out: str = ""
    err: str = ""

    @property
    def output(self) -> str:
        """Both outputs together."""
        return "\n".join(filter(None, (self.out.strip(), self.err.strip())))


class DriverPrograms(Protocol):
    """A runner of driver programs, called on worker threads.

    ``location`` names the place in error messages (``pod harvester-system/nvidia-driver-x``). Raises NoDriverError if
    nothing can run there (the pod is gone), HardwareError after ``timeout_s``.
    """

    @property
    def location(self) -> str: ...

    def run(self, command: Sequence[str], timeout_s: float) -> ProgramResult: ...
