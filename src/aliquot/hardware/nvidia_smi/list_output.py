"""Parsers for the lists of ``nvidia-smi -L`` and ``nvidia-smi mig``: rows between bars, whose widths differ between
versions.
"""

from __future__ import annotations

import re

import msgspec

from aliquot.core.model.placement import Placement
from aliquot.hardware.nvml.profiles import GpuProfileRow

_GPU = re.compile(r"^GPU +(\d+): (.*) \(UUID: (\S+)\)$")
_MIG = re.compile(r"^ +MIG (\S*?[a-z]) *Device +(\d+): \(UUID: (\S+)\)$")
_NAME = r"MIG (\S*[a-z]) *"
"""A name ends with a letter, and a long one may touch the number beside it."""
_INSTANCE = re.compile(rf"^\| +(\d+) +{_NAME}(\d+) +(\d+) +(\d+):(\d+) +\|$")
_COMPUTE = re.compile(rf"^\| +(\d+) +(\d+) +{_NAME}(\d+)\*? +(\d+) +(\d+):(\d+) +\|$")
_PROFILE = re.compile(
    rf"^\| +(\d+) +{_NAME}(\d+) +(\d+)/(\d+) +([\d.]+) +(\S+) +(\d+) +(\d+) +(\d+) +\|$"
)  # GPU, name, id, free, total, GiB, P2P, SM, DEC, ENC
_ENGINES = re.compile(r"^\| +(\d+) +(\d+) +(\d+) +\|$")  # CE, JPEG, OFA
_PLACES = re.compile(r"^GPU +(\d+) Profile ID +(\d+) Placements? ?: \{([\d,]+)\}:(\d+)$")
_SLICES = re.compile(r"^(\d+)g\.")
_MADE = re.compile(r"^Successfully created (?:GPU|compute) instance ID +(\d+) ", re.MULTILINE)

_ODD = {
    "+me": {1: 7, 2: 8},
    "+gfx": {1: 10, 2: 11, 4: 12, 3: 17},
    "-me": {1: 13, 2: 14},
    "+me.all": {1: 15, 2: 16},
}
_PLAIN = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}
_DOUBLE = 9
"""NVML's profile indexes (nvml.h), by the name's suffix and the slices; 1g with double memory has its own."""
_UNKNOWN_INDEX = 1000


class ListedGpu(msgspec.Struct, frozen=True):
    """A GPU of ``-L``: its index, its UUID, and the numbers and UUIDs of its MIG devices in order."""

    index: int
    uuid: str
    mig_devices: tuple[tuple[int, str], ...] = ()


class ListedInstance(msgspec.Struct, frozen=True):
    """A row of ``-lgi`` (``compute`` is None) or ``-lci``: the GPU's index, the ids, the profile's name and id, and the
    placement.
    """

    gpu: int
    instance: int
    compute: int | None
    name: str
    profile: int
    place: Placement


def parse_gpus(text: str) -> tuple[ListedGpu, ...]:
    """Parse the output of ``-L``."""
    found: list[ListedGpu] = []
    for line in text.splitlines():
        if match := _GPU.match(line):
            found.append(ListedGpu(int(match[1]), match[3]))
        elif (match := _MIG.match(line)) and found:
            last = found[-1]
            found[-1] = msgspec.structs.replace(last, mig_devices=(*last.mig_devices, (int(match[2]), match[3])))
    return tuple(found)


def parse_instances(text: str) -> tuple[ListedInstance, ...]:
    """Parse the output of ``mig -lgi``."""
    matches = filter(None, map(_INSTANCE.match, text.splitlines()))
    return tuple(
        ListedInstance(int(m[1]), int(m[4]), None, m[2], int(m[3]), Placement(int(m[5]), int(m[6]))) for m in matches
    )


def parse_compute_instances(text: str) -> tuple[ListedInstance, ...]:
    """Parse the output of ``mig -lci``."""
    matches = filter(None, map(_COMPUTE.match, text.splitlines()))
    return tuple(
        ListedInstance(int(m[1]), int(m[2]), int(m[5]), m[3], int(m[4]), Placement(int(m[6]), int(m[7])))
        for m in matches
    )


def parse_placements(text: str) -> dict[int, tuple[Placement, ...]]:
    """Parse the output of ``mig -lgipp`` for one GPU. Returns placements by profile id."""
    matches = filter(None, map(_PLACES.match, (line.rstrip() for line in text.splitlines())))
    return {int(m[2]): tuple(Placement(int(s), int(m[4])) for s in m[3].split(",")) for m in matches}


def parse_profiles(text: str, placements: dict[int, tuple[Placement, ...]]) -> tuple[GpuProfileRow, ...]:
    """Parse the output of ``mig -lgip`` for one GPU, in the order of NVML's indexes. A row has two lines; the second
    contains the other engines.
    """
    found: list[GpuProfileRow] = []
    for line in text.splitlines():
        if match := _PROFILE.match(line):
            found.append(_row(match, placements, len(found)))
        elif (match := _ENGINES.match(line)) and found:
            engines = dict(zip(("ce", "jpeg", "ofa"), map(int, match.groups()), strict=True))
            found[-1] = msgspec.structs.replace(found[-1], engines={**found[-1].engines, **engines})
    return tuple(sorted(_with_double_memory(found), key=lambda row: row.index))


def _row(match: re.Match[str], placements: dict[int, tuple[Placement, ...]], position: int) -> GpuProfileRow:
    name, number = match[2], int(match[3])
    slices = int(found[1]) if (found := _SLICES.match(name)) else 0
    return GpuProfileRow(
        index=_index(name, slices, position),
        id=number,
        name=name,
        slices=slices,
        count=int(match[5]),
        sm=int(match[8]),
        engines={"ce": 0, "dec": int(match[9]), "enc": int(match[10]), "jpeg": 0, "ofa": 0},
        memory_mib=round(float(match[6]) * 1024),
        gfx="+gfx" in name,
        p2p=match[7] == "Yes",
        placements=placements.get(number),
    )


def _index(name: str, slices: int, position: int) -> int:
    for end, indexes in _ODD.items():
        if name.endswith(end):
            return indexes.get(slices, _UNKNOWN_INDEX + position)
    return _PLAIN.get(slices, _UNKNOWN_INDEX + position)


def _with_double_memory(rows: list[GpuProfileRow]) -> list[GpuProfileRow]:
    """Return the rows with the index of double memory on the larger of two plain profiles with one slice."""
    plain = [r for r in rows if r.index == 0]
    if len(plain) < 2:
        return rows
    small = min(plain, key=lambda r: r.memory_mib)
    return [msgspec.structs.replace(r, index=_DOUBLE) if r in plain and r is not small else r for r in rows]


def parse_created_id(text: str) -> int | None:
    """Return the id of the instance that a create command reports, or None."""
    match = _MADE.search(text)
    return int(match[1]) if match else None
