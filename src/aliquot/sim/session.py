"""Who calls a simulated node: an open NVML session, or a caller without one."""

from __future__ import annotations

from collections.abc import Callable


class Session:
    """One open NVML session, or a caller without one (``token`` empty). ``links`` counts its connections; ``gone`` says
    whether the caller of the present call has ended.
    """

    def __init__(
        self,
        token: str,
        pid: int,
        privileged: bool = True,
        hand: bool = False,
        gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self.token = token
        self.pid = pid
        self.privileged = privileged
        self.hand = hand
        self.gone = gone
        self.links = 0


class Gone(Exception):
    """The caller has ended, or was killed by a fault: no answer is possible."""
