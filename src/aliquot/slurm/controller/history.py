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


class Cut(msgspec.Struct, frozen=True):
    """A change that was begun, for which jobs, and whose first it was. ``when`` in seconds of the epoch."""

    when: float
    record: str
    jobs: tuple[int, ...] = ()
    user: str = ""


class Failure(msgspec.Struct, frozen=True):
    """A change that failed, how often in a row, and why."""

    when: float
    times: int
    why: str

    @property
    def retry_at(self) -> float:
        return self.when + RETRY.pause(self.times)


class History(msgspec.Struct, frozen=True):
    """``idle``: since when a record has been seen without jobs. ``promised``: since when free slices have suited a job.
    ``stuck``: jobs that did not start although slices suited them, and when that was found. ``swaps``: which CLOUD
    record of a host is to be open.
    """

    cuts: tuple[Cut, ...] = ()
    failures: dict[str, Failure] = {}
    idle: dict[str, float] = {}
    promised: dict[int, float] = {}
    stuck: dict[int, float] = {}
    swaps: dict[str, str] = {}

    def recent(self, now: float, record: str = "") -> int:
        """Changes of the last hour, of one record or of all."""
        return sum(now - c.when < HOUR_S and record in ("", c.record) for c in self.cuts)

    def causes(self, now: float) -> tuple[tuple[str, str], ...]:
        """The record and the user of each change of the last hour."""
        return tuple((c.record, c.user) for c in self.cuts if now - c.when < HOUR_S)

    def last(self, record: str) -> float:
        """When a record was cut last; 0 if never."""
        cut = self.last_cut(record)
        return cut.when if cut else 0.0

    def last_cut(self, record: str) -> Cut | None:
        """The change of a record that was begun last."""
        return max((c for c in self.cuts if c.record == record), key=lambda c: c.when, default=None)

    def looked(self, now: float, idle: Iterable[str], pending: Collection[int]) -> History:
        """After a look: which records have no jobs, which jobs still pend. What is old goes, and what lies ahead: a
        clock that was wrong for a moment must not stop us until then.
        """
        cuts = (msgspec.structs.replace(c, when=min(c.when, now)) for c in self.cuts)
        failures = {n: msgspec.structs.replace(f, when=min(f.when, now)) for n, f in self.failures.items()}
        return msgspec.structs.replace(
            self,
            cuts=tuple(c for c in cuts if now - c.when < 2 * HOUR_S),
            failures=failures,
            idle={name: min(self.idle.get(name, now), now) for name in idle},
            promised={job: min(t, now) for job, t in self.promised.items() if job in pending},
            stuck={job: min(t, now) for job, t in self.stuck.items() if job in pending},
        )

    def decided(self, now: float, covered: Collection[int], promise_s: float) -> History:
        """After a decision: jobs that free slices suit, and those that have had them for too long."""
        promised = {job: self.promised.get(job, now) for job in covered}
        late = {
            # One that had another chance since, and did not start, is stuck anew.
            job: max(self.stuck.get(job, now), since)
            for job, since in promised.items()
            if now - since > promise_s
        }
        return msgspec.structs.replace(self, promised=promised, stuck={**self.stuck, **late})

    def cut(self, now: float, record: str, jobs: tuple[int, ...], user: str = "") -> History:
        """A change is begun. Its record has to be idle anew afterwards."""
        idle = {name: since for name, since in self.idle.items() if name != record}
        return msgspec.structs.replace(self, cuts=(*self.cuts, Cut(now, record, jobs, user)), idle=idle)

    def swapped(self, now: float, host: str, record: str, jobs: tuple[int, ...], user: str = "") -> History:
        """Another CLOUD record of a host is to be open from now on."""
        made = self.cut(now, host, jobs, user)
        return msgspec.structs.replace(made, swaps={**self.swaps, host: record})

    def done(self, record: str) -> History:
        return msgspec.structs.replace(self, failures={k: v for k, v in self.failures.items() if k != record})

    def failed(self, now: float, record: str, why: str) -> History:
        times = self.failures[record].times + 1 if record in self.failures else 1
        return msgspec.structs.replace(self, failures={**self.failures, record: Failure(now, times, why)})


def read(path: str) -> tuple[History, str]:
    """The history that belongs to ``path``, and a sentence if it cannot be read: the one before counts then, or
    limits are counted from now on.
    """
    file = _file(path)
    try:
        found = file.load()
    except AliquotError as error:
        return History(), f"{error.brief}: limits are counted from now on"
    why = state_store.unreadable.get(file.path)
    if why is None:
        return found, ""
    start = "now on" if found == History() else "the history before it"
    return found, f"{why.path} cannot be understood ({why.why}): limits are counted from {start}"


def write(path: str, history: History) -> None:
    """Whole and on disk when this returns. Raises StorageError."""
    _file(path).save(history)


def _file(path: str) -> StateFile[History]:
    """``path`` is the file in releases before the state store; its lock is the same for all."""
    stem, extension = os.path.splitext(path)
    return StateFile(f"{stem}-state{extension}", "slurm-controller", History, History(), former=os.path.basename(path))
