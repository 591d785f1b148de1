"""The output of ``aliquot cdi list``: devices by every name, and the CDI files that have them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.cdi import spec_files as write
from aliquot.cdi.names import gpu_names, mig_devices, mig_names
from aliquot.cdi.options import MARKER_VARIABLE
from aliquot.cdi.spec import ALL
from aliquot.core.model.inventory import Inventory

_ALL_NAMES = ("uuid", "index", "type-index", "place")


class CdiDeviceRow(msgspec.Struct, frozen=True):
    """A device that a container can get. ``names`` in the order uuid, index, type-index, place."""

    names: tuple[str, ...]
    files: tuple[str, ...] = ()


class StaleCdiName(msgspec.Struct, frozen=True):
    """A name in a file that no device of the node has."""

    file: str
    name: str


class CdiListing(msgspec.Struct, frozen=True):
    """Devices, and errors in CDI files. ``outdated`` are files of ours that do not match the node's devices."""

    devices: tuple[CdiDeviceRow, ...]
    stale: tuple[StaleCdiName, ...]
    outdated: tuple[str, ...]


def compare(inventory: Inventory, kind: str, directories: Iterable[str]) -> CdiListing:
    """Compare the node's devices with the files of one kind."""
    rows = _rows(inventory)
    whole = [gpu_names(g, _ALL_NAMES) for g in inventory.gpus if g.mig.enabled]
    known = {ALL, *(n for names in (*rows, *whole) for n in names)}
    holding: dict[tuple[str, ...], list[str]] = {names: [] for names in rows}
    stale, outdated = [], []
    for path, found in _documents(directories, kind):
        named = set(write.device_names(found))
        gone = sorted(named - known)
        stale += [StaleCdiName(path, name) for name in gone]
        for names, files in holding.items():
            files += [path] if named & set(names) else []
        absent = [names for names in rows if not named & set(names)]
        if (gone or absent) and _is_ours(found):
            outdated.append(path)
    return CdiListing(tuple(CdiDeviceRow(n, tuple(f)) for n, f in holding.items()), tuple(stale), tuple(outdated))


def _rows(inventory: Inventory) -> list[tuple[str, ...]]:
    rows = []
    for gpu in inventory.gpus:
        if gpu.lost or gpu.passthrough:
            continue
        if not gpu.mig.enabled:
            rows.append(gpu_names(gpu, _ALL_NAMES))
        rows += [mig_names(gpu, n, instance, compute, _ALL_NAMES) for n, instance, compute in mig_devices(gpu)]
    return rows


def _documents(directories: Iterable[str], kind: str) -> Iterable[tuple[str, dict[str, object]]]:
    return [(path, found) for d in directories for path, found in write.read(d) if found["kind"] == kind]


def _is_ours(document: dict[str, object]) -> bool:
    edits = document.get("containerEdits")
    env = edits.get("env", []) if isinstance(edits, dict) else []
    return any(str(variable).startswith(f"{MARKER_VARIABLE}=") for variable in env)


def table(rows: Iterable[CdiDeviceRow]) -> str:
    """Return a line per device: its names without the type-index ones, and the files that have it."""
    lines = [("device", "index", "place", "in")]
    lines += [(r.names[0], r.names[1], r.names[-1], ", ".join(r.files) or "no file") for r in rows]
    if len(lines) == 1:
        return "no device to offer: this node has no GPU, or only GPUs in MIG mode without instances"
    widths = [max(len(line[n]) for line in lines) for n in range(3)]
    return "\n".join("  ".join(f"{c:<{w}}" for c, w in zip(line, [*widths, 0], strict=True)).rstrip() for line in lines)
