"""The host's system bus: one connection, calls with a timeout, and the signals of finished jobs.

Works from a container with only the host's socket mounted. Names and signatures: org.freedesktop.systemd1(5).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from jeepney import (  # type: ignore[import-untyped]
    DBusAddress,
    HeaderFields,
    MatchRule,
    MessageType,
    new_method_call,
)
from jeepney.auth import AuthenticationError  # type: ignore[import-untyped]
from jeepney.io.asyncio import DBusRouter, open_dbus_connection  # type: ignore[import-untyped]
from jeepney.io.common import RouterClosed  # type: ignore[import-untyped]

from aliquot.hardware.systemd.errors import BusError, BusLostError, NoSystemdError
from aliquot.hardware.systemd.names import MANAGER, ROOT, SYSTEMD

SOCKET = "run/dbus/system_bus_socket"
BOOTED = "run/systemd/system"
"""Exists only if systemd is PID 1 (sd_booted(3))."""

_PROPERTIES = "org.freedesktop.DBus.Properties"
ABSENT = ("ServiceUnknown", "NameHasNoOwner")
"""Error names (their last word) of a bus on which no connection owns the called name."""
REPLY_S = 25.0
"""The default timeout of libdbus for a reply."""
_OPEN_S = 10.0


def reachable(root: str) -> bool:
    """Return whether the host has a reachable systemd; False if the host does not run systemd and so has no such
    services. Raises NoSystemdError if systemd runs without a bus, or if nothing of the host is mounted at ``root``.
    """
    if os.path.exists(os.path.join(root, SOCKET)):
        return True
    if booted(root):
        raise NoSystemdError(
            f"systemd runs on the host, but its bus has no socket at {os.path.join(root, SOCKET)}",
            next_step="install and start dbus on the host, or mount its /run/dbus into the agent's pod",
        )
    if not os.path.isdir(os.path.join(root, "run")):
        raise NoSystemdError(
            f"nothing of the host is mounted at {root}: its services cannot be reached",
            next_step=f"mount the host's /run at {os.path.join(root, 'run')}",
        )
    return False


def booted(root: str) -> bool:
    """Return whether systemd runs the host. This is visible only if its /run is mounted as a whole."""
    return os.path.isdir(os.path.join(root, BOOTED))


class Bus:
    """An open connection. Every call raises BusError for a refusal and BusLostError without an answer."""

    def __init__(self, router: DBusRouter, reply_s: float) -> None:
        self._router = router
        self._reply_s = reply_s

    async def call(
        self,
        member: str,
        signature: str = "",
        *body: Any,
        to: str = SYSTEMD,
        path: str = ROOT,
        interface: str = MANAGER,
    ) -> tuple[Any, ...]:
        """Call a method and return the values of the reply."""
        address = DBusAddress(path, to, interface)
        request = new_method_call(address, member, signature or None, body)
        try:
            async with asyncio.timeout(self._reply_s):
                answer = await self._router.send_and_get_reply(request)
        except TimeoutError as timeout:
            raise BusLostError("", f"no answer to {member} within {self._reply_s:.0f} s") from timeout
        except (OSError, EOFError, RouterClosed) as lost:
            raise BusLostError("", f"the bus went away during {member}") from lost
        if answer.header.message_type is MessageType.error:
            name = str(answer.header.fields.get(HeaderFields.error_name, ""))
            text = answer.body[0] if answer.body and isinstance(answer.body[0], str) else name
            raise BusError(name, text)
        return tuple(answer.body)

    async def property(self, path: str, interface: str, name: str) -> Any:
        """Return the value of one property."""
        ((_, value),) = await self.call("Get", "ss", interface, name, path=path, interface=_PROPERTIES)
        return value

    @asynccontextmanager
    async def finished_jobs(self) -> AsyncIterator[asyncio.Queue[Any]]:
        """Yield a queue of the signals of jobs that end from now on; ``body`` is (id, job, unit, result)."""
        rule = MatchRule(type="signal", sender=SYSTEMD, interface=MANAGER, member="JobRemoved", path=ROOT)
        bus = {"to": "org.freedesktop.DBus", "path": "/org/freedesktop/DBus", "interface": "org.freedesktop.DBus"}
        await self.call("AddMatch", "s", rule.serialise(), **bus)
        await self.call("Subscribe")
        # The bus knows the sender by its own number, so the rule above filters by sender.
        ours = MatchRule(type="signal", interface=MANAGER, member="JobRemoved", path=ROOT)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        with self._router.filter(ours, queue=queue):
            yield queue


@asynccontextmanager
async def open_bus(root: str, *, reply_s: float = REPLY_S) -> AsyncIterator[Bus]:
    """Open the system bus of the host whose root directory is ``root``. Raises NoSystemdError."""
    path = os.path.join(root, SOCKET)
    try:
        async with asyncio.timeout(_OPEN_S):
            connection = await open_dbus_connection(f"unix:path={_escaped(path)}")
    except (OSError, EOFError, AuthenticationError, RouterClosed, TimeoutError) as failure:
        why = getattr(failure, "strerror", None) or str(failure) or "no answer"
        raise NoSystemdError(
            f"the host's bus at {path} cannot be used: {why}", next_step="systemctl status dbus on the host"
        ) from failure
    router = DBusRouter(connection)
    try:
        yield Bus(router, reply_s)
    finally:
        # At its end the router raises the error that broke the connection again; every call has reported it already.
        with suppress(OSError, EOFError):
            await router.__aexit__(None, None, None)
        with suppress(OSError):
            await connection.close()


def _escaped(path: str) -> str:
    """Return a path as D-Bus addresses need it: unusual bytes as %XX."""
    plain = b"-_/.\\*abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return "".join(chr(c) if c in plain else f"%{c:02x}" for c in os.fsencode(path))
