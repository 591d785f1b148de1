"""Domain XML: host devices written for libvirt, and parsed from libvirt's output.

Sources: libvirt's formatdomain page; tested with libvirt 9.0 (``virt-xml-validate``, ``define --validate``).
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from aliquot.foundation.decimals import decimal
from aliquot.libvirt.errors import LibvirtError
from aliquot.libvirt.models import HOSTDEV_KINDS, MDEV, PCI, Hostdev, LibvirtDomain

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,8}|[0-9]{1,9}")
_ADDRESS = re.compile(r"([0-9a-f]{4,}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


def build(hostdev: Hostdev) -> str:
    """Return the ``<hostdev>`` element. A PCI device always has ``managed``, because libvirt's default is no."""
    attributes = {"mode": "subsystem", "type": hostdev.kind}
    if hostdev.kind == MDEV:
        attributes["model"] = hostdev.model or "vfio-pci"
    else:
        attributes["managed"] = _yes(hostdev.managed)
    if hostdev.display is not None:
        attributes["display"] = _on(hostdev.display)
    if hostdev.ramfb is not None:
        attributes["ramfb"] = _on(hostdev.ramfb)
    element = ElementTree.Element("hostdev", attributes)
    source = ElementTree.SubElement(element, "source")
    ElementTree.SubElement(source, "address", _source(hostdev))
    ElementTree.indent(element)
    return ElementTree.tostring(element, encoding="unicode")


def _source(hostdev: Hostdev) -> dict[str, str]:
    if hostdev.kind == MDEV:
        return {"uuid": hostdev.uuid}
    domain, bus, slot, function = pci_parts(hostdev.address)
    return {"domain": f"0x{domain:04x}", "bus": f"0x{bus:02x}", "slot": f"0x{slot:02x}", "function": f"0x{function:x}"}


def pci_parts(address: str) -> tuple[int, int, int, int]:
    """Return domain, bus, slot and function of a PCI address. Raises ValueError."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"{address!r} is not a PCI address")
    domain, bus, slot, function = (int(part, 16) for part in found.groups())
    return domain, bus, slot, function


def parse_domain(current: str, inactive: str = "", *, persistent: bool = True) -> LibvirtDomain:
    """Return a domain from its XML. ``current`` is that of the running VM if it runs; ``inactive`` is the definition,
    or empty if it is the same. Raises LibvirtError if the XML is not a domain.
    """
    root = _parse_xml(current)
    number = decimal(root.get("id", "-1"))
    live = parse_hostdevs(root)
    defined = parse_hostdevs(_parse_xml(inactive)) if inactive else live
    return LibvirtDomain(
        name=root.findtext("name", ""),
        uuid=root.findtext("uuid", ""),
        id=number,
        persistent=persistent,
        live=() if number is None else live,
        config=defined if persistent else (),
        graphics=root.find("devices/graphics") is not None,
    )


def parse_hostdevs(root: ElementTree.Element) -> tuple[Hostdev, ...]:
    """Return the mdevs and PCI devices of a domain, in their order. Other host devices (USB, SCSI) are omitted."""
    found = [_hostdev(each) for each in root.findall("devices/hostdev") if each.get("mode") == "subsystem"]
    return tuple(h for h in found if h is not None)


def _hostdev(element: ElementTree.Element) -> Hostdev | None:
    address = element.find("source/address")
    kind = next((known for known in HOSTDEV_KINDS if known == element.get("type")), None)
    if address is None or kind is None:
        return None
    return Hostdev(
        kind=kind,
        uuid=address.get("uuid", "").lower() if kind == MDEV else "",
        address=_address(address) if kind == PCI else "",
        managed=element.get("managed") == "yes",
        model=element.get("model", ""),
        display=_flag(element.get("display")),
        ramfb=_flag(element.get("ramfb")),
        text=ElementTree.tostring(element, encoding="unicode").strip(),
    )


def _address(element: ElementTree.Element) -> str:
    words = [element.get(key, "0") for key in ("domain", "bus", "slot", "function")]
    if not all(map(_NUMBER.fullmatch, words)):
        raise LibvirtError(
            f"libvirt's output has an invalid PCI address: {' '.join(words)[:60]!r}", next_step="virsh version"
        )
    domain, bus, slot, function = (int(word, 16 if word[:2] in ("0x", "0X") else 10) for word in words)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def parse_xml(text: str) -> ElementTree.Element:
    """Return the root of XML from libvirt. Raises LibvirtError if it is not XML."""
    return _parse_xml(text)


class _NoTypes(ElementTree.TreeBuilder):
    """Refuses a document type: libvirt writes none, and its entities can exhaust the memory."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ElementTree.ParseError(f"it has a document type, {name}")


def _parse_xml(text: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(text, ElementTree.XMLParser(target=_NoTypes()))
    except (ElementTree.ParseError, UnicodeError) as error:
        raise LibvirtError(f"libvirt's output is not valid XML: {error}", next_step="virsh version") from error


def _flag(word: str | None) -> bool | None:
    return {"on": True, "off": False}.get(word or "")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _on(value: bool) -> str:
    return "on" if value else "off"
