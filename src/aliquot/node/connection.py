"""An open node: everything that the engine needs to work on it. ``connect`` opens it."""

from __future__ import annotations

import os
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from aliquot.foundation.callbacks import Report

if TYPE_CHECKING:
    from aliquot.core.engine.context import ExecutionContext
    from aliquot.core.engine.ports import Clock, Hooks, HostControl, Journal, Lock, Workers
    from aliquot.core.engine.programs import DriverPrograms
    from aliquot.core.engine.step_timing import StepListener
    from aliquot.core.model.inventory import Inventory
    from aliquot.hardware.kernel_files import KernelFiles
    from aliquot.hardware.node_backend import NodeBackend
    from aliquot.node.driver_unavailable import AvailableDriver, UnavailableDriver
    from aliquot.sim.client import SimClient

    AnyDriver: TypeAlias = AvailableDriver | UnavailableDriver
    AnyBackend: TypeAlias = NodeBackend[AnyDriver]


class Connection:
    """An open node. Parts that only a change needs are created on first use. Leaving the context closes the backend and
    the journal, because long-lived processes open nodes repeatedly. ``run_directory`` holds what a reboot may delete:
    the lock. ``programs`` are the driver's, if its library is not in use.
    ``all_gpus`` is True if reads also list GPUs that are not bound to NVIDIA's driver.
    """

    by = ""
    """The requester, for the journal."""
    command: tuple[str, ...] = ()
    """The command line that was typed, for the journal."""

    def __init__(
        self,
        name: str,
        backend: AnyBackend,
        directories: tuple[str, str],
        sim: SimClient | None = None,
        programs: DriverPrograms | None = None,
        *,
        all_gpus: bool = False,
    ) -> None:
        self.node = name
        self.backend = backend
        self.simulated = sim is not None
        self.run_directory, self._state_directory = directories
        self._sim = sim
        self._programs = programs
        self._all_gpus = all_gpus

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if (journal := self.__dict__.get("journal")) is not None:
            journal.close()
        self.backend.close()
        if self._sim is not None:
            self._sim.close()

    def show_all_gpus(self, on: bool) -> None:
        """Choose whether reads list the GPUs that are not bound to NVIDIA's driver, if the node was opened with them.

        Raises the errors of opening the driver if it is off and no driver answers.
        """
        if not self._all_gpus:
            return
        from aliquot.node.driver_unavailable import UnavailableDriver

        self.backend.kernel.all_drivers = on
        if not on and isinstance(self.nvml, UnavailableDriver):
            self.nvml.require()

    @property
    def nvml(self) -> AnyDriver:
        """The backend of the GPU driver, with what only it offers: facts, health."""
        return self.backend.nvml

    @property
    def files(self) -> KernelFiles:
        """The kernel's files of the node."""
        return self.backend.kernel.files

    @property
    def sim(self) -> SimClient | None:
        """The simulated node seen from outside its driver; None for a real host."""
        return self._sim

    @property
    def directory(self) -> str:
        """The directory of files that outlive a process: the journal, and records of other programs."""
        return self._state_directory

    @cached_property
    def host(self) -> HostControl:
        """Resets GPUs and ends processes, on the real or the simulated host."""
        if self._sim is not None:
            from aliquot.sim.host import SimHost

            return SimHost(self._sim)
        if self._programs is not None:
            from aliquot.hardware.nvidia_smi.host import SmiHost

            return SmiHost(self._programs)
        from aliquot.hardware.host import LocalHost
        from aliquot.node.driver_root import driver_root

        return LocalHost(root=nvidia_smi_root(driver_root()))

    @cached_property
    def journal(self) -> Journal:
        from aliquot.hardware.state.journal import FileJournal
        from aliquot.hardware.state.journal_reader import JOURNAL

        boot = str(self._sim.show()["boot_id"]) if self._sim is not None else None
        return FileJournal(os.path.join(self._state_directory, JOURNAL), boot, by=self.by, command=self.command)

    @cached_property
    def lock(self) -> Lock:
        from aliquot.foundation.lock import FileLock

        return FileLock(os.path.join(self.run_directory, "lock"))

    @cached_property
    def clock(self) -> Clock:
        from aliquot.foundation.threads import SystemClock

        return SystemClock()

    @cached_property
    def workers(self) -> Workers:
        from aliquot.foundation.threads import ThreadWorkers

        return ThreadWorkers()

    def execution_context(self, hooks: Hooks | None = None, on_step: StepListener | None = None) -> ExecutionContext:
        """Return all ports of the node for the engine. Without ``hooks``, no command runs around a change. ``on_step``
        is called with each step of the change.
        """
        from aliquot.core.engine.context import ExecutionContext
        from aliquot.core.engine.step_timing import ignore_step
        from aliquot.hardware.state.boot_record_file import BootRecordFile
        from aliquot.node.hooks import NoHooks

        parts = self.backend, self.host, self.journal, self.clock, self.lock, self.workers
        record = BootRecordFile(self.directory)
        return ExecutionContext(
            *parts, hooks or NoHooks(), record, on_step or ignore_step, update_dependents=self._update_cdi_specs
        )

    def _update_cdi_specs(self, inventory: Inventory, report: Report) -> None:
        """Update our CDI files, so that no container gets a device that is gone."""
        from aliquot.cdi import spec_updates

        spec_updates.update_specs(inventory, report, self.directory if self.simulated else "")


def nvidia_smi_root(driver_root: str | None) -> str:
    """Return the root directory in which nvidia-smi finds itself and its driver's libraries."""
    below = driver_root is not None and os.path.exists(os.path.join(driver_root, "usr/bin/nvidia-smi"))
    return driver_root if driver_root and below else "/"
