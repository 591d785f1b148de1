"""CLOUD records of a host, which power saving starts and stops: one node name for each layout. Pure.

Each record has its own port and the GRES of its layout. slurmd is started as one of them (``slurmd -b -N NAME``).
Releases before 23.11 only show a powered-down record if ``PrivateData`` has ``cloud``. Otherwise users and our
controller could not see that it is drained.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from aliquot.core.model.inventory import Gpu
from aliquot.errors import ConfigError
from aliquot.slurm.client.models import Gres, Version
from aliquot.slurm.gpus.gres_types import TypeStyle, slice_type
from aliquot.slurm.layouts.families import FeatureLayout

SHOWN = Version(23, 11)
"""From this release, all users see powered-down CLOUD nodes."""
ABSENT = "/dev/aliquot-absent"
"""Prefix of placeholder device files in lines of a record whose layout is not applied."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]+")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


class Sibling(msgspec.Struct, frozen=True):
    """A CLOUD record of a host."""

    node_name: str = msgspec.field(name="record")
    host: str
    port: int
    """The port of its slurmd."""
    feature: str
    profiles: tuple[str, ...]
    """The instances of each GPU."""
    gpus: tuple[str, ...]
    """PCI addresses."""
    gres: tuple[Gres, ...]
    address: str = ""


class CloudNodeShape(msgspec.Struct, frozen=True):
    """The common settings of a host's records."""

    keys: str = ""
    """CPUs, memory and other keys of the node line."""
    features: tuple[str, ...] = ("mig",)
    """The static features."""
    address: str = ""
    first_port: int = 6820
    style: TypeStyle = "short"


def siblings(
    host: str, gpus: Sequence[Gpu], layouts: Sequence[FeatureLayout], shape: CloudNodeShape
) -> tuple[Sibling, ...]:
    """Return one record per layout. Raises ConfigError for invalid host names, and for duplicate layouts."""
    if not _HOST.fullmatch(host):
        raise ConfigError(f"invalid host name {host!r}", next_step="aliquot slurm siblings --help")
    twice = [str(each) for each, n in Counter(layouts).items() if n > 1]
    if twice or not layouts:
        message = (
            f"the layout {twice[0]} is given twice"
            if twice
            else "no layout is given: give one --layout for each record"
        )
        raise ConfigError(message, next_step="aliquot slurm families")
    if not 0 < shape.first_port <= 65536 - len(layouts):
        raise ConfigError(f"invalid first port {shape.first_port}: {len(layouts)} records need ports from 1 to 65535")
    return tuple(
        Sibling(
            node_name=sibling_name(host, layout),
            host=host,
            port=shape.first_port + n,
            feature=layout.feature,
            profiles=layout.profiles,
            gpus=tuple(gpu.pci for gpu in gpus),
            gres=gres(gpus, layout, shape.style),
            address=shape.address,
        )
        for n, layout in enumerate(layouts)
    )


def sibling_name(host: str, layout: FeatureLayout) -> str:
    """Return the record's name: ``n1-2x3g-20gb``. It has no dots, because Slurm truncates names at the first one."""
    return f"{host}-{_NOT_IN_NAMES.sub('-', layout.short)}"


def gres(gpus: Sequence[Gpu], layout: FeatureLayout, style: TypeStyle = "short") -> tuple[Gres, ...]:
    """Return the GRES of GPUs that are all in a layout."""
    counts = Counter(slice_type(gpu, profile, style) for gpu in gpus for profile in layout.profiles)
    return tuple(Gres("gpu", kind, count) for kind, count in counts.items())


def node_line(sibling: Sibling, shape: CloudNodeShape) -> str:
    """Return the record's line in slurm.conf."""
    words = [
        f"NodeName={sibling.node_name}",
        f"NodeHostname={sibling.host}",
        f"NodeAddr={sibling.address}" if sibling.address else "",
        f"Port={sibling.port}",
        shape.keys,
        f"Gres={','.join(map(str, sibling.gres))}",
        f"Feature={','.join((*shape.features, sibling.feature))}",
        "State=CLOUD",
    ]
    return " ".join(filter(None, words))


def absent_gres_lines(node_name: str, offered: Sequence[Gres]) -> tuple[str, ...]:
    """Return the record's lines in gres.conf while its layout is not applied.

    They have as many devices of each type as the layout, with placeholder names. slurmctld reads them when it starts,
    without checking the files. Without lines, or with only ``Count=``, slurmctld counts no devices, and sets the record
    INVALID if slurmd registers others while a job waits. A slurmd that reads these lines does not start. Tested on
    22.05 and 24.11 in tests/system/slurm/test_cloud.py.
    """
    lines = []
    first = 0
    for each in offered:
        last = first + each.count - 1
        files = f"{ABSENT}{first}" if first == last else f"{ABSENT}[{first}-{last}]"
        lines.append(f"NodeName={node_name} Name={each.name} Type={each.type} File={files}")
        first = last + 1
    return tuple(lines)


def keys(version: Version, programs: Mapping[str, str], idle_s: int) -> tuple[str, ...]:
    """Return the keys that slurm.conf needs once.

    ``programs`` are the paths of ``resume`` and ``suspend``. A record without jobs for ``idle_s`` seconds is powered
    down.
    """
    found = [
        f"ResumeProgram={programs['resume']}",
        f"SuspendProgram={programs['suspend']}",
        f"SuspendTime={idle_s}",
        "ResumeTimeout=300",
        "SuspendTimeout=60",
        "ResumeRate=0",
        "SuspendRate=0",
        "GresTypes=gpu",
        "SelectType=select/cons_tres",
    ]
    return (*found, "PrivateData=cloud") if version < SHOWN else tuple(found)


__all__ = [
    "ABSENT",
    "SHOWN",
    "CloudNodeShape",
    "Sibling",
    "absent_gres_lines",
    "gres",
    "keys",
    "node_line",
    "sibling_name",
    "siblings",
]
