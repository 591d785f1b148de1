"""The controller as a program: exactly one, round after round, until it is told to stop."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from aliquot.errors import ConfigError, LockedError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.lock import FileLock
from aliquot.foundation.signals import asked_to_end
from aliquot.slurm.client.errors import AwayError, SlurmError
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller import history as histories
from aliquot.slurm.controller.history import History
from aliquot.slurm.controller.log_once import Telling, in_a_line
from aliquot.slurm.controller.loop import Controller, Ports
from aliquot.slurm.controller.observer import Told, Untold
from aliquot.slurm.controller.remote_nodes import Programs
from aliquot.slurm.controller.settings import Settings

if TYPE_CHECKING:
    from aliquot.slurm.controller.metrics import Tally

AWAY_S = 60.0
"""The longest pause while Slurm does not answer."""


POLL_S = 1.0
"""How soon after the end of another controller this one takes over."""


class RealClock:
    def now(self) -> float:
        return time.time()


def alone(path: str) -> AbstractContextManager[None]:
    """The right to act: one controller per history file. Raises LockedError where another has it, StorageError,
    PermissionDeniedError.
    """
    return FileLock(f"{path}.lock", "is the Slurm controller here", next_step="aliquot slurm demand -f FILE").hold()


def keeper(path: str) -> Callable[[History], None]:
    """Writes the history where it differs from what was written last."""
    written: list[History] = []

    def keep(history: History) -> None:
        if written != [history]:
            histories.write(path, history)
            written[:] = [history]

    return keep


@contextlib.contextmanager
def controller(
    settings: Settings, slurm: Slurm, say: Callable[[str], None], *, keeps: bool = True, told: Told | None = None
) -> Iterator[Controller]:
    """A controller with its history. ``keeps`` False: it only looks, and writes nothing. ``told`` counts."""
    history, trouble = histories.read(settings.history)
    if trouble:
        say(trouble)
    keep = keeper(settings.history) if keeps else _forget
    with ThreadPoolExecutor(max_workers=16, thread_name_prefix="node") as threads:
        ports = Ports(slurm, Programs(), RealClock(), threads, say, told or Untold())
        yield Controller(settings, ports, history, keep)


def _forget(history: History) -> None:
    """Nothing is kept of a mere look."""


def run(
    settings: Settings, slurm: Slurm, say: Callable[[str], None], *, once: bool = False, tally: Tally | None = None
) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP; with ``once`` one round, and the end of what it began. Changes that are
    under way then are finished. ``tally`` is served by its maker. Another controller is waited for; with ``once`` that
    raises LockedError, and SlurmError is raised. Raises StorageError.
    """
    if once:
        with alone(settings.history), controller(settings, slurm, say, told=tally) as work:
            work.round()
            _end(work)
        return 0
    stop = threading.Event()
    with contextlib.ExitStack() as held:
        held.enter_context(asked_to_end(stop.set))
        if not _take(held, settings.history, say, stop):
            return 0
        work = held.enter_context(controller(settings, slurm, say, told=tally))
        _rounds(work, settings, say, stop, tally)
        if work.working:
            say("changes that are under way are let to their end")
        _end(work)
    return 0


def _take(held: contextlib.ExitStack, path: str, say: Callable[[str], None], stop: threading.Event) -> bool:
    """Wait until this controller is the only one; False where it is stopped before."""
    telling = Telling(say)
    while not stop.is_set():
        try:
            held.enter_context(alone(path))
            return True
        except LockedError as error:
            telling.tell("lock", f"{error.brief}: this one changes nothing until that one ends")
        stop.wait(POLL_S)
    return False


def _rounds(
    work: Controller, settings: Settings, say: Callable[[str], None], stop: threading.Event, tally: Tally | None
) -> None:
    telling = Telling(say)
    backoff, failures = Backoff(max(1.0, 2 * settings.interval_s), AWAY_S), 0
    while not stop.is_set():
        well, pause = False, settings.interval_s
        try:
            work.round()
            well, failures = True, 0
            telling.tell("Slurm", "")
        except (SlurmError, ConfigError) as error:  # a host list that cannot be read is a ConfigError
            telling.tell("Slurm", in_a_line(error))
            if tally is not None:
                tally.away()
            failures += 1
            away = isinstance(error, AwayError)
            pause = backoff.pause(failures) if away else max(5.0, settings.interval_s)
        with contextlib.suppress(SlurmError, ConfigError):  # the look that follows tells it
            work.wait(stop, pause, glances=well)


def _end(work: Controller) -> None:
    """Waits for the changes that are under way, and keeps how they ended."""
    while work.working:
        time.sleep(0.1)
        work.collect()
