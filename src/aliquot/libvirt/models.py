"""What libvirt knows, as frozen values: domains, the host devices in them, and node devices."""

from __future__ import annotations

import msgspec

MDEV = "mdev"
PCI = "pci"


class Hostdev(msgspec.Struct, frozen=True):
    """A host device that a domain has: ``kind`` is ``mdev`` (then ``uuid`` names it) or ``pci`` (then ``address``).

    ``managed`` True lets libvirt bind a PCI device to vfio-pci when the domain starts. ``display`` and ``ramfb`` are
    None where the XML does not say; libvirt then takes both as off. ``text`` is the element as the domain has it, which
    is what a detach must show: empty for a device of our own making.
    """

    kind: str
    uuid: str = ""
    address: str = ""
    managed: bool = False
    model: str = ""
    display: bool | None = None
    ramfb: bool | None = None
    text: str = ""

    @property
    def key(self) -> str:
        """What makes two of them the same device."""
        return self.uuid or self.address

    @property
    def shown(self) -> str:
        return f"mdev {self.uuid}" if self.kind == MDEV else f"PCI device {self.address}"


class LibvirtDomain(msgspec.Struct, frozen=True):
    """A virtual machine. ``id`` is libvirt's number of a running one, None while it is shut off. ``live`` are the host
    devices that it has now, ``config`` those of its definition (the same where it is shut off; none for a transient
    one). ``graphics`` says whether it has a display server, which ``display='on'`` needs.
    """

    name: str
    uuid: str
    id: int | None = None
    persistent: bool = True
    live: tuple[Hostdev, ...] = ()
    config: tuple[Hostdev, ...] = ()
    graphics: bool = False

    @property
    def running(self) -> bool:
        return self.id is not None

    @property
    def hostdevs(self) -> tuple[Hostdev, ...]:
        """The devices of the definition, then those that only the running machine has."""
        known = {h.key for h in self.config}
        return (*self.config, *(h for h in self.live if h.key not in known))


class NodeDevice(msgspec.Struct, frozen=True):
    """An mdev as libvirt lists it: ``parent`` is the PCI address that carries it, ``type`` its type's directory
    (``nvidia-746``). ``persistent`` ones have a definition that outlives a reboot; ``autostart`` ones come back by
    themselves.
    """

    name: str
    uuid: str
    parent: str
    type: str
    active: bool = True
    persistent: bool = False
    autostart: bool = False
