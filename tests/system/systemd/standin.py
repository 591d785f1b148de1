"""A stand-in for the D-Bus interfaces of systemd and logind, on a real dbus-daemon.

It behaves as org.freedesktop.systemd1(5) and org.freedesktop.login1(5) define, for units in a table. It can also do
what a real one rarely does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from jeepney import (  # type: ignore[import-untyped]
    DBusAddress,
    HeaderFields,
    Message,
    MessageType,
    new_error,
    new_method_call,
    new_method_return,
    new_signal,
)
from jeepney.io.asyncio import open_dbus_connection  # type: ignore[import-untyped]

SYSTEMD, LOGIND = "org.freedesktop.systemd1", "org.freedesktop.login1"
ROOT = "/org/freedesktop/systemd1"
ORDERS = ("StopUnit", "StartUnit", "Reboot")
UNIT, SERVICE, JOB = f"{SYSTEMD}.Unit", f"{SYSTEMD}.Service", f"{SYSTEMD}.Job"


class Unit:
    def __init__(self, name: str, **facts: Any) -> None:
        self.name = name
        self.active = "inactive"
        self.enabled: bool = facts.get("enabled", False)
        self.type: str = facts.get("type", "simple")
        self.requires: str = facts.get("requires", "")
        self.fails: bool = facts.get("fails", False)
        self.slow_stop: bool = facts.get("slow_stop", False)
        self.masked: bool = facts.get("masked", False)

    @property
    def path(self) -> str:
        return f"{ROOT}/unit/" + "".join(c if c.isalnum() else f"_{ord(c):02x}" for c in self.name)


class RefusedError(Exception):
    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class Standin:
    """The interfaces, served from a separate thread.

    ``silent``: signals of ended jobs are not sent. ``deaf``: no call is answered. ``blocked`` names the holder of
    logind's reboot lock (None: logind does not exist). ``on_order`` is called ``before`` and ``after`` each order. If
    it raises ConnectionAbortedError, the order is lost.
    """

    def __init__(self, address: str, names: tuple[str, ...] = (SYSTEMD,)) -> None:
        self.units: dict[str, Unit] = {}
        self.calls: list[str] = []
        self.silent = self.deaf = False
        self.blocked = ""
        self.forbidden = False
        self.on_order: Callable[[str, str], None] = lambda when, order: None
        self._names, self._address = names, address
        self._subscribed: set[str] = set()
        self._jobs: dict[str, tuple[int, str, str]] = {}
        self._count = 0
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(10)

    def _run(self) -> None:
        self._task = self._loop.create_task(self._serve())
        try:
            self._loop.run_until_complete(self._task)
        except (asyncio.CancelledError, EOFError, ConnectionError):
            pass
        except BaseException as failure:  # noqa: BLE001
            self._failure = failure
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._ready.set()

    async def _serve(self) -> None:
        self._connection = await open_dbus_connection(self._address)
        bus = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        async with self._connection:
            for name in self._names:
                await self._connection.send(new_method_call(bus, "RequestName", "su", (name, 0)))
                while (await self._connection.receive()).header.message_type is not MessageType.method_return:
                    pass
            self._ready.set()
            while True:
                message = await self._connection.receive()
                if message.header.message_type is MessageType.method_call and not self.deaf:
                    await self._answer(message)

    async def _answer(self, message: Message) -> None:
        fields = message.header.fields
        member = fields[HeaderFields.member]
        self.calls.append(" ".join([member, *(str(b) for b in message.body[:1] if member not in ("Get",))]))
        after: list[str] = []
        order = " ".join(map(str, (member, *message.body[:1]))) if member in ORDERS else ""
        try:
            if order:
                self.on_order("before", order)
            signature, body = self._do(message, fields[HeaderFields.path], member, after)
            await self._connection.send(new_method_return(message, signature or None, body))
        except ConnectionAbortedError:
            return
        except RefusedError as refused:
            await self._connection.send(new_error(message, refused.name, "s", (str(refused),)))
        for job in after:
            await self._end(job)
        if order:
            self.on_order("after", order)

    def _do(self, message: Message, path: str, member: str, after: list[str]) -> tuple[str, tuple[Any, ...]]:
        body = message.body
        if self.forbidden and member in ("StopUnit", "StartUnit", "Reboot"):
            raise RefusedError("org.freedesktop.DBus.Error.AccessDenied", "Permission denied")
        if member == "Subscribe":
            sender = message.header.fields[HeaderFields.sender]
            if sender in self._subscribed:
                raise RefusedError(f"{SYSTEMD}.AlreadySubscribed", "Client is already subscribed.")
            self._subscribed.add(sender)
            return "", ()
        if member == "LoadUnit":
            return "o", ((self.units.get(body[0]) or Unit(body[0])).path,)
        if member == "GetUnit":
            if body[0] not in self.units:
                raise RefusedError(f"{SYSTEMD}.NoSuchUnit", f"Unit {body[0]} not loaded.")
            return "o", (self.units[body[0]].path,)
        if member == "ResetFailedUnit":
            if body[0] not in self.units:
                raise RefusedError(f"{SYSTEMD}.NoSuchUnit", f"Unit {body[0]} not loaded.")
            return "", ()
        if member in ("StopUnit", "StartUnit"):
            return "o", (self._queue(member, body[0], after),)
        if member == "Get":
            return "v", (self._property(path, *body),)
        if member == "Reboot":
            if self.blocked:
                raise RefusedError(
                    f"{LOGIND}.BlockedByInhibitorLock", "The operation inhibited by an active inhibitor lock."
                )
            return "", ()
        if member == "ListInhibitors":
            found = [("shutdown:sleep", self.blocked, "it must not stop", "block", 0, 77)] if self.blocked else []
            return "a(ssssuu)", ([*found, ("sleep", "other", "", "block", 0, 78)],)
        raise RefusedError("org.freedesktop.DBus.Error.UnknownMethod", f"Unknown method {member}")

    def _queue(self, member: str, name: str, after: list[str]) -> str:
        unit = self.units.get(name)
        if unit is None:
            word = "loaded" if member == "StopUnit" else "found"
            raise RefusedError(f"{SYSTEMD}.NoSuchUnit", f"Unit {name} not {word}.")
        if unit.masked and member == "StartUnit":
            raise RefusedError(f"{SYSTEMD}.UnitMasked", f"Unit {name} is masked.")
        self._count += 1
        job = f"{ROOT}/job/{self._count}"
        self._jobs[job] = (self._count, member, name)
        if member == "StopUnit" and unit.slow_stop:
            unit.active = "deactivating"
        else:
            after.append(job)
        return job

    async def _end(self, job: str) -> None:
        number, member, name = self._jobs.pop(job)
        unit = self.units[name]
        result = "done"
        if member == "StopUnit":
            for each in (unit, *(u for u in self.units.values() if u.requires == name)):
                each.active = "inactive"
        elif unit.fails:
            unit.active, result = "failed", "failed"
        else:
            unit.active = "active"
        if self._subscribed and not self.silent:
            emitter = DBusAddress(ROOT, interface=f"{SYSTEMD}.Manager")
            await self._connection.send(new_signal(emitter, "JobRemoved", "uoss", (number, job, name, result)))

    def _property(self, path: str, interface: str, name: str) -> tuple[str, Any]:
        if interface == JOB:
            if path not in self._jobs:
                raise RefusedError("org.freedesktop.DBus.Error.UnknownObject", f"Unknown object '{path}'.")
            return "s", "waiting"
        unit = next((u for u in self.units.values() if u.path == path), Unit(""))
        exists = unit.name in self.units
        facts: dict[tuple[str, str], tuple[str, Any]] = {
            (UNIT, "LoadState"): ("s", ("masked" if unit.masked else "loaded") if exists else "not-found"),
            (UNIT, "ActiveState"): ("s", unit.active),
            (UNIT, "UnitFileState"): ("s", "enabled" if unit.enabled else "disabled"),
            (UNIT, "Job"): ("(uo)", (0, "/")),
            (UNIT, "RequiredBy"): ("as", [u.name for u in self.units.values() if u.requires == unit.name]),
            (SERVICE, "Type"): ("s", unit.type),
        }
        if (interface, name) not in facts:
            raise RefusedError("org.freedesktop.DBus.Error.UnknownProperty", f"Unknown property or interface {name}")
        return facts[interface, name]
