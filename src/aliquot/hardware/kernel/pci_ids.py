"""Names of PCI vendors, devices and subclasses, from the host's ``pci.ids`` and the excerpt that Aliquot ships.

Resource names of whole GPUs derive from these names (``nvidia.com/GA107GL_A2__A16``). The excerpt supplies what an
older database on the host lacks, so that a GPU keeps its name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

SYSTEM = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
"""Paths of the database in distributions; the first that exists is used."""
_EXCERPT = os.path.join(os.path.dirname(__file__), "pci.ids")


class PciNames:
    """PCI names from several databases.

    Ids are lowercase hexadecimal digits without ``0x``; a class has four of them (``0302``). Unknown ids have an empty
    name. Only the requested vendors of a database are parsed.
    """

    def __init__(self, databases: Iterable[str]) -> None:
        self._texts = tuple(f"\n{text}" for text in databases)
        self._vendors: dict[str, tuple[str, dict[str, str]]] = {}

    def vendor(self, vendor_id: str) -> str:
        return self._section(vendor_id)[0]

    def product(self, vendor_id: str, device_id: str) -> str:
        return self._section(vendor_id)[1].get(device_id, "")

    def subclass(self, class_id: str) -> str:
        """Return the name of a subclass (``3D controller`` for ``0302``), or of its class if the subclass has none."""
        name, entries = self._section(f"C {class_id[:2]}")
        return entries.get(class_id[2:4], name)

    def _section(self, head: str) -> tuple[str, dict[str, str]]:
        """Return the name of a vendor or class, and the entries below it; earlier databases win."""
        if head not in self._vendors:
            name, entries = "", dict[str, str]()
            for text in reversed(self._texts):
                found_name, listed = _read(text, head)
                name, entries = found_name or name, {**entries, **listed}
            self._vendors[head] = (name, entries)
        return self._vendors[head]


def _read(text: str, head: str) -> tuple[str, dict[str, str]]:
    """Parse one section: it starts at the margin, its entries have one tab, and those of boards two."""
    start = text.find(f"\n{head} ")
    if start < 0:
        return "", {}
    lines = text[start + 1 :].splitlines()
    entries: dict[str, str] = {}
    for line in lines[1:]:
        if line and line[0] not in "\t#":
            break
        if line[:1] == "\t" and line[1:2] != "\t":
            key, _, name = line.strip().partition(" ")
            entries[key.lower()] = name.strip()
    return lines[0][len(head) :].strip(), entries


def system_databases(host_root: str) -> tuple[str, ...]:
    """Return the paths of the host's database, mounted at ``host_root``, then those of this container's."""
    return tuple(dict.fromkeys([*(host_root + path for path in SYSTEM), *SYSTEM]))


@cache
def pci_names(system: tuple[str, ...] = SYSTEM) -> PciNames:
    """Return the names of the host's database, if it has one, and of the excerpt. Read once per process."""
    found = [text for text in map(_text, system) if text][:1]
    return PciNames([*found, _text(_EXCERPT)])


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
