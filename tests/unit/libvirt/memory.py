"""An in-memory libvirt: the port, with failures on demand."""

from __future__ import annotations

import msgspec

from aliquot.libvirt import domain_xml as xml
from aliquot.libvirt import nodedev_xml as nodexml
from aliquot.libvirt.errors import LibvirtError, NoVmError, translate_error
from aliquot.libvirt.models import Hostdev, LibvirtDomain, NodeDevice


class MemoryLibvirt:
    """Attach and detach change its domains. ``refuse`` maps a device's key to an error message of libvirt. Calls for
    ``deaf`` keys succeed without effect. ``clings`` counts the reads before a guest releases a device.
    """

    uri = "memory:///"
    through = "memory"

    def __init__(self, *domains: LibvirtDomain, mdevs: tuple[NodeDevice, ...] = ()) -> None:
        self.all = {d.uuid: d for d in domains}
        self.nodes = {m.name: m for m in mdevs}
        self.refuse: dict[str, str] = {}
        self.deaf: set[str] = set()
        self.clings = 0
        self.calls: list[tuple[str, str]] = []

    def version(self) -> tuple[int, int]:
        return 10, 0

    def domains(self) -> tuple[LibvirtDomain, ...]:
        return tuple(self.all.values())

    def domain(self, uuid: str) -> LibvirtDomain:
        if uuid not in self.all:
            raise NoVmError("this VM does not exist")
        return self.all[uuid]

    def attach(self, uuid: str, device: str, *, live: bool, config: bool) -> None:
        hostdev = self._seen("attach", device)
        if hostdev.key in self.deaf:
            return
        there = self.domain(uuid)
        self.all[uuid] = msgspec.structs.replace(
            there,
            live=(*there.live, hostdev) if live else there.live,
            config=(*there.config, hostdev) if config else there.config,
        )

    def detach(self, uuid: str, device: str, *, live: bool, config: bool) -> None:
        hostdev = self._seen("detach", device)
        there = self.domain(uuid)
        left = self.clings if live else 0
        self.all[uuid] = msgspec.structs.replace(
            there,
            live=tuple(h for h in there.live if h.key != hostdev.key or left or not live),
            config=tuple(h for h in there.config if h.key != hostdev.key or not config),
        )

    def _seen(self, verb: str, device: str) -> Hostdev:
        domain = xml.parse_domain(f"<domain><devices>{device}</devices></domain>")
        (hostdev,) = domain.config
        self.calls.append((verb, hostdev.key))
        sentence = self.refuse.get(f"{verb} {hostdev.key}", "")
        if sentence:
            raise translate_error(sentence, f"{verb} it")
        return hostdev

    def start(self, uuid: str) -> None:
        self.all[uuid] = msgspec.structs.replace(self.domain(uuid), id=1)

    def mdevs(self) -> tuple[NodeDevice, ...]:
        return tuple(self.nodes.values())

    def define_mdev(self, device: str) -> str:
        made = nodexml.parse(device, active=False, persistent=True)
        assert made is not None
        name = f"mdev_{made.uuid.replace('-', '_')}"
        self.nodes[name] = msgspec.structs.replace(made, name=name)
        self.calls.append(("define", made.uuid))
        return name

    def start_mdev(self, name: str) -> None:
        if name not in self.nodes:
            raise LibvirtError("no such mdev")
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], active=True)
        self.calls.append(("start", name))

    def autostart_mdev(self, name: str) -> None:
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], autostart=True)
        self.calls.append(("autostart", name))

    def undefine_mdev(self, name: str) -> None:
        self.nodes.pop(name)

    def close(self) -> None:
        """Close nothing: the stub opens nothing."""
