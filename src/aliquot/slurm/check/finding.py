"""Input and findings of a check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Literal

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.slurm.client.models import SlurmNode, Version
from aliquot.slurm.conf.gres import GresLine, detections, gres_lines
from aliquot.slurm.conf.nodes import ConfiguredNodeLine, node_lines
from aliquot.slurm.conf.statements import Conf, ConfLocation, ConfPair, ConfSource
from aliquot.slurm.files import fence

_FenceRule = Literal[
    "ADMIN_CAPABILITY",
    "ADMIN_MODE",
    "ADMIN_NOT_FENCED",
    "FENCE_HANDED_OUT",
    "LONG_DEVICE_LIST",
    "NOT_FENCED",
    "OPEN_DEVICES",
]
_DetectRule = Literal["AUTODETECT_CLOUD", "AUTODETECT_EMPTY", "AUTODETECT_INLINE", "AUTODETECT_NO_MIG"]
_DetectWordRule = Literal["AUTODETECT_OLD", "AUTODETECT_TWICE", "AUTODETECT_TYPE", "AUTODETECT_UNKNOWN", "LINKS_MIG"]
_CountRule = Literal["BAD_CORES", "BAD_COUNT", "COUNTED_TWICE", "COUNT_MISMATCH", "EXTRA_DEVICES", "TOO_MANY"]
_LineRule = Literal["MIXED_FILES", "MIXED_TYPES", "NO_GRES_CONF", "OLD_SLURM", "ONE_FILE", "TWO_FILES", "TYPE_CASE"]
_FlagRule = Literal["FLAGS_DIFFER", "FLAGS_EXCLUDE", "FLAGS_WITHOUT_ENV", "UNKNOWN_FLAG"]
_FileRule = Literal["BLOCK_TWICE", "HAND_EDITED", "NODE_TWICE", "UNKNOWN_NODE", "UNREADABLE"]
_SettingRule = Literal["NO_GPU_NODE", "NO_GPU_SELECTION", "NO_GRES_TYPES", "NO_REASON", "NO_TASK_PROLOG"]
_FeatureRule = Literal[
    "EXEC_TIME", "FAMILY_COUNT", "FEATURE_NAME", "FEATURE_STATIC", "HELPERS_FORM", "NO_HELPERS_PLUGIN"
]
_CloudRule = Literal["CLOUD_NO_FILE"]
_DeviceRule = Literal["FILE_MISSING", "HALF_INSTANCE", "LONE_CAPABILITY", "MIXED_INSTANCES", "SAME_DEVICE"]
_GpuRule = Literal["NOT_OFFERED", "NOT_WHOLE", "NO_SUCH_GPU", "NO_SUCH_INSTANCE", "SHARED_BY_NODES"]
_TypeRule = Literal["SAME_TYPE_ID", "UNKNOWN_TYPE", "WRONG_MINOR", "WRONG_TYPE"]
_SlotRule = Literal["SLOT_ORDER", "SLOT_PADS"]
_LiveRule = Literal["INSTANCE_IN_USE", "NODE_INVALID", "REGISTERED", "SLURMD_ALONE", "STALE_CONTROLLER", "STALE_SLURMD"]
_ConfRule = Literal[_FenceRule, _DetectRule, _DetectWordRule, _CountRule, _LineRule, _FlagRule, _FileRule, _SettingRule]
SlurmRule = Literal[_ConfRule, _FeatureRule, _CloudRule, _DeviceRule, _GpuRule, _TypeRule, _SlotRule, _LiveRule]


class SlurmFinding(msgspec.Struct, frozen=True):
    """A problem in Slurm's files."""

    rule: SlurmRule
    severity: Literal["error", "warning"]
    """``error``: Slurm refuses the file, does something else than intended, or gives a job what it must not have.
    ``warning``: it works, but probably not as intended.
    """
    sentence: str
    location: ConfLocation | None = None
    nodes: tuple[str, ...] = ()
    fix: str = ""
    """What to do, in words."""
    command: str = ""
    """The command that fixes it, if there is one."""


def error(
    rule: SlurmRule, location: ConfLocation | None, sentence: str, fix: str = "", command: str = ""
) -> SlurmFinding:
    """Return a finding of severity ``error``."""
    return SlurmFinding(rule, "error", sentence, location, (), fix, command)


