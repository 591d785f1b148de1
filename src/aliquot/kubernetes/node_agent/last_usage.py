"""What the pieces of a node were last seen to be used for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.engine.history import PastRun
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage, coarsen
from aliquot.core.planner.usage_tracking import usage_of_unchanged


class LastUsage(msgspec.Struct, frozen=True):
    """One look at what the pieces are used for: the GPUs as they were, and when that was (seconds of wall time)."""

    inventory: Inventory | None = None
    usage: tuple[Usage, ...] = ()
    at: float = 0.0

    def current_usage(self, current: Inventory, past_runs: Sequence[PastRun]) -> tuple[Usage, ...]:
        """Roughly, for an idle node must not be written anew, and of pieces that are the same ones still: ids come
        again, and a new instance is not idle since the old one was. ``past_runs`` are the node's newest changes.
        """
        if self.inventory is None:
            return ()
        changed_gpus = {pci for past in past_runs if past.ended >= self.at for pci in past.gpus}
        return coarsen(usage_of_unchanged(self.usage, self.inventory, current, changed_gpus))
