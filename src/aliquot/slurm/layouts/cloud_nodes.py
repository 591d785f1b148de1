"""The records of a host that power saving starts and stops: one CLOUD node name for each layout. Pure.

Each has its own port and what the GPUs offer in that layout; slurmd is started as one of them (``slurmd -b -N NAME``).
A powered-down record is not shown by releases before 23.11 unless ``PrivateData`` has ``cloud``: then nobody, our own
controller included, could see that it is drained.
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
"""From here on powered-down CLOUD nodes are shown to everybody."""
ABSENT = "/dev/aliquot-absent"
"""How device files are called in lines of a record whose layout is not there."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]+")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


class Sibling(msgspec.Struct, frozen=True):
    """One record. ``profiles`` is what each of the ``gpus`` (PCI addresses) is cut into, ``port`` slurmd's."""

    node_name: str = msgspec.field(name="record")
    host: str
    port: int
    feature: str
    profiles: tuple[str, ...]
    gpus: tuple[str, ...]
    gres: tuple[Gres, ...]
    address: str = ""


class CloudNodeShape(msgspec.Struct, frozen=True):
    """What the records of a host have in common: ``keys`` is the machine's CPUs and memory as slurm.conf says them, and
    whatever else a node line is to say; ``features`` are the static ones.
    """

    keys: str = ""
    features: tuple[str, ...] = ("mig",)
    address: str = ""
    first_port: int = 6820
    style: TypeStyle = "short"


def siblings(
    host: str, gpus: Sequence[Gpu], layouts: Sequence[FeatureLayout], shape: CloudNodeShape
) -> tuple[Sibling, ...]:
    """One record per layout. Raises ConfigError for names that Slurm does not take, and layouts given twice."""
    if not _HOST.fullmatch(host):
        raise ConfigError(f"{host!r} is no name of a host", next_step="aliquot slurm siblings --help")
    twice = [str(each) for each, n in Counter(layouts).items() if n > 1]
    if twice or not layouts:
        message = f"the layout {twice[0]} is given twice" if twice else "no layout is given"
        raise ConfigError(message, next_step="aliquot slurm families")
    if not 0 < shape.first_port <= 65536 - len(layouts):
        raise ConfigError(f"{shape.first_port} is no port that {len(layouts)} records could have their ports from")
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
    """The record's name: ``n1-2x3g-20gb``. Not a dot: Slurm cuts a name at its first."""
    return f"{host}-{_NOT_IN_NAMES.sub('-', layout.short)}"


def gres(gpus: Sequence[Gpu], layout: FeatureLayout, style: TypeStyle = "short") -> tuple[Gres, ...]:
    """What GPUs offer once they are all in a layout."""
    counts = Counter(slice_type(gpu, profile, style) for gpu in gpus for profile in layout.profiles)
    return tuple(Gres("gpu", kind, count) for kind, count in counts.items())


def node_line(sibling: Sibling, shape: CloudNodeShape) -> str:
    """The record's line in slurm.conf."""
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
    """The record's lines in gres.conf while its layout is not there: as many devices of each type as it will have, by
    names that no device has. slurmctld reads them when it starts, and looks at no file; a record without lines, or
    with ``Count=`` alone, has no devices for it, and is set INVALID as soon as slurmd says otherwise and a job waits.
    A slurmd that read them would not start. Tried on 22.05 and 24.11: tests/system/slurm/test_cloud.py.
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
    """What slurm.conf needs once. ``programs`` are the paths of ``resume`` and ``suspend``; a record that had no job
    for ``idle_s`` seconds is powered down.
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
