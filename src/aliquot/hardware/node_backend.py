"""A node as the engine sees it: what the GPU driver does, through NVML, and what the kernel does, through its files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from aliquot.core.engine.ports import GpuDriver
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.errors import AliquotError
from aliquot.hardware.kernel.backend import Kernel

if TYPE_CHECKING:
    from aliquot.core.model.facts import Facts
    from aliquot.core.model.usage import Usage


class NodeGpuDriver(GpuDriver, Protocol):
    """The GPUs through their driver's library, and what is asked of it for virtual machines."""

    def mixed_size(self, pci: str) -> bool | None:
        """Whether mixed-size mode is on; None where the GPU, in its present mode, has none."""
        ...

    def renumber(self) -> None:
        """GPUs have come or gone: what is remembered by position is asked again."""
        ...

    def usage(self, over_s: float = 0.0) -> tuple[Usage, ...]:
        """What each piece is used for now (see ``model.usage``), read apart: no plan depends on it. One entry per GPU
        instance that has a MIG device, one per whole GPU outside MIG mode; none for GPUs that are lost or handed out
        whole. It reads much less than a look at the GPUs does, writes nothing, and opens no session beside its own.

        GPM's shares (Hopper and later) are of the time since the last call, None at the first; ``over_s`` makes a
        first call wait so many seconds for them. Raises what the driver's refusals mean.
        """
        ...


D = TypeVar("D", bound=NodeGpuDriver, covariant=True)


class NodeBackend(Generic[D]):
    """Implements ``engine.ports.Backend``. ``nvml`` is the driver's side alone, with what only it offers."""

    def __init__(self, nvml: D, kernel: Kernel) -> None:
        self.nvml = nvml
        self.kernel = kernel
        self._indexes: dict[str, int] = {}

    # -- reading

    def read(self) -> Inventory:
        found = self.kernel.read(self.nvml.read(), self._mixed_size)
        self._indexes = {gpu.pci: gpu.index for gpu in found.gpus}
        return found

    def read_gpu(self, pci: str) -> Gpu:
        try:
            gpu = self.nvml.read_gpu(pci)
        except AliquotError:
            passthrough_gpu = self._passthrough_gpu(pci)
            if passthrough_gpu is None:
                raise
            return self._with_node_index(passthrough_gpu)
        return self._with_node_index(self.kernel.read_gpu(gpu, self._mixed_size))

    def _with_node_index(self, gpu: Gpu) -> Gpu:
        """NVML's index counts the GPUs that it sees; the node's, while one is handed out, all of them."""
        return msgspec.structs.replace(gpu, index=self._indexes.get(gpu.pci, gpu.index))

    def facts(self) -> Facts:
        return self.nvml.facts()

    def usage(self, over_s: float = 0.0) -> tuple[Usage, ...]:
        return self.nvml.usage(over_s)

    def _mixed_size(self, pci: str) -> bool | None:
        """Mixed-size mode is worth no error: a driver that cannot tell has none."""
        try:
            return self.nvml.mixed_size(pci)
        except AliquotError:
            return None

    def _passthrough_gpu(self, pci: str) -> Gpu | None:
        """A GPU that NVML does not know because vfio-pci has it."""
        return next((gpu for gpu in self.kernel.passthrough() if gpu.pci == pci), None)

    # -- what the driver does

    def set_mode(self, pci: str, enabled: bool) -> bool:
        return self.nvml.set_mode(pci, enabled)

    def create_gpu_instance(self, pci: str, profile_id: int, start: int, size: int) -> int:
        return self.nvml.create_gpu_instance(pci, profile_id, start, size)

    def destroy_gpu_instance(self, pci: str, instance: int) -> None:
        self.nvml.destroy_gpu_instance(pci, instance)

    def create_compute_instance(self, pci: str, instance: int, profile_id: int, start: int | None, size: int) -> int:
        return self.nvml.create_compute_instance(pci, instance, profile_id, start, size)

    def destroy_compute_instance(self, pci: str, instance: int, compute_instance: int) -> None:
        self.nvml.destroy_compute_instance(pci, instance, compute_instance)

    def set_mixed_size(self, pci: str, on: bool) -> None:
        self.nvml.set_mixed_size(pci, on)

    # -- what the kernel does

    def set_functions(self, pci: str, count: int) -> None:
        self.kernel.set_functions(self.nvml.read_gpu(pci), count, self.suspend)

    def create_vgpu(self, pci: str, function: str, type_id: int, uuid: str) -> None:
        self.kernel.create_vgpu(self.nvml.read_gpu(pci), function, type_id, uuid)

    def destroy_vgpu(self, pci: str, function: str, type_id: int, uuid: str, ownership_token: str) -> None:
        self.kernel.destroy_vgpu(self.nvml.read_gpu(pci), function, type_id, uuid, ownership_token)

    def set_passthrough(self, pci: str, on: bool, function: str = "") -> None:
        gpu = self._passthrough_gpu(pci) or self.nvml.read_gpu(pci)
        self.kernel.set_passthrough(gpu, on, function, self._closed_session)

    @contextmanager
    def _closed_session(self) -> Iterator[None]:
        """Our session closed while a GPU comes or goes; afterwards NVML counts them anew."""
        try:
            with self.nvml.suspend():
                yield
        finally:
            self.nvml.renumber()

    # -- the session

    def suspend(self) -> AbstractContextManager[None]:
        return self.nvml.suspend()

    def close(self) -> None:
        self.nvml.close()
