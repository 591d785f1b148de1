"""Options of the dashboard server."""

from __future__ import annotations

import ipaddress

import msgspec


class DashboardOptions(msgspec.Struct, frozen=True):
    """Address, TLS files and access of the server.

    ``certificate`` and ``key`` are paths, "" for plain HTTP. ``allowed`` are the names of a reverse proxy.
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
    """Report whether an address can be reached only from this host."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
