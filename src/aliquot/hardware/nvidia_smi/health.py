"""The health of GPUs behind nvidia-smi: nobody says."""

from __future__ import annotations

from collections.abc import Callable

from aliquot.core.model.xids import Xid


class NoXidEvents:
    """Implements ``nvml.health.XidEvents`` for GPUs whose XIDs cannot be heard."""

    def __init__(self, gpus: Callable[[], tuple[str, ...]]) -> None:
        self._gpus = gpus

    @property
    def unwatched(self) -> tuple[str, ...]:
        return self._gpus()

    def take(self) -> list[Xid]:
        return []
