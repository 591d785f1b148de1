"""Programs of the GPU driver, run wherever they are: beside us, below a root directory, or in the driver's own pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class ProgramResult(msgspec.Struct, frozen=True):
    """How a program ended: its exit status and its words."""

    status: int
    out: str = ""
    err: str = ""

    @property
    def output(self) -> str:
        """What it said, whichever way."""
        return "\n".join(filter(None, (self.out.strip(), self.err.strip())))


class DriverPrograms(Protocol):
    """``location`` says where they run, for error messages (``pod harvester-system/nvidia-driver-x``). Called on worker
    threads. Raises NoDriverError where nothing can be run there (the pod is gone), HardwareError after ``timeout_s``.
    """

    @property
    def location(self) -> str: ...

    def run(self, command: Sequence[str], timeout_s: float) -> ProgramResult: ...
