"""XIDs of a simulated node for the backend that speaks to it without NVML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.xids import Xid
from aliquot.errors import HardwareError
from aliquot.sim.events import XID

if TYPE_CHECKING:
    from aliquot.node.simulated.backend import SimBackend


class SimEvents:
    """What happened since the first call. Every simulated GPU reports XIDs."""

    unwatched: tuple[str, ...] = ()

    def __init__(self, backend: SimBackend) -> None:
        self._backend = backend
        self._seen: int | None = None

    def take(self) -> list[Xid]:
        """What was reported since the last call. Raises HardwareError."""
        ask, found = self._backend.ask, list[Xid]()
        if self._seen is None:
            self._seen = ask("making an event set", "EventSetCreate")[0]
        gpus = {g.index: g.pci for g in self._backend.read().gpus}
        wish = " ".join(f"{index} {XID}" for index in gpus)
        while True:
            try:
                answer = ask("waiting for an event", f"EventSetWait {self._seen} 0 {wish}")
            except HardwareError as error:
                if error.nvml_code == codes.TIMEOUT:
                    return found
                raise
            self._seen, gpu, _, code, instance, inside = answer
            found.append(Xid(gpus[gpu], code, _known(instance), _known(inside)))


def _known(number: int) -> int | None:
    return None if number < 0 else number
