"""State that the controller keeps across restarts: its changes, their jobs and users, and their failures.

Everything else is read from Slurm and from the nodes. Losing the file only causes a pause.
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
"""The pause after a failed change."""


class StartedChange(msgspec.Struct, frozen=True):
    """A change that was started."""

    when: float
    """Seconds since the epoch."""
    node_name: str = msgspec.field(name="record")
    jobs: tuple[int, ...] = ()
    """The jobs that the change is for."""
    user: str = ""
    """The user of the first job."""


class ChangeFailure(msgspec.Struct, frozen=True):
    """The failed changes of a node."""

    when: float
    """The time of the last failure, in seconds since the epoch."""
    times: int
    """The number of consecutive failures."""
    why: str

    @property
    def retry_at(self) -> float:
        return self.when + RETRY.pause(self.times)


class SlurmHistory(msgspec.Struct, frozen=True):
    """The controller's history. Times are in seconds since the epoch."""

    changes: tuple[StartedChange, ...] = msgspec.field(default=(), name="cuts")
    failures: dict[str, ChangeFailure] = {}
    idle: dict[str, float] = {}
    """Since when a node has had no jobs."""
    promised: dict[int, float] = {}
    """Since when free devices have suited a job."""
    stuck: dict[int, float] = {}
    """When a job was found that did not start although devices suited it."""

    def recent(self, now: float, node_name: str = "") -> int:
        """Return the number of changes in the last hour, of one node or of all."""
        return sum(now - c.when < HOUR_S and node_name in ("", c.node_name) for c in self.changes)

    def causes(self, now: float) -> tuple[tuple[str, str], ...]:
        """Return the node and the user of each change in the last hour."""
        return tuple((c.node_name, c.user) for c in self.changes if now - c.when < HOUR_S)

    def last_change_time(self, node_name: str) -> float:
        """Return when a node was last changed, or 0 if never."""
        change = self.last_change(node_name)
        return change.when if change else 0.0

    def last_change(self, node_name: str) -> StartedChange | None:
        """Return the last change of a node, or None."""
        return max((c for c in self.changes if c.node_name == node_name), key=lambda c: c.when, default=None)

    def with_observation(self, now: float, idle: Iterable[str], pending: Collection[int]) -> SlurmHistory:
        """Return the history after an observation of idle nodes and pending jobs.

        Old entries are dropped. Times in the future become ``now``, because a clock that was wrong for a moment must
        not block changes until then.
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
        """Return the history after a decision. Jobs that have had suitable free devices for too long become stuck."""
        promised = {job: self.promised.get(job, now) for job in covered}
        late = {
            # A job that had another chance since, and did not start, is stuck again.
            job: max(self.stuck.get(job, now), since)
            for job, since in promised.items()
            if now - since > promise_s
        }
        return msgspec.structs.replace(self, promised=promised, stuck={**self.stuck, **late})

    def with_change(self, now: float, node_name: str, jobs: tuple[int, ...], user: str = "") -> SlurmHistory:
        """Return the history after starting a change. Its node must become idle again before the next one."""
        idle = {name: since for name, since in self.idle.items() if name != node_name}
        return msgspec.structs.replace(
            self, changes=(*self.changes, StartedChange(now, node_name, jobs, user)), idle=idle
        )

    def with_success(self, node_name: str) -> SlurmHistory:
        return msgspec.structs.replace(self, failures={k: v for k, v in self.failures.items() if k != node_name})

    def with_failure(self, now: float, node_name: str, why: str) -> SlurmHistory:
        times = self.failures[node_name].times + 1 if node_name in self.failures else 1
        return msgspec.structs.replace(self, failures={**self.failures, node_name: ChangeFailure(now, times, why)})


def read(path: str) -> tuple[SlurmHistory, str]:
    """Return the history of ``path``, and a warning if it cannot be read.

    Then the previous history is used, or an empty one.
    """
    file = _file(path)
    try:
        found = file.load()
    except AliquotError as error:
        return SlurmHistory(), f"{error.brief}: limits count from now on"
    why = state_store.unreadable.get(file.path)
    if why is None:
        return found, ""
    start = "now on" if found == SlurmHistory() else "the previous history"
    return found, f"{why.path} cannot be understood ({why.why}): limits count from {start}"


def write(path: str, history: SlurmHistory) -> None:
    """Write the history to disk durably and atomically. Raises StorageError."""
    _file(path).save(history)


def _file(path: str) -> StateFile[SlurmHistory]:
    """Return the state file. ``path`` is the file of releases before the state store; all share its lock."""
    stem, extension = os.path.splitext(path)
    return StateFile(
        f"{stem}-state{extension}", "slurm-controller", SlurmHistory, SlurmHistory(), legacy_name=os.path.basename(path)
    )
