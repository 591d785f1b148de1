"""libvirt through its Python binding (the extra ``libvirt``). The binding must match the installed library: ``pip
install libvirt-python==$(virsh --version)``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import libvirt

from aliquot.libvirt import domain_xml as xml
from aliquot.libvirt import errors
from aliquot.libvirt import nodedev_xml as nodexml
from aliquot.libvirt.errors import LibvirtError
from aliquot.libvirt.models import LibvirtDomain, NodeDevice
from aliquot.libvirt.port import BOUND_S

T = TypeVar("T")


class LibvirtPython:
    """A connection of libvirt-python. A call that hangs is left to its thread, because the binding has no timeouts."""

    through = "libvirt-python"

    def __init__(self, uri: str, bound_s: float = BOUND_S) -> None:
        self.uri = uri
        self._bound_s = bound_s
        libvirt.registerErrorHandler(_silent, None)
        self._connection = self._call(f"reach libvirt at {uri}", lambda: libvirt.open(uri))

    def version(self) -> tuple[int, int]:
        number = int(self._call("read libvirt's version", lambda: self._connection.getLibVersion()))
        return number // 1_000_000, number // 1000 % 1000

    def domains(self) -> tuple[LibvirtDomain, ...]:
        every = self._call("list the VMs", lambda: self._connection.listAllDomains())
        return tuple(d for d in (self._read_if_present(each) for each in every) if d is not None)

    def domain(self, uuid: str) -> LibvirtDomain:
        return self._call(f"read VM {uuid}", lambda: _read(self._lookup(uuid)))

    def attach(self, uuid: str, device: str, *, live: bool, config: bool) -> None:
        flags = _flags(live=live, config=config)
        self._call("attach it", lambda: self._lookup(uuid).attachDeviceFlags(device, flags))

    def detach(self, uuid: str, device: str, *, live: bool, config: bool) -> None:
        flags = _flags(live=live, config=config)
        self._call("detach it", lambda: self._lookup(uuid).detachDeviceFlags(device, flags))

    def start(self, uuid: str) -> None:
        self._call("start the VM", lambda: self._lookup(uuid).create())

    def mdevs(self) -> tuple[NodeDevice, ...]:
        found = self._call("list the mdevs", lambda: [_node(each) for each in self._list_mdevs()])
        return tuple(n for n in found if n is not None)

    def define_mdev(self, device: str) -> str:
        created = self._call("define the mdev", lambda: self._connection.nodeDeviceDefineXML(device))
        return str(created.name())

    def start_mdev(self, name: str) -> None:
        self._call("start the mdev", lambda: self._connection.nodeDeviceLookupByName(name).create())

    def autostart_mdev(self, name: str) -> None:
        self._call("set autostart of the mdev", lambda: self._connection.nodeDeviceLookupByName(name).setAutostart(1))

    def undefine_mdev(self, name: str) -> None:
        self._call("undefine the mdev", lambda: self._connection.nodeDeviceLookupByName(name).undefine())

    def close(self) -> None:
        try:
            self._call("close", lambda: self._connection.close())
        except LibvirtError:
            return  # it is gone either way

    def _lookup(self, uuid: str) -> Any:
        return self._connection.lookupByUUIDString(uuid)

    def _read_if_present(self, handle: Any) -> LibvirtDomain | None:
        """Return a domain, or None if it went away since it was listed."""
        try:
            return self._call("read a VM", lambda: _read(handle))
        except errors.NoVmError:
            return None

    def _list_mdevs(self) -> list[Any]:
        wanted = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV
        try:
            # Without either flag, only active ones are listed.
            both = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_ACTIVE | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_INACTIVE
            return list(self._connection.listAllDevices(wanted | both))
        except libvirt.libvirtError as refused:
            if refused.get_error_code() not in (libvirt.VIR_ERR_INVALID_ARG, libvirt.VIR_ERR_NO_SUPPORT):
                raise
            return list(self._connection.listAllDevices(wanted))

    def _call(self, attempt: str, call: Callable[[], T]) -> T:
        """Return the result of a call within the time limit. Raises LibvirtError."""
        outcome: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                outcome.append(call())
            except BaseException as error:  # noqa: BLE001  (raised again by the caller's thread)
                failed.append(error)

        worker = threading.Thread(target=run, daemon=True)
        worker.start()
        worker.join(self._bound_s)
        if worker.is_alive():
            raise errors.timeout_error(attempt, self._bound_s)
        if not failed:
            return outcome[0]
        if isinstance(failed[0], libvirt.libvirtError):
            raise errors.translate_error(failed[0].get_error_message() or str(failed[0]), attempt) from failed[0]
        raise failed[0]


def _flags(*, live: bool, config: bool) -> int:
    chosen = libvirt.VIR_DOMAIN_AFFECT_LIVE if live else 0
    return int(chosen | (libvirt.VIR_DOMAIN_AFFECT_CONFIG if config else 0))


def _read(handle: Any) -> LibvirtDomain:
    persistent = bool(handle.isPersistent())
    current = handle.XMLDesc(0)
    found = xml.parse_domain(current, persistent=persistent)
    if not (found.running and persistent):
        return found
    return xml.parse_domain(current, handle.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE), persistent=True)


def _node(handle: Any) -> NodeDevice | None:
    try:
        active, persistent, auto = bool(handle.isActive()), bool(handle.isPersistent()), bool(handle.autostart())
    except (AttributeError, libvirt.libvirtError):
        active, persistent, auto = True, False, False  # before 7.8 all mdevs are active
    try:
        return nodexml.parse(handle.XMLDesc(0), active=active, persistent=persistent, autostart=auto)
    except libvirt.libvirtError as gone:
        if gone.get_error_code() == libvirt.VIR_ERR_NO_NODE_DEVICE:
            return None
        raise


def _silent(*_: object) -> None:
    """Discard errors: libvirt prints every error on stderr unless a handler takes it."""
