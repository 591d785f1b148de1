"""Whose program a request comes from, where that is a program of this machine: the kernel knows.

A browser sends a host's cookies to all its ports, and on 127.0.0.1 every user of the machine may have one: a page there
gets the cookie of this one along. It is worth nothing to another user: a session stays with the user who logged in.
"""

from __future__ import annotations

import ipaddress
import socket
import struct

from starlette.requests import Request

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST = 1
_ANY = 0xFFFFFFFF
_UID_AT = 80
"""In the answer: a header of 16 bytes, four of state, 48 that name the socket, three numbers."""
_PATIENCE_S = 1.0


def owner(request: Request) -> int | None:
    """The user whose program asks; None for another machine's, and where the kernel does not tell."""
    client, server = request.scope.get("client"), request.scope.get("server")
    if not client or not server or not server[1]:
        return None
    try:
        return _owner(_plain(client[0]), client[1], _plain(server[0]), server[1])
    except (OSError, ValueError, struct.error):
        return None


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def _owner(
    local: ipaddress.IPv4Address | ipaddress.IPv6Address,
    port: int,
    remote: ipaddress.IPv4Address | ipaddress.IPv6Address,
    to: int,
) -> int | None:
    """The user of the socket at ``local`` that is connected with ``remote``. Raises OSError."""
    if local.version != remote.version:
        return None
    family = socket.AF_INET if local.version == 4 else socket.AF_INET6
    name = struct.pack("!HH16s16s", port, to, local.packed, remote.packed) + struct.pack("=III", 0, _ANY, _ANY)
    query = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ANY) + name
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_PATIENCE_S)
        kernel.send(struct.pack("=IHHII", 16 + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0) + query)
        answer = kernel.recv(4096)
    if struct.unpack_from("=IH", answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None  # no such socket here
    return int(struct.unpack_from("=I", answer, _UID_AT)[0])
