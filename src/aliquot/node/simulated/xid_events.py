"""XIDs of a simulated node, for the backend that connects to it without NVML."""

from __future__ import annotations

from collections.abc import Callable

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.xids import Xid
from aliquot.errors import HardwareError
from aliquot.sim.events import XID


class SimEvents:
    """Events since the first call. Every simulated GPU reports XIDs. ``query`` makes a driver call that only reads;
    ``read`` returns the GPUs.
    """

    unwatched: tuple[str, ...] = ()

    def __init__(self, query: Callable[[str, str], list[int]], read: Callable[[], Inventory]) -> None:
        self._query = query
        self._read = read
        self._event_set: int | None = None

    def take(self) -> list[Xid]:
        """Return the XIDs reported since the last call. Raises HardwareError."""
        query, found = self._query, list[Xid]()
        if self._event_set is None:
            self._event_set = query("making an event set", "EventSetCreate")[0]
        gpus = {g.index: g.pci for g in self._read().gpus}
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
