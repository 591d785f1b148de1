"""What the controller must remember over a restart: when it cut what for whom, and what did not help.

Everything else is read from Slurm and from the nodes. A file that is lost costs a pause, nothing more.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

import msgspec

from aliquot.errors import AliquotError
from aliquot.foundation import state_store
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.state_store import StateFile

HOUR_S = 3600.0
RETRY = Backoff(first=30.0, longest=1800.0)
"""The pause after a change that failed."""


class StartedChange(msgspec.Struct, frozen=True):
    """A change that was begun, for which jobs, and whose first it was. ``when`` in seconds of the epoch."""

    when: float
    node_name: str = msgspec.field(name="record")
    jobs: tuple[int, ...] = ()
    user: str = ""


class ChangeFailure(msgspec.Struct, frozen=True):
    """A change that failed, how often in a row, and why."""

    when: float
    times: int
    why: str

    @property
    def retry_at(self) -> float:
        return self.when + RETRY.pause(self.times)


class SlurmHistory(msgspec.Struct, frozen=True):
    """``idle``: since when a record has been seen without jobs. ``promised``: since when free slices have suited a job.
    ``stuck``: jobs that did not start although slices suited them, and when that was found. ``swaps``: which CLOUD
    record of a host is to be open.
    """

    changes: tuple[StartedChange, ...] = msgspec.field(default=(), name="cuts")
    failures: dict[str, ChangeFailure] = {}
    idle: dict[str, float] = {}
    promised: dict[int, float] = {}
    stuck: dict[int, float] = {}
    swaps: dict[str, str] = {}

    def recent(self, now: float, node_name: str = "") -> int:
        """Changes of the last hour, of one record or of all."""
        return sum(now - c.when < HOUR_S and node_name in ("", c.node_name) for c in self.changes)

    def causes(self, now: float) -> tuple[tuple[str, str], ...]:
        """The record and the user of each change of the last hour."""
        return tuple((c.node_name, c.user) for c in self.changes if now - c.when < HOUR_S)

    def last_change_time(self, node_name: str) -> float:
        """When a record was cut last; 0 if never."""
        change = self.last_change(node_name)
        return change.when if change else 0.0

    def last_change(self, node_name: str) -> StartedChange | None:
        """The change of a record that was begun last."""
        return max((c for c in self.changes if c.node_name == node_name), key=lambda c: c.when, default=None)

    def with_observation(self, now: float, idle: Iterable[str], pending: Collection[int]) -> SlurmHistory:
        """After a look: which records have no jobs, which jobs still pend. What is old goes, and what lies ahead: a
        clock that was wrong for a moment must not stop us until then.
        """
        changes = (msgspec.structs.replace(c, when=min(c.when, now)) for c in self.changes)
        failures = {n: msgspec.structs.replace(f, when=min(f.when, now)) for n, f in self.failures.items()}
        return msgspec.structs.replace(
            self,
            changes=tuple(c for c in changes if now - c.when < 2 * HOUR_S),
            failures=failures,
            idle={name: min(self.idle.get(name, now), now) for name in idle},
            promised={job: min(t, now) for job, t in self.promised.items() if job in pending},
            stuck={job: min(t, now) for job, t in self.stuck.items() if job in pending},
        )

    def with_decision(self, now: float, covered: Collection[int], promise_s: float) -> SlurmHistory:
        """After a decision: jobs that free slices suit, and those that have had them for too long."""
        promised = {job: self.promised.get(job, now) for job in covered}
        late = {
            # One that had another chance since, and did not start, is stuck anew.
            job: max(self.stuck.get(job, now), since)
            for job, since in promised.items()
            if now - since > promise_s
        }
        return msgspec.structs.replace(self, promised=promised, stuck={**self.stuck, **late})

    def with_change(self, now: float, node_name: str, jobs: tuple[int, ...], user: str = "") -> SlurmHistory:
        """A change is begun. Its record has to be idle anew afterwards."""
        idle = {name: since for name, since in self.idle.items() if name != node_name}
        return msgspec.structs.replace(
            self, changes=(*self.changes, StartedChange(now, node_name, jobs, user)), idle=idle
        )

    def with_swap(self, now: float, host: str, node_name: str, jobs: tuple[int, ...], user: str = "") -> SlurmHistory:
        """Another CLOUD record of a host is to be open from now on."""
        made = self.with_change(now, host, jobs, user)
        return msgspec.structs.replace(made, swaps={**self.swaps, host: node_name})

    def with_success(self, node_name: str) -> SlurmHistory:
        return msgspec.structs.replace(self, failures={k: v for k, v in self.failures.items() if k != node_name})

    def with_failure(self, now: float, node_name: str, why: str) -> SlurmHistory:
        times = self.failures[node_name].times + 1 if node_name in self.failures else 1
        return msgspec.structs.replace(self, failures={**self.failures, node_name: ChangeFailure(now, times, why)})


def read(path: str) -> tuple[SlurmHistory, str]:
    """The history that belongs to ``path``, and a sentence if it cannot be read: the one before counts then, or
    limits are counted from now on.
    """
    file = _file(path)
    try:
        found = file.load()
    except AliquotError as error:
        return SlurmHistory(), f"{error.brief}: limits are counted from now on"
    why = state_store.unreadable.get(file.path)
    if why is None:
        return found, ""
    start = "now on" if found == SlurmHistory() else "the history before it"
    return found, f"{why.path} cannot be understood ({why.why}): limits are counted from {start}"


def write(path: str, history: SlurmHistory) -> None:
    """Whole and on disk when this returns. Raises StorageError."""
    _file(path).save(history)


def _file(path: str) -> StateFile[SlurmHistory]:
    """``path`` is the file in releases before the state store; its lock is the same for all."""
    stem, extension = os.path.splitext(path)
    return StateFile(
        f"{stem}-state{extension}", "slurm-controller", SlurmHistory, SlurmHistory(), legacy_name=os.path.basename(path)
    )
