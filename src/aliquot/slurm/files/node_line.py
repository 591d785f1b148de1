"""slurm.conf: what a node's line says about GPUs, and the keys that GPUs need beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot.slurm.files import fence
from aliquot.slurm.files.job_devices import OfferedDevices

NAME = "gpu"


class NodeHardware(msgspec.Struct, frozen=True):
    """The shape of a machine as slurm.conf says it; keys as ``slurmd -C`` prints them (CPUs, SocketsPerBoard ...)."""

    keys: Mapping[str, str] = {}

    @classmethod
    def parse(cls, text: str) -> NodeHardware:
        """From what ``slurmd -C`` prints; its node name and uptime are left out."""
        words = [w.partition("=") for line in text.splitlines() if line.startswith("NodeName=") for w in line.split()]
        return cls({key: value for key, _, value in words if key != "NodeName" and value})

    def __str__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.keys.items())


class RenderedNodeLine(msgspec.Struct, frozen=True):
    """One node record. ``features`` must hold static ones only where node_features/helpers is in use: changeable ones
    that stand in ``Feature=``, too, make the node INVALID (23.02 and later).
    """

    name: str
    gres: str
    features: tuple[str, ...] = ()
    hardware: NodeHardware = NodeHardware()

    def static(self) -> str:
        """A line of slurm.conf."""
        return f"NodeName={self.name} {self._rest()}".rstrip()

    def dynamic(self) -> str:
        """slurmd's options for a node that registers itself (22.05): ``-Z --conf "..."``."""
        return f'-Z -N {self.name} --conf "{self._rest()}"'

    def _rest(self) -> str:
        shape = str(self.hardware)
        words = [shape, f"Gres={self.gres}" if self.gres else ""]
        words.append(f"Feature={','.join(self.features)}" if self.features else "")
        return " ".join(filter(None, words))


def gres_value(offered: OfferedDevices) -> str:
    """The value of ``Gres=``: ``gpu:a100_3g.20gb:2,gpu:a100:1``, and the node's fence if it has one; "" for a node
    without GPUs to offer.
    """
    words = [f"{NAME}:{kind}:{count}" for kind, count in offered.counts.items()]
    return ",".join([*words, *([fence.VALUE] if offered.fenced else [])])


def tracked(offerings: Iterable[OfferedDevices]) -> str:
    """The value of ``AccountingStorageTRES=``: each type of these nodes once, so that usage is kept by type."""
    kinds = dict.fromkeys(kind for each in offerings for kind in each.counts)
    return ",".join([f"gres/{NAME}", *(f"gres/{NAME}:{kind}" for kind in kinds)])


def keys(offerings: Iterable[OfferedDevices], task_prolog: str = "") -> tuple[str, ...]:
    """What slurm.conf needs once for a cluster with these nodes. Plugins are named as lists: keep what yours have."""
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
