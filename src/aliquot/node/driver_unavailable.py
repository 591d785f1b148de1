"""The driver of a node that does not answer because every GPU is passed through, or no driver is loaded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.errors import AliquotError

if TYPE_CHECKING:
    from aliquot.core.model.facts import Facts
    from aliquot.core.model.usage import Usage
    from aliquot.core.model.vgpu_usage import VgpuUsage
    from aliquot.core.model.xids import XidPolicy
    from aliquot.hardware.nvidia_smi.backend import SmiBackend
    from aliquot.hardware.nvml.backend import NvmlBackend
    from aliquot.hardware.nvml.health import Health
    from aliquot.node.simulated.backend import SimBackend

    AvailableDriver: TypeAlias = NvmlBackend | SimBackend | SmiBackend


class UnavailableDriver:
    """A driver without GPUs, until ``reopen`` succeeds (a GPU was returned to the driver). From then on it delegates to
    the opened driver. Before that, whatever needs the driver raises ``reason``. With ``kernel_only``, facts and health
    are empty instead, for callers that continue with the kernel's functions.
    """

    def __init__(
        self, node: str, reason: AliquotError, reopen: Callable[[], AvailableDriver], *, kernel_only: bool = False
    ) -> None:
        self._node = node
        self._reason = reason
        self._reopen = reopen
        self._kernel_only = kernel_only
        self._opened: AvailableDriver | None = None

    @property
    def driver(self) -> AvailableDriver:
        """The driver, opened if it answers by now. Raises the errors of opening it."""
        if self._opened is None:
            try:
                self._opened = self._reopen()
            except AliquotError as error:
                self._reason = error
                raise
        return self._opened

    def require(self) -> None:
        """Open the driver if it answers by now. Raises the errors of opening it."""
        assert self.driver

    def read(self) -> Inventory:
        try:
            return self.driver.read()
        except AliquotError:
            if self._opened is not None:
                raise
        return Inventory(self._node, (), notes=(f"NVML does not answer: {self._reason.brief}",))

    def read_gpu(self, pci: str) -> Gpu:
        return self.driver.read_gpu(pci)

    def facts(self) -> Facts:
        if self._kernel_only and self._opened is None:
            from aliquot.core.model.facts import Facts

            return Facts("", (0, 0), ())
        return self.driver.facts()

    def usage(self, over_s: float = 0.0) -> tuple[Usage, ...]:
        """Return no usage while the driver is unavailable, because every GPU is then passed through whole."""
        return () if self._opened is None else self._opened.usage(over_s)

    def vgpu_usage(self) -> tuple[VgpuUsage, ...]:
        return () if self._opened is None else self._opened.vgpu_usage()

    def set_mode(self, pci: str, enabled: bool) -> bool:
        return self.driver.set_mode(pci, enabled)

    def create_gpu_instance(self, pci: str, profile_id: int, start: int, size: int) -> int:
        return self.driver.create_gpu_instance(pci, profile_id, start, size)

    def destroy_gpu_instance(self, pci: str, instance: int) -> None:
        self.driver.destroy_gpu_instance(pci, instance)

    def create_compute_instance(self, pci: str, instance: int, profile_id: int, start: int | None, size: int) -> int:
        return self.driver.create_compute_instance(pci, instance, profile_id, start, size)

    def destroy_compute_instance(self, pci: str, instance: int, compute_instance: int) -> None:
        self.driver.destroy_compute_instance(pci, instance, compute_instance)

    def mixed_size(self, pci: str) -> bool | None:
        return self.driver.mixed_size(pci)

    def set_mixed_size(self, pci: str, on: bool) -> None:
        self.driver.set_mixed_size(pci, on)

    def scheduler(self, pci: str) -> str:
        return self.driver.scheduler(pci)

    def set_scheduler(self, pci: str, scheduler: str) -> None:
        self.driver.set_scheduler(pci, scheduler)

    def set_instance_scheduler(self, pci: str, instance: int, scheduler: str) -> None:
        self.driver.set_instance_scheduler(pci, instance, scheduler)

    def health(self, policy: XidPolicy) -> Health:
        if self._kernel_only and self._opened is None:
            from aliquot.hardware.nvml.health import Health, NoXidEvents

            return Health(NoXidEvents(tuple), policy)
        return self.driver.health(policy)

    def renumber(self) -> None:
        if self._opened is not None:
            self._opened.renumber()

    def suspend(self) -> AbstractContextManager[None]:
        return nullcontext() if self._opened is None else self._opened.suspend()

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
