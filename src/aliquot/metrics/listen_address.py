"""Listen address of a page: an address and a port, as users write them."""

from __future__ import annotations

from ipaddress import IPv6Address

from aliquot.errors import UsageError
from aliquot.foundation.decimals import decimal

LOOPBACK = "127.0.0.1"
LOCAL_STEP = f"aliquot metrics --listen {LOOPBACK}:0"
"""The next command after an address that cannot be listened on."""


def parse_listen_address(text: str) -> tuple[str, int]:
    """Parse ``ADDRESS:PORT``, ``[::1]:PORT``, ``:PORT`` (all addresses) or ``PORT`` (loopback). Raises UsageError."""
    address, colon, port = text.rpartition(":")
    bare = address.removeprefix("[").removesuffix("]")
    number = decimal(port, 5)
    if number is None or number > 65535 or (":" in bare and not _is_v6(bare)):
        raise UsageError(f"invalid listen address {text!r}: use ADDRESS:PORT, for example 127.0.0.1:9837 or [::1]:9837")
    return (bare or "0.0.0.0") if colon else LOOPBACK, number


def _is_v6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
