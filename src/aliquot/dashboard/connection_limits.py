"""Limits on connections, against denial of service by slow or idle clients.

A connection is closed if it sends nothing, sends too slowly, or does not read its response.
At most ``MOST`` are open, because they use the same file descriptors as a change of the GPUs.
If there are more, the oldest idle connection is closed.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 512
"""Half of the usual limit of open files (1,024)."""
REQUEST_S = 15.0
"""From the first byte (or the opening of a new connection) to the end of the request headers."""
STUCK_S = 30.0
"""How long a response may wait without the client reading anything. A laptop that slept connects again."""


class LimitedConnection(H11Protocol):
    """A connection with timeouts. uvicorn itself limits only the silence between two requests."""

    request_s = REQUEST_S
    stuck_s = STUCK_S
    most = MOST
    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since = self.loop.time()
        self._arm()
        if len(self.connections) > self.most:
            idle = [each for each in self.connections if isinstance(each, LimitedConnection) and each.idle]
            min(idle, key=lambda each: each._since, default=self).transport.abort()

    @property
    def idle(self) -> bool:
        """True if no response is being sent and no complete request was received."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and self.conn.their_state is h11.IDLE and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._disarm()
        elif self.conn.trailing_data[0]:
            self._arm()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(self.stuck_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._flowing()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._flowing()
        super().connection_lost(exc)

    def _flowing(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _arm(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.request_s, self._give_up)

    def _disarm(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.abort()
