"""Where a page is served: an address and a port as people write them."""

from __future__ import annotations

from ipaddress import IPv6Address

from aliquot.errors import UsageError

LOOPBACK = "127.0.0.1"


def place(text: str) -> tuple[str, int]:
    """``ADDRESS:PORT``, ``[::1]:PORT``, ``:PORT`` (all addresses) or ``PORT`` (loopback). Raises UsageError."""
    address, colon, port = text.rpartition(":")
    bare = address.removeprefix("[").removesuffix("]")
    number = port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536
    if not number or (":" in bare and not _is_v6(bare)):
        raise UsageError(
            f"{text!r} is no address and port: it is written 127.0.0.1:9837, or [::1]:9837",
            next_step="aliquot metrics --help",
        )
    return (bare or "0.0.0.0") if colon else LOOPBACK, int(port)


def _is_v6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