def warning(
    rule: SlurmRule, location: ConfLocation | None, sentence: str, fix: str = "", command: str = ""
) -> SlurmFinding:
    """Return a finding of severity ``warning``."""
    return SlurmFinding(rule, "warning", sentence, location, (), fix, command)


class LiveState(msgspec.Struct, frozen=True):
    """The current state of slurmctld."""

    nodes: tuple[SlurmNode, ...] = ()
    changed: int = 0
    """When the newest of the files was written, in seconds since the epoch."""


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes with the same configuration, checked once."""

    names: tuple[str, ...]
    line: ConfiguredNodeLine | None
    """None if slurm.conf does not name the nodes."""
    gres: tuple[GresLine, ...]


class CheckInput(msgspec.Struct, frozen=True, dict=True):
    """The input of a check. A field that is None or empty is unknown, and rules that need it report nothing."""

    folder: str
    """The directory of the files, whether they exist or not."""
    slurm: Conf | None = None
    gres: Conf | None = None
    cgroup: Conf | None = None
    helpers: Conf | None = None
    version: Version | None = None
    inventories: Mapping[str, Inventory] = {}
    """The inventories of nodes, by node name in Slurm."""
    local_node: str = ""
    """The name of the node that runs this check."""
    absent: frozenset[str] = frozenset()
    """Device files that this host lacks."""
    modes: Mapping[int, int] = {}
    """File modes of the administrators' capabilities on this host, by minor."""
    order_file: str | None = None
    """The content of the file by which slurmd sorts the records of a slot board; None if it does not exist."""
    live: LiveState | None = None
    scripts: tuple[ConfSource, ...] = ()

    def file(self, name: str) -> ConfLocation:
        """Return the location of a whole file, for findings about what is missing from it."""
        return ConfLocation(f"{self.folder}/{name}")

    @cached_property
    def node_lines(self) -> tuple[ConfiguredNodeLine, ...]:
        return node_lines(self.slurm) if self.slurm else ()

    @cached_property
    def gpu_lines(self) -> tuple[GresLine, ...]:
        """The lines of gres.conf for GPUs."""
        return tuple(line for line in gres_lines(self.gres) if line.gpu) if self.gres else ()

    @cached_property
    def fence_lines(self) -> tuple[GresLine, ...]:
        """The lines of gres.conf that deny jobs access to other GPUs."""
        every = gres_lines(self.gres) if self.gres else ()
        return tuple(line for line in every if (line.name, line.type) == (fence.NAME, ""))

    def autodetect(self, node: str) -> ConfPair | None:
        """Return the ``AutoDetect`` in effect for a node: its own, else that of the whole file, else None."""
        return self._detections.get(node) or self._detection

    @cached_property
    def _detections(self) -> dict[str, ConfPair]:
        return detections(self.gres) if self.gres else {}

    @cached_property
    def _detection(self) -> ConfPair | None:
        return self.gres.last("AutoDetect") if self.gres else None

    @cached_property
    def line_of(self) -> dict[str, ConfiguredNodeLine]:
        """The line of each node that slurm.conf names."""
        return {name: line for line in reversed(self.node_lines) for name in line.names}

    @cached_property
    def groups(self) -> tuple[NodeGroup, ...]:
        """All nodes that the files name, grouped by equal configuration. Without any name, one group named ``""``."""
        named = dict.fromkeys(name for line in self.gpu_lines for name in line.nodes or ())
        names = [*self.line_of, *(n for n in named if n not in self.line_of)] or [""]
        own: dict[str, list[int]] = {name: [] for name in names}
        for n, line in enumerate(self.gpu_lines):
            for name in names if line.nodes is None else line.nodes:
                own[name].append(n)
        alike: dict[tuple[int, tuple[int, ...]], list[str]] = {}
        for name in names:
            alike.setdefault((id(self.line_of.get(name)), tuple(own[name])), []).append(name)
        return tuple(
            NodeGroup(tuple(names), self.line_of.get(names[0]), tuple(self.gpu_lines[n] for n in lines))
            for (_, lines), names in alike.items()
        )

    def known_nodes(self) -> Iterator[tuple[str, Inventory, NodeGroup]]:
        """Yield the nodes whose GPUs are known: name, inventory, and group."""
        for group in self.groups:
            for name in group.names:
                if name in self.inventories:
                    yield name, self.inventories[name], group
