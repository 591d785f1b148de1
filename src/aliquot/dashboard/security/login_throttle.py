"""Rate limit for wrong tokens by token and by address. A valid token is never refused, and memory is bounded.

Many users may share an address (proxy, NAT). Tokens from a throttled address are therefore still checked, but only a
few at a time. A token that was refused several times from there is not checked again for a while.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from aliquot.dashboard.security.token_authenticator import digest
from aliquot.foundation.backoff import Backoff

FREE = 5
"""Wrong tokens before throttling begins, for typing errors."""
BACKOFF = Backoff(first=1.0, longest=60.0)
FORGET_S = 900.0
MOST = 4096
"""The number of entries of each kind. The oldest is discarded."""
CHECKS = 2
"""How many tokens of throttled addresses are checked at a time. Each check may need a request to the API server."""


class LoginAttempts:
    """Counters of wrong tokens by address (a /64 for IPv6), and by token and address.

    ``total`` counts all. ``clock`` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.total = 0
        self._addresses: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()
        self._credentials: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()

    def wait(self, client: str, token: str) -> float:
        """Return the seconds until this token from this address is checked again, 0 for now."""
        return self._wait(self._credentials.get((_network(client), digest(token))))

    def throttled_for(self, client: str) -> float:
        """Return the seconds for which this address is throttled, 0 if it is not."""
        return self._wait(self._addresses.get(_network(client)))

    def count_wrong(self, client: str, token: str) -> None:
        """Count one more wrong token."""
        self.total += 1
        network, now = _network(client), self._clock()
        _count(self._addresses, network, now)
        _count(self._credentials, (network, digest(token)), now)

    def forget(self, client: str, token: str) -> None:
        """Forget that this token was wrong. The address stays throttled: a guesser may share it."""
        self._credentials.pop((_network(client), digest(token)), None)

    def _wait(self, wrong: tuple[int, float] | None) -> float:
        count, last = wrong or (0, 0.0)
        if count < FREE:
            return 0.0
        return max(0.0, last + BACKOFF.pause(count - FREE + 1) - self._clock())


def _count(counts: OrderedDict[Hashable, tuple[int, float]], key: Hashable, now: float) -> None:
    count, last = counts.pop(key, (0, now))
    counts[key] = (1 if now - last > FORGET_S else count + 1, now)
    while len(counts) > MOST:
        counts.popitem(last=False)


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
