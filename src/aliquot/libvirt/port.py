"""What we need of libvirt, as a port. Two things fill it: the Python binding, and the ``virsh`` program."""

from __future__ import annotations

from typing import Protocol

from aliquot.libvirt.models import LibvirtDomain, NodeDevice

BOUND_S = 120.0
"""The first question after a daemon's start may wait for its probe of QEMU, 10 s on an idle machine."""


class Libvirt(Protocol):
    """One open connection. Domains are named by their UUID in every call: names may look like numbers, and numbers are
    ids. Every method raises a ``LibvirtError`` of ``errors`` and comes back within a bound.
    """

    uri: str
    through: str

    def version(self) -> tuple[int, int]:
        """The daemon's version: 9, 0."""
        ...

    def domains(self) -> tuple[LibvirtDomain, ...]:
        """Every domain, running or defined."""
        ...

    def domain(self, uuid: str) -> LibvirtDomain:
        """A fresh look at one. Raises NoVmError."""
        ...

    def attach(self, uuid: str, device: str, *, live: bool, config: bool) -> None:
        """Adds a device (XML) to the running machine, to the definition, or to both."""
        ...

    def detach(self, uuid: str, device: str, *, live: bool, config: bool) -> None:
        """Takes a device away. From a running machine it goes when the guest lets it: look again."""
        ...

    def start(self, uuid: str) -> None: ...

    def mdevs(self) -> tuple[NodeDevice, ...]:
        """Every mdev, active or only defined."""
        ...

    def define_mdev(self, device: str) -> str:
        """Gives an mdev (XML) a definition that outlives a reboot. The node device's name."""
        ...

    def start_mdev(self, name: str) -> None: ...

    def autostart_mdev(self, name: str) -> None:
        """Has a defined mdev started whenever its parent appears."""
        ...

    def undefine_mdev(self, name: str) -> None: ...

    def close(self) -> None: ...
