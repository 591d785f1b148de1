"""What the Slurm controller may do: which records, how they are reached, and within which limits."""

from __future__ import annotations

import msgspec

from aliquot.slurm.gpus.gres_types import TypeStyle

VERSION = "aliquot-slurm/v1"
WHOLE = "whole"
"""Stands for a profile: the GPU as one device, MIG off."""
EVERY = "*"
"""Stands for every partition that has no rules of its own."""
DYNAMIC, CLOUD = KINDS = ("dynamic", "cloud")
"""A record is cut and registered anew; or a host has a CLOUD record for each layout, of which one is open."""


class Limits(msgspec.Struct, frozen=True):
    """How much may change. ``idle_s``: how long a record must have had no jobs before it is cut anew. ``between_s``: at
    least so long between two changes of one record. ``per_hour``: changes of one record, of which the jobs of one user
    may cause three quarters. ``patience_s``: a job that waits longer has a busy record drained for it (its jobs end by
    themselves); None: never.
    """

    idle_s: float = 10.0
    between_s: float = 60.0
    per_hour: int = 12
    patience_s: float | None = None


class Rules(msgspec.Struct, frozen=True):
    """What a record may become. ``profiles`` may be made, None: every plain one. ``keep`` and ``most`` devices of a
    profile, those in use counted; ``fill``: what room left over becomes, after more of what was asked. ``modes``: MIG
    may be turned on and off. ``untouched``: nothing is ever changed here.
    """

    profiles: tuple[str, ...] | None = None
    keep: dict[str, int] = {}
    most: dict[str, int] = {}
    fill: tuple[str, ...] = ()
    modes: bool = False
    untouched: bool = False


class ManagedNode(msgspec.Struct, frozen=True):
    """A record: a node name in Slurm, and the way to the machine that it stands for. ``reach`` are words before
    ``aliquot``, none for this machine; ``options`` are added to every ``aliquot slurm apply`` and ``node`` there.
    """

    name: str
    reach: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    rules: Rules = Rules()
    limits: Limits = Limits()


class Siblings(msgspec.Struct, frozen=True):
    """The CLOUD records of one host, one per layout (``aliquot slurm siblings`` makes them)."""

    host: str
    nodes: tuple[str, ...]
    limits: Limits = Limits()
    untouched: bool = False


class PartitionRules(msgspec.Struct, frozen=True):
    """What jobs of a partition may bring about. ``demands`` False: nothing is cut for them. ``profiles``: only these
    are made for them. ``keep`` and ``most``: devices over all records of the partition.
    """

    demands: bool = True
    profiles: tuple[str, ...] | None = None
    keep: dict[str, int] = {}
    most: dict[str, int] = {}


class SlurmControllerSettings(msgspec.Struct, frozen=True):
    """``interval_s`` between two looks. ``per_hour`` changes in the whole cluster, three quarters of them for one
    user's jobs at most; ``at_once`` side by side, and no more busy records drained for jobs at a time.
    ``promise_s``: how long free slices are left to the job that they suit, before others may have them cut.
    ``layouts`` are node features that jobs may ask for: name -> the instances of each GPU, profile -> number.
    ``history`` is the controller's own file; its lock lies beside it. ``listen`` is where figures for Prometheus are
    served, ``127.0.0.1:9838``; "": nowhere.
    """

    hosts: tuple[ManagedNode, ...]
    siblings: tuple[Siblings, ...] = ()
    partitions: dict[str, PartitionRules] = {}
    layouts: dict[str, dict[str, int]] = {}
    style: TypeStyle = "short"
    placeholders: bool = True
    interval_s: float = 5.0
    per_hour: int = 60
    at_once: int = 4
    promise_s: float = 120.0
    apply_s: float = 900.0
    history: str = "/var/lib/aliquot/slurm-controller.json"
    listen: str = ""

    def host(self, name: str) -> ManagedNode | None:
        return next((h for h in self.hosts if h.name == name), None)

    def partition(self, name: str) -> PartitionRules:
        """The rules of a partition: its own, else those of ``*``, else that all is allowed."""
        return self.partitions.get(name) or self.partitions.get(EVERY) or PartitionRules()
