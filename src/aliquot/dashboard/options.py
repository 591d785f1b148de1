"""Where a page is served, and how."""

from __future__ import annotations

import ipaddress

import msgspec


class DashboardOptions(msgspec.Struct, frozen=True):
    """``certificate`` and ``key`` are paths, "" for plain HTTP. ``allowed`` are the names that a proxy before us goes
    by.
    """

    address: str
    port: int
    certificate: str = ""
    key: str = ""
    allowed: tuple[str, ...] = ()
    read_only: bool = False

    @property
    def loopback(self) -> bool:
        return is_loopback(self.address)


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
