"""Wrong tokens, counted: who guesses waits longer and longer. What is remembered of strangers is bounded."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

FREE = 5
"""Anybody mistypes."""
LONGEST_S = 60.0
FORGET_S = 900.0
MOST = 4096


class Attempts:
    """By address of the client (a /64 of IPv6); ``total`` counts all. ``clock`` is in seconds, and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.total = 0
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Seconds until this client may try again, 0 for now."""
        count, last = self._wrong.get(_network(client), (0, 0.0))
        if count < FREE:
            return 0.0
        return max(0.0, last + min(LONGEST_S, 2.0 ** (count - FREE)) - self._clock())

    def wrong(self, client: str) -> None:
        """One more wrong token."""
        self.total += 1
        key, now = _network(client), self._clock()
        count, last = self._wrong.pop(key, (0, now))
        self._wrong[key] = (1 if now - last > FORGET_S else count + 1, now)
        while len(self._wrong) > MOST:
            self._wrong.popitem(last=False)

    def right(self, client: str) -> None:
        self._wrong.pop(_network(client), None)


def _network(client: str) -> str:
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return client
