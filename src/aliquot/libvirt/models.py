"""libvirt's objects as frozen values: domains, their host devices, and node devices."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

HostdevKind = Literal["mdev", "pci"]
MDEV: Final = "mdev"
PCI: Final = "pci"
HOSTDEV_KINDS: tuple[HostdevKind, ...] = get_args(HostdevKind)


class Hostdev(msgspec.Struct, frozen=True):
    """A host device of a domain."""

    kind: HostdevKind
    """``mdev`` (named by ``uuid``) or ``pci`` (named by ``address``)."""
    uuid: str = ""
    address: str = ""
    managed: bool = False
    """True lets libvirt bind a PCI device to vfio-pci when the domain starts."""
    model: str = ""
    display: bool | None = None
    """None if the XML does not set it; libvirt then treats it as off. The same holds for ``ramfb``."""
    ramfb: bool | None = None
    text: str = ""
    """The element in the domain's XML, which a detach must send; empty for a device that Aliquot built."""

    @property
    def key(self) -> str:
        """The identity of the device: mdev UUID or PCI address."""
        return self.uuid or self.address

    @property
    def shown(self) -> str:
        return f"mdev {self.uuid}" if self.kind == MDEV else f"PCI device {self.address}"


class LibvirtDomain(msgspec.Struct, frozen=True):
    """A VM."""

    name: str
    uuid: str
    id: int | None = None
    """libvirt's number of a running VM, None while it is shut off."""
    persistent: bool = True
    live: tuple[Hostdev, ...] = ()
    """Current host devices."""
    config: tuple[Hostdev, ...] = ()
    """Host devices of the definition: the same while the VM is shut off, none for a transient VM."""
    graphics: bool = False
    """True if it has a display server, which ``display='on'`` needs."""

    @property
    def running(self) -> bool:
        return self.id is not None

    @property
    def hostdevs(self) -> tuple[Hostdev, ...]:
        """The devices of the definition, then those that only the running VM has."""
        known = {h.key for h in self.config}
        return (*self.config, *(h for h in self.live if h.key not in known))


class NodeDevice(msgspec.Struct, frozen=True):
    """An mdev as libvirt lists it."""

    name: str
    uuid: str
    parent: str
    """PCI address of the parent."""
    type: str
    """Directory of its type (``nvidia-746``)."""
    active: bool = True
    persistent: bool = False
    """True if it has a definition that outlives a reboot."""
    autostart: bool = False
    """True if libvirt starts it when its parent appears."""
