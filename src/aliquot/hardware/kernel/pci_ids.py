"""Names of PCI vendors, devices and subclasses, from the machine's ``pci.ids`` and the excerpt that comes with us.

Resource names of whole GPUs are made from these names (``nvidia.com/GA107GL_A2__A16``), so an older database on the
machine must not take a GPU its name: what it lacks, the excerpt has.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

SYSTEM = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
"""Where distributions keep the database; the first that is there counts."""
_EXCERPT = os.path.join(os.path.dirname(__file__), "pci.ids")


class PciNames:
    """Ids are hexadecimal digits in lower case without ``0x``; a class has four of them (``0302``). What nobody knows
    has an empty name. Of a database only the vendors that were asked for are read.
    """

    def __init__(self, databases: Iterable[str]) -> None:
        self._texts = tuple(f"\n{text}" for text in databases)
        self._vendors: dict[str, tuple[str, dict[str, str]]] = {}

    def vendor(self, vendor_id: str) -> str:
        return self._section(vendor_id)[0]

    def product(self, vendor_id: str, device_id: str) -> str:
        return self._section(vendor_id)[1].get(device_id, "")

    def subclass(self, class_id: str) -> str:
        """``3D controller`` for ``0302``; the class's name where the subclass has none."""
        name, entries = self._section(f"C {class_id[:2]}")
        return entries.get(class_id[2:4], name)

    def _section(self, head: str) -> tuple[str, dict[str, str]]:
        """A vendor's or class's name and what is listed below it; earlier databases win."""
        if head not in self._vendors:
            name, entries = "", dict[str, str]()
            for text in reversed(self._texts):
                found_name, listed = _read(text, head)
                name, entries = found_name or name, {**entries, **listed}
            self._vendors[head] = (name, entries)
        return self._vendors[head]


def _read(text: str, head: str) -> tuple[str, dict[str, str]]:
    """A section starts at the margin; its entries are one tab in, those of boards two."""
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


@cache
def pci_names(system: tuple[str, ...] = SYSTEM) -> PciNames:
    """The machine's database where it has one, then the excerpt. Read once in a process."""
    found = [text for text in map(_text, system) if text][:1]
    return PciNames([*found, _text(_EXCERPT)])


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
