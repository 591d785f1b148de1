"""Node device XML: an mdev as libvirt defines and lists it.

libvirt chooses the name: ``mdev_<uuid with _ for ->_<parent with _>`` since 7.7, without the parent before. A device is
therefore found by the UUID in its XML. Source: libvirt's formatnode page.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from aliquot.libvirt import domain_xml as xml
from aliquot.libvirt.models import NodeDevice

_UUID = re.compile(r"^mdev_([0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12})")
_PARENT = re.compile(r"pci_([0-9a-f]{4,})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])$")


def pci_name(address: str) -> str:
    """Return ``pci_0000_3b_00_4`` for ``0000:3b:00.4``."""
    return "pci_" + re.sub(r"[:.]", "_", address.lower())


def build(parent: str, type_name: str, uuid: str) -> str:
    """Return the XML that defines an mdev of a type (``nvidia-746``) on a PCI function."""
    device = ElementTree.Element("device")
    ElementTree.SubElement(device, "parent").text = pci_name(parent)
    capability = ElementTree.SubElement(device, "capability", {"type": "mdev"})
    ElementTree.SubElement(capability, "type", {"id": type_name})
    ElementTree.SubElement(capability, "uuid").text = uuid
    ElementTree.indent(device)
    return ElementTree.tostring(device, encoding="unicode")


def parse(text: str, *, active: bool = True, persistent: bool = False, autostart: bool = False) -> NodeDevice | None:
    """Return an mdev from its XML; None for a device that is not an mdev."""
    root = xml.parse_xml(text)
    capability = next((c for c in root.findall("capability") if c.get("type") == "mdev"), None)
    if capability is None:
        return None
    name = root.findtext("name", "")
    chosen = capability.find("type")
    named = _UUID.match(name)
    return NodeDevice(
        name=name,
        uuid=(capability.findtext("uuid") or (named[1].replace("_", "-") if named else "")).lower(),
        parent=_parent(root.findtext("parent", "")),
        type=chosen.get("id", "") if chosen is not None else "",
        active=active,
        persistent=persistent,
        autostart=autostart,
    )


def _parent(name: str) -> str:
    found = _PARENT.match(name)
    return f"{found[1]}:{found[2]}:{found[3]}.{found[4]}" if found else name
