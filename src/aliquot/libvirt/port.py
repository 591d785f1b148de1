"""Port to libvirt. The Python binding and the ``virsh`` program implement it."""

from __future__ import annotations

from typing import Protocol

from aliquot.libvirt.models import LibvirtDomain, NodeDevice

BOUND_S = 120.0
"""The first call after a daemon's start may wait for its probe of QEMU, 10 s on an idle host."""


class Libvirt(Protocol):
    """An open connection. Every call names domains by their UUID, because names may look like numbers, and numbers are
    ids. Every method raises a ``LibvirtError`` of ``errors`` and returns within a time limit.
    """

    uri: str
    through: str

    def version(self) -> tuple[int, int]:
        """Return the daemon's version: 9, 0."""
        ...

    def domains(self) -> tuple[LibvirtDomain, ...]:
        """Return every domain, running or defined."""
        ...

    def domain(self, uuid: str) -> LibvirtDomain:
        """Read one domain again. Raises NoVmError."""
        ...

    def attach(self, uuid: str, device: str, *, live: bool, config: bool) -> None:
        """Attach a device (XML) to the running VM, to the definition, or to both."""
        ...

    def detach(self, uuid: str, device: str, *, live: bool, config: bool) -> None:
        """Detach a device. A running VM keeps it until the guest releases it: read the domain again."""
        ...

    def start(self, uuid: str) -> None: ...

    def mdevs(self) -> tuple[NodeDevice, ...]:
        """Return every mdev, active or only defined."""
        ...

    def define_mdev(self, device: str) -> str:
        """Create a definition of an mdev (XML) that outlives a reboot. Return the node device's name."""
        ...

    def start_mdev(self, name: str) -> None: ...

    def autostart_mdev(self, name: str) -> None:
        """Set a defined mdev to start whenever its parent appears."""
        ...

    def undefine_mdev(self, name: str) -> None: ...

    def close(self) -> None: ...
