"""What a check is given, and what it finds."""

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
    "ADMIN_CAPABILITY", "ADMIN_MODE", "ADMIN_NOT_FENCED", "FENCE_HANDED_OUT", "NOT_FENCED", "OPEN_DEVICES"
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
_CloudRule = Literal["CLOUD_NO_FILE", "SIBLINGS_OPEN", "SIBLINGS_PORT"]
_DeviceRule = Literal["FILE_MISSING", "HALF_INSTANCE", "LONE_CAPABILITY", "MIXED_INSTANCES", "SAME_DEVICE"]
_GpuRule = Literal["NOT_OFFERED", "NOT_WHOLE", "NO_SUCH_GPU", "NO_SUCH_INSTANCE", "SHARED_BY_NODES"]
_TypeRule = Literal["UNKNOWN_TYPE", "WRONG_MINOR", "WRONG_TYPE"]
_LiveRule = Literal["INSTANCE_IN_USE", "NODE_INVALID", "REGISTERED", "SLURMD_ALONE", "STALE_CONTROLLER", "STALE_SLURMD"]
_ConfRule = Literal[_FenceRule, _DetectRule, _DetectWordRule, _CountRule, _LineRule, _FlagRule, _FileRule, _SettingRule]
SlurmRule = Literal[_ConfRule, _FeatureRule, _CloudRule, _DeviceRule, _GpuRule, _TypeRule, _LiveRule]


class SlurmFinding(msgspec.Struct, frozen=True):
    """Something wrong. ``error``: Slurm refuses it, or does other than what was meant, or a job gets what it must not.
    ``warning``: it works, and hardly as meant. ``fix`` is what to do, ``command`` what to type where a command does it.
    """

    rule: SlurmRule
    severity: Literal["error", "warning"]
    sentence: str
    location: ConfLocation | None = None
    nodes: tuple[str, ...] = ()
    fix: str = ""
    command: str = ""


def error(
    rule: SlurmRule, location: ConfLocation | None, sentence: str, fix: str = "", command: str = ""
) -> SlurmFinding:
    """A finding of the graver kind."""
    return SlurmFinding(rule, "error", sentence, location, (), fix, command)


def warning(
    rule: SlurmRule, location: ConfLocation | None, sentence: str, fix: str = "", command: str = ""
) -> SlurmFinding:
    """A finding of the lighter kind."""
    return SlurmFinding(rule, "warning", sentence, location, (), fix, command)


class LiveState(msgspec.Struct, frozen=True):
    """What slurmctld says now. ``changed`` is when the newest of the files was written, in seconds of the epoch."""

    nodes: tuple[SlurmNode, ...] = ()
    changed: int = 0


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes that the files say the same about: judged once. ``line`` is None where slurm.conf does not name them."""

    names: tuple[str, ...]
    line: ConfiguredNodeLine | None
    gres: tuple[GresLine, ...]


class CheckInput(msgspec.Struct, frozen=True, dict=True):
    """Everything that a check looks at; what is None or empty is not known, and rules about it say nothing.

    ``folder`` is where the files lie (or should), ``inventories`` the GPUs of nodes by their names in Slurm,
    ``local_node`` the name of the node that runs this check, ``absent`` the device files that this machine lacks,
    ``modes`` the permissions here of the administrators' capabilities, by their minors.
    """

    folder: str
    slurm: Conf | None = None
    gres: Conf | None = None
    cgroup: Conf | None = None
    helpers: Conf | None = None
    version: Version | None = None
    inventories: Mapping[str, Inventory] = {}
    local_node: str = ""
    absent: frozenset[str] = frozenset()
    modes: Mapping[int, int] = {}
    live: LiveState | None = None
    scripts: tuple[ConfSource, ...] = ()

    def file(self, name: str) -> ConfLocation:
        """A whole file, for findings about what is not in it."""
        return ConfLocation(f"{self.folder}/{name}")

    @cached_property
    def node_lines(self) -> tuple[ConfiguredNodeLine, ...]:
        return node_lines(self.slurm) if self.slurm else ()

    @cached_property
    def gpu_lines(self) -> tuple[GresLine, ...]:
        """The lines of gres.conf about GPUs."""
        return tuple(line for line in gres_lines(self.gres) if line.gpu) if self.gres else ()

    @cached_property
    def fence_lines(self) -> tuple[GresLine, ...]:
        """The lines of gres.conf that keep jobs from other GPUs."""
        every = gres_lines(self.gres) if self.gres else ()
        return tuple(line for line in every if (line.name, line.type) == (fence.NAME, ""))

    def autodetect(self, node: str) -> ConfPair | None:
        """The ``AutoDetect`` that holds for a node: its own, else the file's; None where neither is."""
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
        """All nodes that the files name, alike ones together. Without any name, one group of the name ``""``."""
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
        """The nodes whose GPUs are known, each with what the files say about it."""
        for group in self.groups:
            for name in group.names:
                if name in self.inventories:
                    yield name, self.inventories[name], group
