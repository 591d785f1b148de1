"""Connection to libvirt: through the Python binding if it is installed, else through ``virsh``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import UsageError
from aliquot.libvirt.errors import NoLibvirtError
from aliquot.libvirt.port import Libvirt

URI = "qemu:///system"
SOCKETS = ("/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock")
"""Of the system's daemon."""
URI_VARIABLE = "LIBVIRT_DEFAULT_URI"
"""libvirt's own variable for the URI of a daemon other than the system's."""
IMPLEMENTATION_VARIABLE = "ALIQUOT_LIBVIRT"
IMPLEMENTATIONS = ("binding", "virsh")


@contextmanager
def open_libvirt(uri: str = "", implementation: str = "") -> Iterator[Libvirt]:
    """Connect to the daemon at a URI, and close the connection afterwards. ``implementation`` forces ``binding`` or
    ``virsh``. Without them LIBVIRT_DEFAULT_URI names the daemon, and ALIQUOT_LIBVIRT the implementation.

    Raises NoLibvirtError if no daemon answers, or neither implementation is installed.
    """
    connection = _open(
        uri or os.environ.get(URI_VARIABLE, "") or URI, implementation or os.environ.get(IMPLEMENTATION_VARIABLE, "")
    )
    try:
        yield connection
    finally:
        connection.close()


def has_daemon(*, this_host: bool) -> bool:
    """Report whether there is a daemon to ask: LIBVIRT_DEFAULT_URI names one or, for this host, the system's runs."""
    return bool(os.environ.get(URI_VARIABLE)) or (this_host and any(map(os.path.exists, SOCKETS)))


def _open(uri: str, implementation: str) -> Libvirt:
    if implementation not in ("", *IMPLEMENTATIONS):
        raise UsageError(
            f"invalid {IMPLEMENTATION_VARIABLE} {implementation!r}: use binding or virsh",
            next_step=f"unset {IMPLEMENTATION_VARIABLE}",
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
