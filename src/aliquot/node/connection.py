"""A node, open: everything that the engine needs to work on it. ``connect`` makes it."""

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
    from aliquot.core.model.inventory import Inventory
    from aliquot.hardware.kernel_files import KernelFiles
    from aliquot.hardware.node_backend import NodeBackend
    from aliquot.node.driver_unavailable import AvailableDriver, UnavailableDriver
    from aliquot.sim.client import SimClient

    AnyDriver: TypeAlias = AvailableDriver | UnavailableDriver
    AnyBackend: TypeAlias = NodeBackend[AnyDriver]


class Connection:
    """A node, open. Parts that only a change needs are made on first use. Leaving the context closes the backend,
    and the journal: processes that live long open nodes again and again.
    ``run_directory`` is where what may go with a reboot is kept: the lock.
    ``programs`` are the driver's, where its library is not what is spoken to. ``by`` is who asks, for the journal.
    """

    by = ""

    def __init__(
        self,
        name: str,
        backend: AnyBackend,
        directories: tuple[str, str],
        sim: SimClient | None = None,
        programs: DriverPrograms | None = None,
    ) -> None:
        self.node = name
        self.backend = backend
        self.simulated = sim is not None
        self.run_directory, self._state_directory = directories
        self._sim = sim
        self._programs = programs

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

    @property
    def nvml(self) -> AnyDriver:
        """The GPU driver's side of the backend alone, with what only it offers: describing, health."""
        return self.backend.nvml

    @property
    def files(self) -> KernelFiles:
        """The kernel's files of the node."""
        return self.backend.kernel.files

    @property
    def sim(self) -> SimClient | None:
        """The simulated node from outside its driver; None for a machine."""
        return self._sim

    @property
    def directory(self) -> str:
        """Where what must outlive a process is kept: the journal, and the records of others."""
        return self._state_directory

    @cached_property
    def host(self) -> HostControl:
        """Resets GPUs and ends processes: the machine, or the simulated node."""
        if self._sim is not None:
            from aliquot.sim.host import SimHost

            return SimHost(self._sim)
        if self._programs is not None:
            from aliquot.hardware.nvidia_smi.host import SmiHost

            return SmiHost(self._programs)
        from aliquot.hardware.host import LocalHost

        return LocalHost(root=nvidia_smi_root(os.environ.get("ALIQUOT_DRIVER_ROOT")))

    @cached_property
    def journal(self) -> Journal:
        from aliquot.hardware.state.journal import FileJournal
        from aliquot.hardware.state.journal_reader import JOURNAL

        boot = str(self._sim.show()["boot_id"]) if self._sim is not None else None
        return FileJournal(os.path.join(self._state_directory, JOURNAL), boot, by=self.by)

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

    def execution_context(self, hooks: Hooks | None = None) -> ExecutionContext:
        """All ports of the node, for the engine. Without ``hooks`` nothing is run around a change."""
        from aliquot.core.engine.context import ExecutionContext
        from aliquot.hardware.state.boot_record_file import BootRecordFile
        from aliquot.node.hooks import NoHooks

        parts = self.backend, self.host, self.journal, self.clock, self.lock, self.workers
        context = ExecutionContext(*parts, hooks or NoHooks(), BootRecordFile(self.directory))
        context.update_dependents = self._update_cdi_specs
        return context

    def _update_cdi_specs(self, inventory: Inventory, report: Report) -> None:
        """Containers must not be given what is gone: CDI files of ours follow."""
        from aliquot.cdi import spec_updates

        spec_updates.update_specs(inventory, report, self.directory if self.simulated else "")


def nvidia_smi_root(driver_root: str | None) -> str:
    """The root directory in which nvidia-smi finds itself and its driver's libraries."""
    below = driver_root is not None and os.path.exists(os.path.join(driver_root, "usr/bin/nvidia-smi"))
    return driver_root if driver_root and below else "/"
