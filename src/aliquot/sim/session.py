"""The callers of a simulated node: an open NVML session, or a caller without one."""

from __future__ import annotations

from collections.abc import Callable


class SimSession:
    """An open NVML session, or a caller without one (``token`` empty). ``connections`` counts its connections;
    ``caller_ended`` returns whether the caller of the current call has ended.
    """

    def __init__(
        self,
        token: str,
        pid: int,
        privileged: bool = True,
        hand: bool = False,
        caller_ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self.token = token
        self.pid = pid
        self.privileged = privileged
        self.hand = hand
        self.caller_ended = caller_ended
        self.connections = 0


class CallerGoneError(Exception):
    """The caller has ended, or was killed by a fault: no answer is possible."""
