"""The backend over nvidia-smi: what ``NvmlBackend`` does through the library, by commands.

Implements ``node_backend.NodeGpuDriver``. No session is open between commands, so that there is nothing to suspend.
Instances are made at exactly the place that was asked (``-cgi ID:START``); what a command says is believed after a
fresh look.
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

if TYPE_CHECKING:
    from aliquot.core.model.facts import Facts
    from aliquot.core.model.usage import Usage
    from aliquot.core.model.xids import XidPolicy
    from aliquot.hardware.nvidia_smi.facts import ComputeCapabilities
    from aliquot.hardware.nvml.health import Health


class SmiBackend:
    """One node's GPUs. ``addresses`` are those that the kernel's driver has, for the time when nvidia-smi gives up on
    the whole node because one GPU is lost. Raises NoDriverError where no driver answers, or one older than the floor.
    """

    def __init__(
        self, programs: DriverPrograms, node: str = "localhost", addresses: Callable[[], Iterable[str]] = tuple
    ) -> None:
        self.node = node
        self._smi = Smi(programs)
        self._reader = SmiReader(self._smi, addresses)
        self._mixed_sizes: dict[str, bool | None] = {}
        self._capabilities: ComputeCapabilities | None = None
        self._last: SmiReading | None = None
        too_old = codes.driver_too_old(self._reader.log().driver)
        if too_old is not None:
            raise too_old

    @property
    def calls(self) -> int:
        """How many commands were run so far."""
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
        return self._reader.gpu(report)

    def facts(self) -> Facts:
        """From the last look: no command is run twice for it."""
        from aliquot.hardware.nvidia_smi.facts import ComputeCapabilities, facts_from_reading

        if self._capabilities is None:
            self._capabilities = ComputeCapabilities()
        return facts_from_reading(self._smi, self._last_reading, self._reader.tables, self._capabilities)

    def usage(self, over_s: float = 0.0) -> tuple[Usage, ...]:
        """One command, ``-q``, whose figures are those of now."""
        from aliquot.hardware.nvidia_smi.usage import read_usage

        return read_usage(self._smi, {g.pci: g for g in self._last_reading.gpus})

    def mixed_size(self, pci: str) -> bool | None:
        """What the last look said; after one answer, or a change, it is asked again."""
        if pci not in self._mixed_sizes:
            self._mixed_sizes[pci] = self._reader.report(pci).mixed_size
        return self._mixed_sizes.pop(pci)

    @property
    def _last_reading(self) -> SmiReading:
        """The last look; the first one where there was none yet."""
        return self._read_node() if self._last is None else self._last

    def _read_node(self) -> SmiReading:
        reading = self._reader.read_node()
        self._mixed_sizes = {r.pci: r.mixed_size for r in reading.log.gpus}
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
        # What is refused is a warning, and the status 0 all the same: what the GPU reports afterwards is the proof.
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
        attempt = f"switching mixed-size mode of {pci} {'on' if on else 'off'}"
        self._mixed_sizes.pop(pci, None)
        with uninterrupted():
            self._smi.run_checked(attempt, "vgpu", "-i", pci, "-shm", str(int(on)), gpu=pci, timeout_s=WRITE_TIMEOUT_S)

    def _run_mig(self, attempt: str, pci: str, *arguments: str) -> str:
        """nvidia-smi finds no profile on a GPU that fell off the bus, and calls that an invalid argument."""
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
                f"{attempt}: nvidia-smi does not say what it made",
                details=tuple(output.strip().splitlines()[:8]),
                next_step="aliquot show",
            )
        return created_id

    # -- the session, which is none

    def renumber(self) -> None:
        """GPUs have come or gone."""
        self._reader.forget()
        self._mixed_sizes.clear()

    def suspend(self) -> AbstractContextManager[None]:
        """Nothing to close: a command that has ended is no client."""
        return nullcontext()

    def health(self, policy: XidPolicy) -> Health:
        """nvidia-smi reports no XIDs: every GPU is unwatched."""
        from aliquot.hardware.nvml.health import Health, NoXidEvents

        return Health(NoXidEvents(lambda: tuple(g.pci for g in self._last_reading.gpus)), policy)

    def close(self) -> None:
        """Nothing is open."""
