"""A connection to libvirt: through the Python binding where it is installed, else through ``virsh``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import UsageError
from aliquot.libvirt.errors import NoLibvirtError
from aliquot.libvirt.port import Libvirt

URI = "qemu:///system"
THROUGH = ("binding", "virsh")


@contextmanager
def opened(uri: str = "", through: str = "") -> Iterator[Libvirt]:
    """The daemon at a URI, closed afterwards. ``through`` forces one implementation: ``binding`` or ``virsh``.

    Raises NoLibvirtError where no daemon answers, or there is nothing to ask it with.
    """
    connection = _open(uri or URI, through)
    try:
        yield connection
    finally:
        connection.close()


def _open(uri: str, through: str) -> Libvirt:
    if through not in ("", *THROUGH):
        raise UsageError(
            f"ALIQUOT_LIBVIRT is {through!r}: it can be binding or virsh", next_step="unset ALIQUOT_LIBVIRT"
        )
    if through != "virsh":
        try:
            from aliquot.libvirt.binding import Binding
        except ImportError as absent:
            if through == "binding":
                raise NoLibvirtError(
                    f"libvirt-python cannot be used: {absent}",
                    next_step="pip install libvirt-python==$(virsh --version)",
                ) from absent
        else:
            return Binding(uri)
    from aliquot.libvirt.virsh import Virsh

    return Virsh(uri)
