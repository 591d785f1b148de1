"""A connection to libvirt: through the Python binding where it is installed, else through ``virsh``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import UsageError
from aliquot.libvirt.errors import NoLibvirtError
from aliquot.libvirt.port import Libvirt

URI = "qemu:///system"
IMPLEMENTATIONS = ("binding", "virsh")


@contextmanager
def open_libvirt(uri: str = "", implementation: str = "") -> Iterator[Libvirt]:
    """The daemon at a URI, closed afterwards. ``implementation`` forces one implementation: ``binding`` or ``virsh``.

    Raises NoLibvirtError where no daemon answers, or there is nothing to ask it with.
    """
    connection = _open(uri or URI, implementation)
    try:
        yield connection
    finally:
        connection.close()


def _open(uri: str, implementation: str) -> Libvirt:
    if implementation not in ("", *IMPLEMENTATIONS):
        raise UsageError(
            f"ALIQUOT_LIBVIRT is {implementation!r}: it can be binding or virsh", next_step="unset ALIQUOT_LIBVIRT"
        )
    if implementation != "virsh":
        try:
            from aliquot.libvirt.binding import LibvirtPython
        except ImportError as absent:
            if implementation == "binding":
                raise NoLibvirtError(
                    f"libvirt-python cannot be used: {absent}",
                    next_step="pip install libvirt-python==$(virsh --version)",
                ) from absent
        else:
            return LibvirtPython(uri)
    from aliquot.libvirt.virsh import Virsh

    return Virsh(uri)
