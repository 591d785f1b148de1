"""Full CDI names by which a runtime finds a device, checked against the device nodes behind them. Pure.

A CDI file is a snapshot: after a change of instances, the same name may open another device or none. The device nodes
decide: the GPU's own, and the two capabilities of exactly this MIG device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from aliquot.containers.runtime.models import ContainerDevice

Documents = Sequence[tuple[str, Mapping[str, Any]]]
"""CDI documents with their paths."""

_GPU = re.compile(r"/dev/nvidia(\d+)")
_CAP = re.compile(r"/dev/nvidia-caps/nvidia-cap(\d+)")
_INDEX = re.compile(r"(?:gpu|mig)?\d+(?::\d+)?")
SIMULATED_AT = "/run/aliquot-sim"


class CdiEntry(msgspec.Struct, frozen=True):
    """A device of a CDI file."""

    path: str
    kind: str
    name: str
    gpus: frozenset[int]
    """Minors of its GPU nodes."""
    caps: frozenset[int]
    """Minors of its capability nodes."""
    simulated: str = ""
    """The folder of the simulated node that it belongs to, or "" for this host."""

    @property
    def full(self) -> str:
        return f"{self.kind}={self.name}"

    def opens(self, device: ContainerDevice) -> bool:
        """Report whether it opens only this device."""
        return self.gpus == {device.minors[0]} and self.caps == set(device.minors[1:])


def entries(documents: Documents) -> tuple[CdiEntry, ...]:
    """Return every device of CDI documents from any program."""
    return tuple(entry for path, document in documents for entry in _entries(path, document))


def _entries(path: str, document: Mapping[str, Any]) -> Iterator[CdiEntry]:
    common = document.get("containerEdits")
    simulated = _simulated(common)
    for device in _list(document.get("devices")):
        if not isinstance(device, Mapping) or not isinstance(device.get("name"), str):
            continue
        paths = [*_nodes(common), *_nodes(device.get("containerEdits"))]
        gpus, caps = _minors(paths, _GPU), _minors(paths, _CAP)
        yield CdiEntry(path, str(document.get("kind", "")), device["name"], gpus, caps, simulated)


def _nodes(edits: object) -> list[str]:
    nodes = edits.get("deviceNodes") if isinstance(edits, Mapping) else None
    return [str(each.get("path", "")) for each in _list(nodes) if isinstance(each, Mapping)]


def _simulated(edits: object) -> str:
    mounts = edits.get("mounts") if isinstance(edits, Mapping) else None
    each = (m for m in _list(mounts) if isinstance(m, Mapping) and m.get("containerPath") == SIMULATED_AT)
    return str(next(each, {}).get("hostPath", ""))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _minors(paths: Iterable[str], pattern: re.Pattern[str]) -> frozenset[int]:
    return frozenset(int(m.group(1)) for path in paths if (m := pattern.fullmatch(path)))


def name_of(device: ContainerDevice, known: Iterable[CdiEntry], simulated: str = "") -> str:
    """Return the full CDI name that opens exactly this device, or "". A UUID is preferred, then a stable name, then an
    index.
    """
    mine = [e for e in known if e.simulated == simulated and e.opens(device)]
    ranked = sorted(mine, key=lambda e: (e.name != device.uuid, bool(_INDEX.fullmatch(e.name)), e.full))
    return ranked[0].full if ranked else ""


def by_name(known: Iterable[CdiEntry], devices: Sequence[ContainerDevice], simulated: str = "") -> dict[str, str]:
    """Return the UUIDs of devices by each of their names: the names in CDI files, the index, and the UUID itself."""
    found: dict[str, str] = {}
    for entry in known:
        if entry.simulated == simulated:
            found.update((entry.name, d.uuid) for d in devices if entry.opens(d))
    found.update((name, d.uuid) for d in devices for name in (d.index, d.uuid))
    return found


def stale(known: Iterable[CdiEntry], devices: Sequence[ContainerDevice], simulated: str = "") -> tuple[CdiEntry, ...]:
    """Return the names of single devices that the node no longer has. Whole GPUs in MIG mode and ``all`` are
    omitted.
    """
    caps = {d.minors[1:] for d in devices if d.number >= 0}
    uuids = {d.uuid for d in devices}
    out = []
    for entry in known:
        if entry.simulated != simulated or len(entry.gpus) != 1:
            continue
        gone = len(entry.caps) == 2 and not any(set(pair) == entry.caps for pair in caps)
        other = entry.name.startswith("MIG-") and entry.name not in uuids
        if gone or other:
            out.append(entry)
    return tuple(out)
