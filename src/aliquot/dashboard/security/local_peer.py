"""The user of a local client, from the kernel's socket table.

A browser sends a host's cookies to all its ports. On 127.0.0.1, every user of the host can listen on a port, so
another user's server can receive the dashboard's cookie. Sessions are therefore bound to the user who logged in.
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
"""Offset in the reply: 16 bytes of header, 4 of state, 48 of socket id, three numbers."""
_PATIENCE_S = 1.0


def owner(request: Request) -> int | None:
    """Return the uid of the client's process, None for a remote client or if the kernel does not report it."""
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
    """Query the owner of the socket at ``local`` that is connected to ``remote``. Raises OSError."""
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
        return None  # not a local socket
    return int(struct.unpack_from("=I", answer, _UID_AT)[0])
