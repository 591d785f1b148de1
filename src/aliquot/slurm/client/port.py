"""What we need of a Slurm cluster, as a port. Two things fill it: Slurm's own commands, and slurmrestd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from aliquot.slurm.client.models import SlurmJob, SlurmNode, SlurmPartition, SlurmReservation, Version

BOUND_S = 30.0
"""Slurm's commands wait for minutes where slurmctld is away: no call of ours waits longer than this."""


class Slurm(Protocol):
    """One cluster. Every method comes back within ``BOUND_S`` and raises a ``SlurmError`` of ``errors``: AwayError
    (slurmctld does not answer), DeniedError (we may not), NoNodeError, BusyError (a job or reservation is on it),
    RefusedError (anything else that Slurm said), OldSlurmError (this release cannot do it).
    """

    through: str
    """``scontrol`` or ``slurmrestd``: for sentences."""

    def version(self) -> Version:
        """The controller's version."""
        ...

    def settings(self) -> dict[str, str]:
        """``scontrol show config``: keys as Slurm spells them (``SlurmdSpoolDir``)."""
        ...

    def nodes(self) -> tuple[SlurmNode, ...]:
        """Every node record, hidden ones and FUTURE ones with them."""
        ...

    def node(self, name: str) -> SlurmNode:
        """A fresh look at one. Raises NoNodeError."""
        ...

    def jobs(self, node: str = "") -> tuple[SlurmJob, ...]:
        """Every job that is pending or has resources (running, suspended, completing, configuring); with ``node`` only
        those that have resources there, and the rest of the queue is not read. Of a pending array one job stands for
        all. Raises NoNodeError.
        """
        ...

    def partitions(self) -> tuple[SlurmPartition, ...]: ...

    def reservations(self) -> tuple[SlurmReservation, ...]:
        """Those that have begun, and those to come."""
        ...

    def drain(self, name: str, reason: str) -> None:
        """No new jobs; those that run go on."""
        ...

    def resume(self, name: str) -> None:
        """Takes jobs again; nothing to do for a node that does. 24.11 keeps the reason of a node that has jobs. Raises
        RefusedError for one that Slurm does not resume yet: it has not registered since slurmctld started, or INVALID.
        """
        ...

    def down(self, name: str, reason: str) -> None: ...

    def requeue(self, job: int) -> None:
        """Back into the queue. Raises RefusedError for a job that may not be requeued."""
        ...

    def note(self, name: str, extra: str) -> None:
        """Sets the node's ``Extra`` (``Comment`` where a release has no other)."""
        ...

    def describe(self, name: str, words: Mapping[str, str]) -> None:
        """Sets what a node's record has for people and for the order of nodes: ``weight``, ``comment``, ``extra``,
        ``reason`` (which no release lets us make empty).
        """
        ...

    def join(self, partition: str, name: str) -> None:
        """A node becomes one of a partition's, in slurmctld's memory. Raises RefusedError."""
        ...

    def features(self, name: str, available: tuple[str, ...]) -> None:
        """Sets a node's available features; active ones follow."""
        ...

    def create(self, line: str) -> None:
        """A node record from a line like slurm.conf's, without ``NodeName=``'s restrictions on dynamic ones:
        ``NodeName=x State=FUTURE Gres=... Feature=...``. Raises OldSlurmError before 22.05.
        """
        ...

    def delete(self, name: str) -> None:
        """Forgets a dynamic node's record. Raises BusyError, NoNodeError."""
        ...

    def reconfigure(self) -> None:
        """slurmctld (and from 23.11 on every daemon) reads its files again. Success says little: look."""
        ...

    def power(self, name: str, up: bool) -> None:
        """Starts or stops a CLOUD record by the power saving programs."""
        ...
