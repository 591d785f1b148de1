"""The port to a Slurm cluster. Two adapters implement it: Slurm's own commands, and slurmrestd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from aliquot.slurm.client.models import SlurmJob, SlurmNode, SlurmPartition, SlurmReservation, Version

BOUND_S = 30.0
"""Time limit of a call in seconds. Slurm's own commands wait for minutes if slurmctld is unavailable."""


class Slurm(Protocol):
    """A Slurm cluster.

    Every method returns within ``BOUND_S`` seconds, or raises a ``SlurmError`` of ``errors``: SlurmUnavailableError
    (slurmctld does not answer), DeniedError (not permitted), NoNodeError, BusyError (a job or reservation uses it),
    RefusedError (any other refusal), OldSlurmError (this release does not support it).
    """

    through: str
    """``scontrol`` or ``slurmrestd``, for messages."""

    def version(self) -> Version:
        """Return the controller's version."""
        ...

    def settings(self) -> dict[str, str]:
        """Return ``scontrol show config``, with keys as Slurm spells them (``SlurmdSpoolDir``)."""
        ...

    def nodes(self) -> tuple[SlurmNode, ...]:
        """Return every node record, including hidden and FUTURE ones."""
        ...

    def node(self, name: str) -> SlurmNode:
        """Read one node record. Raises NoNodeError if it does not exist."""
        ...

    def jobs(self, node: str = "", *, holding: bool = False) -> tuple[SlurmJob, ...]:
        """Return every job that is pending or has resources (running, suspended, completing, configuring).

        With ``node``, returns only jobs that have resources on it, and does not read the rest of the queue. With
        ``holding``, returns only jobs that have resources, and reads as little else as the release allows. One job
        stands for all pending jobs of an array. Raises NoNodeError if the node does not exist.
        """
        ...

    def queue(self, *, details: bool = True) -> tuple[SlurmJob, ...]:
        """Return the jobs that have resources, and the pending ones that request GPUs or have a constraint.

        Reads a tenth of what ``jobs`` reads. The pending jobs lack what a scheduler does not need, such as their names.
        Without ``details``, those with resources have only their states and nodes, which is enough to see changes.
        """
        ...

    def partitions(self) -> tuple[SlurmPartition, ...]: ...

    def reservations(self) -> tuple[SlurmReservation, ...]:
        """Return the active reservations and the future ones."""
        ...

    def reserve(self, reservation: str, node: str, minutes: int) -> None:
        """Reserve a node for maintenance (MAINT, IGNORE_JOBS) from now on, for root alone.

        No job starts on it until the reservation ends. Running jobs go on, and so do their steps, other than on a
        drained node. Raises RefusedError if a reservation has that name already.
        """
        ...

    def extend_reservation(self, reservation: str) -> None:
        """Let a reservation last until it is deleted (a year). Raises RefusedError if it does not exist."""
        ...

    def delete_reservation(self, reservation: str) -> None:
        """Delete a reservation; does nothing if it does not exist."""
        ...

    def drain(self, name: str, reason: str) -> None:
        """Stop new jobs on a node; running jobs continue."""
        ...

    def resume(self, name: str) -> None:
        """Let a node take jobs again; does nothing if it does already.

        24.11 keeps the reason of a node that has jobs. Raises RefusedError for a node that Slurm does not resume yet,
        because it is INVALID or has not registered since slurmctld started.
        """
        ...

    def down(self, name: str, reason: str) -> None: ...

    def requeue(self, job: int) -> None:
        """Put a job back into the queue. Raises RefusedError for a job that cannot be requeued."""
        ...

    def note(self, name: str, extra: str) -> None:
        """Set the node's ``Extra`` (``Comment`` in releases without it)."""
        ...

    def describe(self, name: str, words: Mapping[str, str]) -> None:
        """Set ``weight``, ``comment``, ``extra`` or ``reason`` of a node. No release accepts an empty reason."""
        ...

    def join(self, partition: str, name: str) -> None:
        """Add a node to a partition, in slurmctld's memory only. Raises RefusedError."""
        ...

    def features(self, name: str, available: tuple[str, ...]) -> None:
        """Set a node's available features, and the same active ones."""
        ...

    def create(self, line: str) -> None:
        """Create a node record from a line as in slurm.conf: ``NodeName=x State=FUTURE Gres=... Feature=...``.

        The restrictions of ``NodeName=`` on dynamic nodes do not apply. Raises OldSlurmError before 22.05.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a dynamic node's record. Raises BusyError, NoNodeError."""
        ...

    def reconfigure(self) -> None:
        """Let slurmctld, and from 23.11 every daemon, read its files again. Success proves little: check the result."""
        ...
