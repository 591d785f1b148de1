"""The backend over nvidia-smi: what ``NvmlBackend`` does through the library, by commands.

Implements ``node_backend.Driver``. No session is open between commands, so that there is nothing to suspend. Instances
are made at exactly the place that was asked (``-cgi ID:START``); what a command says is believed after a fresh look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from aliquot.core.engine.programs import Programs
from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.errors import HardwareError
from aliquot.foundation.signals import whole
from aliquot.hardware.nvidia_smi import list_output as lists
from aliquot.hardware.nvidia_smi.command import ACT_S, Smi
from aliquot.hardware.nvidia_smi.reader import Reader, Seen

if TYPE_CHECKING:
    from aliquot.core.model.facts import Facts
    from aliquot.core.model.usage import Usage
    from aliquot.core.model.xids import XidPolicy
    from aliquot.hardware.nvidia_smi.facts import Capabilities
    from aliquot.hardware.nvml.health import Health


class SmiBackend:
    """One node's GPUs. ``addresses`` are those that the kernel's driver has, for the time when nvidia-smi gives up on
    the whole node because one GPU is lost. Raises NoDriverError where no driver answers, or one older than the floor.
    """

    def __init__(
        self, programs: Programs, node: str = "localhost", addresses: Callable[[], Iterable[str]] = tuple
    ) -> None:
        self.node = node
        self._smi = Smi(programs)
        self._reader = Reader(self._smi, addresses)
        self._mixed: dict[str, bool | None] = {}
        self._capabilities: Capabilities | None = None
        self._last: Seen | None = None
        too_old = codes.driver_too_old(self._reader.log().driver)
        if too_old is not None:
            raise too_old

    @property
    def calls(self) -> int:
        """How many commands were run so far."""
        return self._smi.calls

    # -- reading

    def read(self) -> Inventory:
        seen = self._look()
        return Inventory(
            node=self.node,
            gpus=seen.gpus,
            driver=seen.log.driver,
            nvml=seen.log.nvml,
            tables=self._reader.tables.changed(),
            notes=self._reader.tables.notes(),
        )

    def read_gpu(self, pci: str) -> Gpu:
        report = self._reader.report(pci)
        self._mixed[pci] = report.mixed
        return self._reader.gpu(report)

    def facts(self) -> Facts:
        """From the last look: no command is run twice for it."""
        from aliquot.hardware.nvidia_smi.facts import Capabilities, facts

        if self._capabilities is None:
            self._capabilities = Capabilities()
        return facts(self._smi, self._seen, self._reader.tables, self._capabilities)

    def usage(self, over_s: float = 0.0) -> tuple[Usage, ...]:
        """One command, ``-q``, whose figures are those of now."""
        from aliquot.hardware.nvidia_smi.usage import usage

        return usage(self._smi, {g.pci: g for g in self._seen.gpus})

    def mixed_size(self, pci: str) -> bool | None:
        """What the last look said; after one answer, or a change, it is asked again."""
        if pci not in self._mixed:
            self._mixed[pci] = self._reader.report(pci).mixed
        return self._mixed.pop(pci)

    @property
    def _seen(self) -> Seen:
        """The last look; the first one where there was none yet."""
        return self._look() if self._last is None else self._last

    def _look(self) -> Seen:
        seen = self._reader.node()
        self._mixed = {r.pci: r.mixed for r in seen.log.gpus}
        self._last = seen
        return seen

    # -- writing

    def set_mode(self, pci: str, enabled: bool) -> bool:
        attempt = f"{'enabling' if enabled else 'disabling'} MIG mode on {pci}"
        words = ("-i", pci, "-mig", str(int(enabled)))
        with whole():
            ran = self._smi.run(*words, timeout_s=ACT_S)
        if ran.status:
            raise self._smi.error(attempt, ran, words, pci)
        # What is refused is a warning, and the status 0 all the same: what the GPU reports afterwards is the proof.
        mig = self._reader.report(pci).mig
        if not mig.capable:
            raise codes.error(codes.NOT_SUPPORTED, attempt, gpu=pci)
        wanted = "enabled" if enabled else "disabled"
        if wanted not in (mig.current, mig.pending):
            raise self._smi.error(attempt, ran, words, pci)
        return mig.current == wanted

    def create_gpu_instance(self, pci: str, profile_id: int, start: int, size: int) -> int:
        attempt = f"creating a GPU instance of profile {profile_id} at {start}:{size} on {pci}"
        return self._make(attempt, pci, "-cgi", f"{profile_id}:{start}")

    def destroy_gpu_instance(self, pci: str, instance: int) -> None:
        attempt = f"destroying GPU instance {instance} on {pci}"
        self._act(attempt, pci, "-dgi", "-gi", str(instance))

    def create_compute_instance(self, pci: str, instance: int, profile_id: int, start: int | None, size: int) -> int:
        where = "" if start is None else f" at {start}:{size}"
        attempt = f"creating a compute instance of profile {profile_id}{where} in GPU instance {instance} on {pci}"
        place = "" if start is None else f":{start}"
        return self._make(attempt, pci, "-cci", f"{profile_id}{place}", "-gi", str(instance))

    def destroy_compute_instance(self, pci: str, instance: int, compute_instance: int) -> None:
        attempt = f"destroying compute instance {compute_instance} of GPU instance {instance} on {pci}"
        self._act(attempt, pci, "-dci", "-gi", str(instance), "-ci", str(compute_instance))

    def set_mixed_size(self, pci: str, on: bool) -> None:
        attempt = f"switching mixed-size mode of {pci} {'on' if on else 'off'}"
        self._mixed.pop(pci, None)
        with whole():
            self._smi.ok(attempt, "vgpu", "-i", pci, "-shm", str(int(on)), gpu=pci, timeout_s=ACT_S)

    def _act(self, attempt: str, pci: str, *words: str) -> str:
        """nvidia-smi finds no profile on a GPU that fell off the bus, and calls that an invalid argument."""
        try:
            with whole():
                return self._smi.ok(attempt, "mig", "-i", pci, *words, gpu=pci, timeout_s=ACT_S)
        except HardwareError as error:
            if error.nvml_code == codes.INVALID_ARGUMENT:
                self._reader.report(pci)
            raise

    def _make(self, attempt: str, pci: str, *words: str) -> int:
        said = self._act(attempt, pci, *words)
        made = lists.made(said)
        if made is None:
            raise HardwareError(
                f"{attempt}: nvidia-smi does not say what it made",
                details=tuple(said.strip().splitlines()[:8]),
                next_step="aliquot show",
            )
        return made

    # -- the session, which is none

    def renumber(self) -> None:
        """GPUs have come or gone."""
        self._reader.forget()
        self._mixed.clear()

    def suspend(self) -> AbstractContextManager[None]:
        """Nothing to close: a command that has ended is no client."""
        return nullcontext()

    def health(self, policy: XidPolicy) -> Health:
        """nvidia-smi reports no XIDs: every GPU is unwatched."""
        from aliquot.hardware.nvidia_smi.health import Unwatched
        from aliquot.hardware.nvml.health import Health

        return Health(Unwatched(lambda: tuple(g.pci for g in self._seen.gpus)), policy)

    def close(self) -> None:
        """Nothing is open."""
