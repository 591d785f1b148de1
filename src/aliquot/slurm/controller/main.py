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
from aliquot.foundation.callbacks import Report
from aliquot.foundation.lock import FileLock
from aliquot.foundation.signals import stop_on_signal
from aliquot.slurm.client.errors import SlurmError, SlurmUnavailableError
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller import history as histories
from aliquot.slurm.controller.history import SlurmHistory
from aliquot.slurm.controller.log_once import LogOnce, in_a_line
from aliquot.slurm.controller.loop import ControllerPorts, SlurmController
from aliquot.slurm.controller.observer import NullSlurmObserver, SlurmObserver
from aliquot.slurm.controller.remote_nodes import CommandRemoteNodes
from aliquot.slurm.controller.settings import SlurmControllerSettings

if TYPE_CHECKING:
    from aliquot.slurm.controller.metrics import SlurmMetrics

UNAVAILABLE_S = 60.0
"""The longest pause while Slurm does not answer."""


POLL_S = 1.0
"""How soon after the end of another controller this one takes over."""


class RealClock:
    def now(self) -> float:
        return time.time()


def hold_lock(path: str) -> AbstractContextManager[None]:
    """The right to act: one controller per history file. Raises LockedError where another has it, StorageError,
    PermissionDeniedError.
    """
    return FileLock(f"{path}.lock", "is the Slurm controller here", next_step="aliquot slurm demand -f FILE").hold()


def history_writer(path: str) -> Callable[[SlurmHistory], None]:
    """Writes the history where it differs from what was written last."""
    written: list[SlurmHistory] = []

    def keep(history: SlurmHistory) -> None:
        if written != [history]:
            histories.write(path, history)
            written[:] = [history]

    return keep


@contextlib.contextmanager
def controller(
    settings: SlurmControllerSettings,
    slurm: Slurm,
    log: Report,
    *,
    persist: bool = True,
    observer: SlurmObserver | None = None,
) -> Iterator[SlurmController]:
    """A controller with its history. ``persist`` False: it only looks, and writes nothing. ``observer`` counts."""
    history, warning = histories.read(settings.history)
    if warning:
        log(warning)
    keep = history_writer(settings.history) if persist else _forget
    with ThreadPoolExecutor(max_workers=16, thread_name_prefix="node") as threads:
        ports = ControllerPorts(slurm, CommandRemoteNodes(), RealClock(), threads, log, observer or NullSlurmObserver())
        yield SlurmController(settings, ports, history, keep)


def _forget(history: SlurmHistory) -> None:
    """Nothing is kept of a mere look."""


def run(
    settings: SlurmControllerSettings,
    slurm: Slurm,
    log: Report,
    *,
    once: bool = False,
    metrics: SlurmMetrics | None = None,
) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP; with ``once`` one round, and the end of what it began. Changes that are
    under way then are finished. ``metrics`` is served by its maker. Another controller is waited for; with ``once``
    that raises LockedError, and SlurmError is raised. Raises StorageError.
    """
    if once:
        with hold_lock(settings.history), controller(settings, slurm, log, observer=metrics) as running:
            running.round()
            _end(running)
        return 0
    stop = threading.Event()
    with contextlib.ExitStack() as held:
        held.enter_context(stop_on_signal(stop.set))
        if not _acquire_lock(held, settings.history, log, stop):
            return 0
        running = held.enter_context(controller(settings, slurm, log, observer=metrics))
        _rounds(running, settings, log, stop, metrics)
        if running.working:
            log("changes that are under way are let to their end")
        _end(running)
    return 0


def _acquire_lock(held: contextlib.ExitStack, path: str, log: Report, stop: threading.Event) -> bool:
    """Wait until this controller is the only one; False where it is stopped before."""
    log_once = LogOnce(log)
    while not stop.is_set():
        try:
            held.enter_context(hold_lock(path))
            return True
        except LockedError as error:
            log_once.report("lock", f"{error.brief}: this one changes nothing until that one ends")
        stop.wait(POLL_S)
    return False


def _rounds(
    running: SlurmController,
    settings: SlurmControllerSettings,
    log: Report,
    stop: threading.Event,
    metrics: SlurmMetrics | None,
) -> None:
    log_once = LogOnce(log)
    backoff, failures = Backoff(max(1.0, 2 * settings.interval_s), UNAVAILABLE_S), 0
    while not stop.is_set():
        succeeded, pause = False, settings.interval_s
        try:
            running.round()
            succeeded, failures = True, 0
            log_once.report("Slurm", "")
        except (SlurmError, ConfigError) as error:  # a host list that cannot be read is a ConfigError
            log_once.report("Slurm", in_a_line(error))
            if metrics is not None:
                metrics.unavailable()
            failures += 1
            unavailable = isinstance(error, SlurmUnavailableError)
            pause = backoff.pause(failures) if unavailable else max(5.0, settings.interval_s)
        with contextlib.suppress(SlurmError, ConfigError):  # the look that follows tells it
            running.wait(stop, pause, poll_hints=succeeded)


def _end(running: SlurmController) -> None:
    """Waits for the changes that are under way, and keeps how they ended."""
    while running.working:
        time.sleep(0.1)
        running.collect()
