"""Connection to libvirt: through the Python binding if it is installed, else through ``virsh``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import UsageError
from aliquot.libvirt.errors import NoLibvirtError
from aliquot.libvirt.port import Libvirt

URI = "qemu:///system"
SOCKETS = ("/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock")
"""Of the system's daemon."""
IMPLEMENTATIONS = ("binding", "virsh")


@contextmanager
def open_libvirt(uri: str = "", implementation: str = "") -> Iterator[Libvirt]:
    """Connect to the daemon at a URI, and close the connection afterwards. ``implementation`` forces ``binding`` or
    ``virsh``.

    Raises NoLibvirtError if no daemon answers, or neither implementation is installed.
    """
    connection = _open(uri or URI, implementation)
    try:
        yield connection
    finally:
        connection.close()


def _open(uri: str, implementation: str) -> Libvirt:
    if implementation not in ("", *IMPLEMENTATIONS):
        raise UsageError(
            f"invalid ALIQUOT_LIBVIRT {implementation!r}: use binding or virsh", next_step="unset ALIQUOT_LIBVIRT"
        )
    if implementation != "virsh":
        try:
            from aliquot.libvirt.binding import LibvirtPython
        except ImportError as absent:
            if implementation == "binding":
                raise NoLibvirtError(
                    f"cannot use libvirt-python: {absent}",
                    next_step="pip install libvirt-python==$(virsh --version)",
                ) from absent
        else:
            return LibvirtPython(uri)
    from aliquot.libvirt.virsh import Virsh

    return Virsh(uri)
