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
        self._event_set: int | None = None

    def take(self) -> list[Xid]:
        """What was reported since the last call. Raises HardwareError."""
        query, found = self._backend.query, list[Xid]()
        if self._event_set is None:
            self._event_set = query("making an event set", "EventSetCreate")[0]
        gpus = {g.index: g.pci for g in self._backend.read().gpus}
        selection = " ".join(f"{index} {XID}" for index in gpus)
        while True:
            try:
                answer = query("waiting for an event", f"EventSetWait {self._event_set} 0 {selection}")
            except HardwareError as error:
                if error.nvml_code == codes.TIMEOUT:
                    return found
                raise
            self._event_set, gpu, _, code, instance, compute_instance = answer
            found.append(Xid(gpus[gpu], code, _known(instance), _known(compute_instance)))


def _known(number: int) -> int | None:
    return None if number < 0 else number
