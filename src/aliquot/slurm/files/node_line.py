"""GPU settings of slurm.conf: a node's line, and the keys that GPUs need in addition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot.slurm.files import fence
from aliquot.slurm.files.job_devices import OfferedDevices

NAME = "gpu"


class NodeHardware(msgspec.Struct, frozen=True):
    """The hardware of a host in slurm.conf, with keys as ``slurmd -C`` prints them (CPUs, SocketsPerBoard ...)."""

    keys: Mapping[str, str] = {}

    @classmethod
    def parse(cls, text: str) -> NodeHardware:
        """Parse the output of ``slurmd -C``, without its node name and uptime."""
        words = [w.partition("=") for line in text.splitlines() if line.startswith("NodeName=") for w in line.split()]
        return cls({key: value for key, _, value in words if key != "NodeName" and value})

    def __str__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.keys.items())


class RenderedNodeLine(msgspec.Struct, frozen=True):
    """A node record."""

    name: str
    gres: str
    features: tuple[str, ...] = ()
    """Only static features if node_features/helpers is in use: changeable ones in ``Feature=`` make the node INVALID
    (23.02 and later).
    """
    hardware: NodeHardware = NodeHardware()

    def static(self) -> str:
        """Return the line for slurm.conf."""
        return f"NodeName={self.name} {self._rest()}".rstrip()

    def dynamic(self) -> str:
        """Return slurmd's options for a node that registers itself (22.05): ``-Z --conf "..."``."""
        return f'-Z -N {self.name} --conf "{self._rest()}"'

    def _rest(self) -> str:
        shape = str(self.hardware)
        words = [shape, f"Gres={self.gres}" if self.gres else ""]
        words.append(f"Feature={','.join(self.features)}" if self.features else "")
        return " ".join(filter(None, words))


def gres_value(offered: OfferedDevices) -> str:
    """Return the value of ``Gres=``, such as ``gpu:a100_3g.20gb:2,gpu:a100:1``, with the node's fence if it has one.

    Returns "" for a node without devices.
    """
    words = [f"{NAME}:{kind}:{count}" for kind, count in offered.counts.items()]
    return ",".join([*words, *([fence.VALUE] if offered.fenced else [])])


def tracked(offerings: Iterable[OfferedDevices]) -> str:
    """Return the value of ``AccountingStorageTRES=``: each type of these nodes once, to account usage by type."""
    kinds = dict.fromkeys(kind for each in offerings for kind in each.counts)
    return ",".join([f"gres/{NAME}", *(f"gres/{NAME}:{kind}" for kind in kinds)])


def keys(offerings: Iterable[OfferedDevices], task_prolog: str = "") -> tuple[str, ...]:
    """Return the keys that slurm.conf needs once for a cluster with these nodes.

    Values that list plugins must be merged with those of the site.
    """
    every = list(offerings)
    kinds = f"{NAME},{fence.NAME}" if any(each.fenced for each in every) else NAME
    found = (
        f"GresTypes={kinds}",
        "SelectType=select/cons_tres",
        "ProctrackType=proctrack/cgroup",
        "TaskPlugin=task/affinity,task/cgroup",
        f"AccountingStorageTRES={tracked(every)}",
    )
    return (*found, f"TaskProlog={task_prolog}") if task_prolog else found
