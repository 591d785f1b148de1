"""The controller as a program: only one runs at a time, round after round, until a signal stops it."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from aliquot.errors import ConfigError, LockedError, PermissionDeniedError, StorageError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.callbacks import Report
from aliquot.foundation.lock import FileLock
from aliquot.foundation.signals import stop_on_signal
from aliquot.foundation.wake_file import WakeFile
from aliquot.slurm.client.cluster_claim import ClusterClaim, ControllerClaim, NoClaim
from aliquot.slurm.client.errors import SlurmError, SlurmUnavailableError
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller import history as histories
from aliquot.slurm.controller.history import SlurmHistory
from aliquot.slurm.controller.log_once import LogOnce, in_a_line
from aliquot.slurm.controller.loop import SlurmController
from aliquot.slurm.controller.observer import NullSlurmObserver, SlurmObserver
from aliquot.slurm.controller.poll_hint import NoWake, Wake
from aliquot.slurm.controller.ports import ControllerPorts
from aliquot.slurm.controller.remote_nodes import CommandRemoteNodes
from aliquot.slurm.controller.settings import SlurmControllerSettings

if TYPE_CHECKING:
    from aliquot.slurm.controller.metrics import SlurmMetrics

UNAVAILABLE_S = 60.0
"""The longest pause in seconds while Slurm does not answer."""


CLAIM_S = 120.0
"""The least lifetime of the claim on the cluster. It is renewed every 40 s."""
STANDBY_S = 15.0
"""Seconds after which a controller looks again whether the one on another host has ended."""
_WAITS = ": this controller waits until that one ends"
_USER_ID = re.compile(r"\((\d+)\)$")
POLL_S = 1.0
"""Interval in seconds at which a waiting controller tries to take over."""


class RealClock:
    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def hold_lock(path: str) -> AbstractContextManager[None]:
    """Hold the lock of a history file: only one controller may act.

    Raises LockedError if another one holds it. Raises StorageError, PermissionDeniedError.
    """
    return FileLock(f"{path}.lock", "is the Slurm controller here", next_step="aliquot slurm demand -f FILE").hold()


def history_writer(path: str) -> Callable[[SlurmHistory], None]:
    """Return a function that writes a history if it differs from the last one written."""
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
    wake: Wake | None = None,
    claim: ControllerClaim | None = None,
) -> Iterator[SlurmController]:
    """Open a controller with its history. Without ``persist`` it writes nothing. ``observer`` collects metrics."""
    history, warning = histories.read(settings.history)
    if warning:
        log(warning)
    keep = history_writer(settings.history) if persist else _forget
    with ThreadPoolExecutor(max_workers=16, thread_name_prefix="node") as threads:
        ports = ControllerPorts(
            slurm,
            CommandRemoteNodes(),
            RealClock(),
            threads,
            log,
            observer or NullSlurmObserver(),
            wake or NoWake(),
            claim or NoClaim(),
        )
        yield SlurmController(settings, ports, history, keep)


def _forget(history: SlurmHistory) -> None:
    """Write nothing, because a dry run keeps no history."""


def run(
    settings: SlurmControllerSettings,
    slurm: Slurm,
    log: Report,
    *,
    once: bool = False,
    metrics: SlurmMetrics | None = None,
) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP, or with ``once`` for one round. Finishes the changes in progress.

    The caller serves ``metrics``. Waits while another controller runs, and retries if Slurm fails; with ``once`` raises
    LockedError and SlurmError instead. Raises StorageError.
    """
    claim = ClusterClaim(slurm, f"{os.uname().nodename}:{settings.history}", max(CLAIM_S, 3 * settings.interval_s))
    if once:
        with (
            hold_lock(settings.history),
            _released(claim),
            controller(settings, slurm, log, observer=metrics, claim=claim) as running,
        ):
            running.round()
            _end(running)
        return 0
    stop = threading.Event()
    with contextlib.ExitStack() as held:
        held.enter_context(stop_on_signal(stop.set))
        if not _acquire_lock(held, settings.history, log, stop):
            return 0
        wake = WakeFile(f"{settings.history}.wake")
        held.enter_context(_released(claim))
        running = held.enter_context(controller(settings, slurm, log, observer=metrics, wake=wake, claim=claim))
        _rounds(running, settings, log, stop, metrics, lambda: _create_wake_file(wake, slurm, log))
        if running.working:
            log("waiting for the changes in progress to end")
        _end(running)
    return 0


def _acquire_lock(held: contextlib.ExitStack, path: str, log: Report, stop: threading.Event) -> bool:
    """Wait until this controller is the only one. Returns False if it is stopped before."""
    log_once = LogOnce(log)
    while not stop.is_set():
        try:
            held.enter_context(hold_lock(path))
            return True
        except LockedError as error:
            log_once.report("lock", f"{error.brief}{_WAITS}")
        stop.wait(POLL_S)
    return False


def _rounds(
    running: SlurmController,
    settings: SlurmControllerSettings,
    log: Report,
    stop: threading.Event,
    metrics: SlurmMetrics | None,
    began: Callable[[], None],
) -> None:
    """Run rounds until ``stop`` is set. Calls ``began`` after the first one that succeeds."""
    log_once = LogOnce(log)
    backoff, failures, started = Backoff(max(1.0, 2 * settings.interval_s), UNAVAILABLE_S), 0, False
    while not stop.is_set():
        succeeded, pause = False, settings.interval_s
        try:
            running.round()
            if not started:
                began()
            succeeded, started, failures = True, True, 0
            log_once.report("Slurm", "")
            log_once.report("lock", "")
        except LockedError as error:
            log_once.report("lock", f"{error.brief}{_WAITS}")
            pause = max(STANDBY_S, settings.interval_s)
        except (SlurmError, ConfigError) as error:  # a host list that cannot be read is a ConfigError
            log_once.report("Slurm", in_a_line(error))
            if metrics is not None:
                metrics.unavailable()
            failures += 1
            unavailable = isinstance(error, SlurmUnavailableError)
            pause = backoff.pause(failures) if unavailable else max(5.0, settings.interval_s)
        with contextlib.suppress(SlurmError, ConfigError):  # the next round reports it
            running.wait(stop, pause, poll_hints=succeeded)


def _create_wake_file(wake: WakeFile, slurm: Slurm, log: Report) -> None:
    """Create the file that Slurm's hooks touch, for the user that they run as. Without it the controller polls."""
    try:
        user = _USER_ID.search(slurm.settings().get("SlurmUser", ""))
        wake.create(int(user[1]) if user else 0)
    except (SlurmError, StorageError, PermissionDeniedError) as error:
        log(f"Slurm's hooks cannot wake this controller: {error.brief}")


@contextlib.contextmanager
def _released(claim: ClusterClaim) -> Iterator[None]:
    """Give the claim up at the end. If Slurm does not answer then, it expires."""
    try:
        yield
    finally:
        with contextlib.suppress(SlurmError):
            claim.release()


def _end(running: SlurmController) -> None:
    """Wait for the changes in progress, and record their outcomes."""
    while running.working:
        time.sleep(0.1)
        running.collect()
