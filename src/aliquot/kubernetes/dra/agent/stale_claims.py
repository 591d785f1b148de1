"""Prepared claims that the cluster does not know any more, because kubelet lost its own record of them.

Normally kubelet releases each claim. A claim that was deleted is released here only if nothing can use it: after a
reboot, or when kubelet has listed no pod with it for ``GONE_S`` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from aliquot.errors import AliquotError
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference
from aliquot.kubernetes.node_agent.pod_holders import Uses
from aliquot.node.holders.prepared_claims import RecordedClaim

GONE_S = 60.0


class StaleClaims:
    """Finds claims to release. ``uses`` asks kubelet for the devices of pods; None without a kubelet."""

    def __init__(self, uses: Uses | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._uses = uses
        self._clock = clock
        self._since: dict[str, float] = {}

    async def find(
        self, recorded: Sequence[RecordedClaim], known: Collection[str] | None, boot: str
    ) -> tuple[ClaimReference, ...]:
        """Return the claims to release. ``known`` are the uids of allocated claims; None if they are not known now."""
        gone = [each for each in recorded if known is not None and each.uid not in known]
        now = self._clock()
        used = await self._used() if any(each.boot == boot for each in gone) else None
        idle = [
            each
            for each in gone
            if each.boot != boot or (used is not None and f"{each.namespace}/{each.name}" not in used)
        ]
        self._since = {each.uid: self._since.get(each.uid, now) for each in idle}
        return tuple(
            ClaimReference(each.uid, each.namespace, each.name)
            for each in idle
            if each.boot != boot or now - self._since[each.uid] >= GONE_S
        )

    @property
    def due_s(self) -> float | None:
        """Seconds from now until the next release is due; None if none is to come. ``find`` has returned the others."""
        left = (since + GONE_S - self._clock() for since in self._since.values())
        return min((seconds for seconds in left if seconds > 0), default=None)

    async def _used(self) -> frozenset[str] | None:
        """Return the claims of pods that kubelet lists; None if it does not answer."""
        if self._uses is None:
            return None
        try:
            return frozenset(use.claim.claim for use in await self._uses() if use.claim is not None)
        except AliquotError:
            return None
