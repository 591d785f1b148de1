"""What the pieces of a node were last seen to be used for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.engine.history import Past
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage, coarse
from aliquot.core.planner.usage_tracking import still


class Used(msgspec.Struct, frozen=True):
    """One look at what the pieces are used for: the GPUs as they were, and when that was (seconds of wall time)."""

    inventory: Inventory | None = None
    usage: tuple[Usage, ...] = ()
    at: float = 0.0

    def told(self, now: Inventory, pasts: Sequence[Past]) -> tuple[Usage, ...]:
        """Roughly, for an idle node must not be written anew, and of pieces that are the same ones still: ids come
        again, and a new instance is not idle since the old one was. ``pasts`` are the node's newest changes.
        """
        if self.inventory is None:
            return ()
        anew = {pci for past in pasts if past.ended >= self.at for pci in past.gpus}
        return coarse(still(self.usage, self.inventory, now, anew))
