"""The backend over nvidia-smi: the functions of ``NvmlBackend``, by commands instead of the library.

Implements ``node_backend.NodeGpuDriver``. No session is open between commands, so there is nothing to suspend.
Instances are created exactly at the requested placement (``-cgi ID:START``). The effect of a command is confirmed by
reading again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from aliquot.core.engine.programs import DriverPrograms
from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.errors import HardwareError
from aliquot.foundation.signals import uninterrupted
from aliquot.hardware.nvidia_smi import list_output as lists
from aliquot.hardware.nvidia_smi.command import WRITE_TIMEOUT_S, Smi
from aliquot.hardware.nvidia_smi.reader import SmiReader, SmiReading
from aliquot.hardware.nvidia_smi.vgpu_scheduler import STATE, parse_schedulers, set_command

if TYPE_CHECKING:
    from aliquot.core.model.facts import Facts
    from aliquot.core.model.usage import Usage
    from aliquot.core.model.vgpu_usage import VgpuUsage
    from aliquot.core.model.xids import XidPolicy
    from aliquot.hardware.nvidia_smi.facts import ComputeCapabilities
    from aliquot.hardware.nvml.health import Health


class SmiBackend:
    """The GPUs of one node. Raises NoDriverError if no driver answers, or if it is older than the oldest supported
    version.

    ``addresses`` are the GPUs of the kernel's driver. They are used when nvidia-smi fails for the whole node because
    one GPU is lost.
    """

    def __init__(
        self, programs: DriverPrograms, node: str = "localhost", addresses: Callable[[], Iterable[str]] = tuple
    ) -> None:
        self.node = node
        self._smi = Smi(programs)
        self._reader = SmiReader(self._smi, addresses)
        self._mixed_sizes: dict[str, bool | None] = {}
        self._schedulers: dict[str, str] | None = None
        self._capabilities: ComputeCapabilities | None = None
        self._last: SmiReading | None = None
        too_old = codes.driver_too_old(self._reader.log().driver)
        if too_old is not None:
            raise too_old

    @property
    def calls(self) -> int:
        """The number of commands that were run."""
        return self._smi.calls

    # -- reading

    def read(self) -> Inventory:
        reading = self._read_node()
        return Inventory(
            node=self.node,
            gpus=reading.gpus,
            driver=reading.log.driver,
            nvml=reading.log.nvml,
            tables=self._reader.tables.changed(),
            notes=self._reader.tables.notes(),
        )

    def read_gpu(self, pci: str) -> Gpu:
        report = self._reader.report(pci)
        self._mixed_sizes[pci] = report.mixed_size
        self._schedulers = None
        return self._reader.gpu(report)

    def facts(self) -> Facts:
        """Return the facts of the last read, without running a command twice."""
        from aliquot.hardware.nvidia_smi.facts import ComputeCapabilities, facts_from_reading

        if self._capabilities is None:
            self._capabilities = ComputeCapabilities()
        return facts_from_reading(self._smi, self._last_reading, self._reader.tables, self._capabilities)

    def usage(self, over_s: float = 0.0) -> tuple[Usage, ...]:
        """Return the current usage from one command, ``-q``."""
        from aliquot.hardware.nvidia_smi.usage import read_usage

        return read_usage(self._smi, {g.pci: g for g in self._last_reading.gpus})

    def vgpu_usage(self) -> tuple[VgpuUsage, ...]:
        """Return nothing: only NVML reports the usage of vGPUs here."""
        return ()

    def mixed_size(self, pci: str) -> bool | None:
        """Return mixed-size mode from the last read. Each value is used once; after that, or after a change, it is read
        again.
        """
        if pci not in self._mixed_sizes:
            self._mixed_sizes[pci] = self._reader.report(pci).mixed_size
        return self._mixed_sizes.pop(pci)

    def scheduler(self, pci: str) -> str:
        """Return the scheduler of a GPU: of all from one command after each read."""
        if self._schedulers is None:
            result = self._smi.run(*STATE)
            self._schedulers = {} if result.status else parse_schedulers(result.out)
        return self._schedulers.get(pci, "")

    @property
    def _last_reading(self) -> SmiReading:
        """The last read, or a first one."""
        return self._read_node() if self._last is None else self._last

    def _read_node(self) -> SmiReading:
        reading = self._reader.read_node()
        self._mixed_sizes = {r.pci: r.mixed_size for r in reading.log.gpus}
        self._schedulers = None
        self._last = reading
        return reading

    # -- writing

    def set_mode(self, pci: str, enabled: bool) -> bool:
        attempt = f"{'enabling' if enabled else 'disabling'} MIG mode on {pci}"
        arguments = ("-i", pci, "-mig", str(int(enabled)))
        with uninterrupted():
            result = self._smi.run(*arguments, timeout_s=WRITE_TIMEOUT_S)
        if result.status:
            raise self._smi.error(attempt, result, arguments, pci)
        # A refusal is a warning with status 0, so only the GPU's state afterwards proves the change.
        mig = self._reader.report(pci).mig
        if not mig.capable:
            raise codes.error(codes.NOT_SUPPORTED, attempt, gpu=pci)
        wanted = "enabled" if enabled else "disabled"
        if wanted not in (mig.current, mig.pending):
            raise self._smi.error(attempt, result, arguments, pci)
        return mig.current == wanted

    def create_gpu_instance(self, pci: str, profile_id: int, start: int, size: int) -> int:
        attempt = f"creating a GPU instance of profile {profile_id} at {start}:{size} on {pci}"
        return self._create(attempt, pci, "-cgi", f"{profile_id}:{start}")

    def destroy_gpu_instance(self, pci: str, instance: int) -> None:
        attempt = f"destroying GPU instance {instance} on {pci}"
        self._run_mig(attempt, pci, "-dgi", "-gi", str(instance))

    def create_compute_instance(self, pci: str, instance: int, profile_id: int, start: int | None, size: int) -> int:
        where = "" if start is None else f" at {start}:{size}"
        attempt = f"creating a compute instance of profile {profile_id}{where} in GPU instance {instance} on {pci}"
        place = "" if start is None else f":{start}"
        return self._create(attempt, pci, "-cci", f"{profile_id}{place}", "-gi", str(instance))

    def destroy_compute_instance(self, pci: str, instance: int, compute_instance: int) -> None:
        attempt = f"destroying compute instance {compute_instance} of GPU instance {instance} on {pci}"
        self._run_mig(attempt, pci, "-dci", "-gi", str(instance), "-ci", str(compute_instance))

    def set_mixed_size(self, pci: str, on: bool) -> None:
        attempt = f"{'enabling' if on else 'disabling'} mixed-size mode on {pci}"
        self._mixed_sizes.pop(pci, None)
        arguments = ("vgpu", "-i", pci, "-shm", str(int(on)))
        try:
            with uninterrupted():
                self._smi.run_checked(attempt, *arguments, gpu=pci, timeout_s=WRITE_TIMEOUT_S)
        except HardwareError as error:
            if error.nvml_code == codes.NOT_SUPPORTED and self._reader.report(pci).mig.current == "enabled":
                raise HardwareError(
                    f"{attempt}: nvidia-smi cannot change it for a GPU instance, NVML can",
                    next_step=f"aliquot vgpu list {pci}",
                ) from error
            raise

    def set_scheduler(self, pci: str, scheduler: str) -> None:
        attempt = f"setting the vGPU scheduler {scheduler} on {pci}"
        self._schedulers = None
        with uninterrupted():
            self._smi.run_checked(attempt, *set_command(pci, scheduler), gpu=pci, timeout_s=WRITE_TIMEOUT_S)

    def set_instance_scheduler(self, pci: str, instance: int, scheduler: str) -> None:
        """Refuse: no option of nvidia-smi is known that sets the scheduler of a GPU instance."""
        raise HardwareError(
            f"setting the vGPU scheduler {scheduler} on GPU instance {instance} of {pci}: nvidia-smi cannot, NVML can",
            next_step=f"aliquot vgpu list {pci}",
        )

    def _run_mig(self, attempt: str, pci: str, *arguments: str) -> str:
        """Run a ``mig`` command. For a GPU that fell off the bus, nvidia-smi finds no profile and reports an invalid
        argument; reading the GPU then raises the real error.
        """
        try:
            with uninterrupted():
                return self._smi.run_checked(attempt, "mig", "-i", pci, *arguments, gpu=pci, timeout_s=WRITE_TIMEOUT_S)
        except HardwareError as error:
            if error.nvml_code == codes.INVALID_ARGUMENT:
                self._reader.report(pci)
            raise

    def _create(self, attempt: str, pci: str, *arguments: str) -> int:
        output = self._run_mig(attempt, pci, *arguments)
        created_id = lists.parse_created_id(output)
        if created_id is None:
            raise HardwareError(
                f"{attempt}: nvidia-smi did not report the id of the new instance",
                details=tuple(output.strip().splitlines()[:8]),
                next_step="aliquot show",
            )
        return created_id

    # -- the session, which is none

    def renumber(self) -> None:
        """Forget cached values: GPUs have appeared or disappeared."""
        self._reader.forget()
        self._mixed_sizes.clear()
        self._schedulers = None

    def suspend(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: a command that has ended is not a client of the GPU."""
        return nullcontext()

    def health(self, policy: XidPolicy) -> Health:
        """Return the health without XIDs: nvidia-smi reports none, so every GPU is unwatched."""
        from aliquot.hardware.nvml.health import Health, NoXidEvents

        return Health(NoXidEvents(lambda: tuple(g.pci for g in self._last_reading.gpus)), policy)

    def close(self) -> None:
        """Release nothing: no session is open."""
