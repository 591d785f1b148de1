"""Settings of the Slurm controller: the managed nodes, the commands that reach them, and limits."""

from __future__ import annotations

import msgspec

from aliquot.slurm.gpus.gres_types import TypeStyle

VERSION = "aliquot-slurm/v1"
WHOLE = "whole"
"""Replaces a profile name for the whole GPU as one device, with MIG off."""
EVERY = "*"
"""Stands for every partition without rules of its own."""


class Limits(msgspec.Struct, frozen=True):
    """Limits of the changes of a node."""

    idle_s: float = 10.0
    """Seconds that a node must have had no jobs before it is repartitioned."""
    between_s: float = 60.0
    """Minimum seconds between two changes."""
    per_hour: int = 12
    """Changes per hour; the jobs of one user may cause three quarters of them."""
    patience_s: float | None = None
    """A job that waits longer has a busy node drained for it, or GPUs of a slot board kept. None means never."""


BOARD_LIMITS = Limits(idle_s=0.0, between_s=10.0, per_hour=120)
"""Limits of a slot board, whose changes take no job's node out of service."""


class Rules(msgspec.Struct, frozen=True):
    """The layouts that a node may get."""

    profiles: tuple[str, ...] | None = None
    """The profiles that may be created; None means every plain one."""
    keep: dict[str, int] = {}
    """The minimum number of devices of a profile, including those in use."""
    most: dict[str, int] = {}
    """The maximum number of devices of a profile, including those in use."""
    fill: tuple[str, ...] = ()
    """Profiles for the remaining slices, after more of the requested ones."""
    modes: bool = False
    """Whether MIG mode may be turned on and off."""
    untouched: bool = False
    """Whether the node is never changed."""


class ManagedNode(msgspec.Struct, frozen=True):
    """A node name in Slurm, and the way to reach its host."""

    name: str
    reach: tuple[str, ...] = ()
    """The words before ``aliquot`` in the command line; empty for this host."""
    options: tuple[str, ...] = ()
    """Options that are added to every ``aliquot slurm apply`` and ``aliquot slurm node`` there."""
    rules: Rules = Rules()
    limits: Limits = Limits()
    slots: bool = False
    """Whether the node becomes a slot board with its next change. A node that is one stays one in any case."""


class PartitionRules(msgspec.Struct, frozen=True):
    """The changes that jobs of a partition may cause."""

    demands: bool = True
    """Whether nodes are repartitioned for its jobs."""
    profiles: tuple[str, ...] | None = None
    """The only profiles that may be created for its jobs; None means all."""
    keep: dict[str, int] = {}
    """The minimum number of devices of a profile in the whole partition."""
    most: dict[str, int] = {}
    """The maximum number of devices of a profile in the whole partition."""


class SlurmControllerSettings(msgspec.Struct, frozen=True):
    """The settings of the controller."""

    hosts: tuple[ManagedNode, ...]
    partitions: dict[str, PartitionRules] = {}
    layouts: dict[str, dict[str, int]] = {}
    """Node features that jobs may request: by name, the number of instances of each profile on every GPU."""
    style: TypeStyle = "short"
    placeholders: bool = True
    interval_s: float = 5.0
    """Seconds between two observations."""
    per_hour: int = 60
    """Changes per hour in the whole cluster; the jobs of one user may cause three quarters of them."""
    at_once: int = 4
    """Changes in parallel; also the limit of busy nodes that are drained for jobs at a time."""
    promise_s: float = 120.0
    """Seconds that free devices are reserved for a job that they suit, before others may have them repartitioned."""
    apply_s: float = 900.0
    """Time limit of a change in seconds."""
    history: str = "/var/lib/aliquot/slurm-controller.json"
    """The controller's own file; its lock is next to it."""
    listen: str = ""
    """The address for Prometheus, such as ``127.0.0.1:9838``; "" turns it off."""

    def host(self, name: str) -> ManagedNode | None:
        return next((h for h in self.hosts if h.name == name), None)

    def partition(self, name: str) -> PartitionRules:
        """Return the rules of a partition: its own, else those of ``*``, else rules that allow everything."""
        return self.partitions.get(name) or self.partitions.get(EVERY) or PartitionRules()


def default_settings(hosts: tuple[ManagedNode, ...]) -> SlurmControllerSettings:
    """Return the settings that only name the nodes. The limits of the cluster grow with their number."""
    usual = SlurmControllerSettings(hosts)
    return msgspec.structs.replace(
        usual,
        per_hour=max(usual.per_hour, sum(host.limits.per_hour for host in hosts)),
        at_once=max(usual.at_once, len(hosts) // 4),
    )
