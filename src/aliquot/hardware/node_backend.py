"""The engine's view of a node: driver calls through NVML, and kernel actions through the kernel's files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from aliquot.core.engine.ports import GpuDriver
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.model.vgpu_scheduler import DEFAULT, POLICIES, instances_to_switch, policy_of
from aliquot.errors import AliquotError
from aliquot.hardware.kernel.backend import Kernel

if TYPE_CHECKING:
    from aliquot.core.model.facts import Facts
    from aliquot.core.model.usage import Usage
    from aliquot.core.model.vgpu_usage import VgpuUsage


class NodeGpuDriver(GpuDriver, Protocol):
    """The GPUs through their driver's library, with the calls that virtualization needs."""

    def mixed_size(self, pci: str) -> bool | None:
        """Return whether mixed-size mode is on; None if the GPU does not support it in its current mode."""
        ...

    def scheduler(self, pci: str) -> str:
        """Return the scheduler of time-sliced vGPUs, as ``vgpu_scheduler`` writes it; "" if the driver does not report
        it. The driver reports time slice and frequency only while a VM runs.
        """
        ...

    def set_instance_scheduler(self, pci: str, instance: int, scheduler: str) -> None:
        """Set the scheduler of a GPU instance. The driver refuses it while vGPUs use the instance."""
        ...

    def renumber(self) -> None:
        """Forget values that are cached by index: GPUs have appeared or disappeared."""
        ...

    def usage(self, over_s: float = 0.0) -> tuple[Usage, ...]:
        """Return the current usage of each GPU instance and GPU (see ``model.usage``), separately from the inventory,
        because no plan depends on it.

        There is one entry per GPU instance that has a MIG device, and one per whole GPU outside MIG mode. Lost GPUs and
        GPUs in passthrough have none. This reads much less than the inventory, writes nothing, and opens no additional
        session. GPM's shares (Hopper and later) cover the time since the last call and are None at the first call;
        ``over_s`` makes a first call wait that many seconds for them. Raises the errors of the driver.
        """
        ...

    def vgpu_usage(self) -> tuple[VgpuUsage, ...]:
        """Return the usage and the license of each vGPU that a VM runs with; none without the vGPU host driver.

        Shares cover the time since the last call. Raises the errors of the driver.
        """
        ...


D = TypeVar("D", bound=NodeGpuDriver, covariant=True)


class NodeBackend(Generic[D]):
    """The implementation of ``engine.ports.Backend``. ``nvml`` is the driver's side, with the calls that only it
    offers.
    """

    def __init__(self, nvml: D, kernel: Kernel) -> None:
        self.nvml = nvml
        self.kernel = kernel
        self._indexes: dict[str, int] = {}

    # -- reading

    def read(self) -> Inventory:
        found = self.kernel.read(self.nvml.read(), self._mixed_size)
        found = msgspec.structs.replace(found, gpus=tuple(map(self._with_scheduler, found.gpus)))
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
        return self._with_node_index(self._with_scheduler(self.kernel.read_gpu(gpu, self._mixed_size)))

    def _with_node_index(self, gpu: Gpu) -> Gpu:
        """Return the GPU with the node's index. NVML's index does not count GPUs in passthrough, the node's does."""
        return msgspec.structs.replace(gpu, index=self._indexes.get(gpu.pci, gpu.index))

    def facts(self) -> Facts:
        return self.nvml.facts()

    def usage(self, over_s: float = 0.0) -> tuple[Usage, ...]:
        return self.nvml.usage(over_s)

    def vgpu_usage(self) -> tuple[VgpuUsage, ...]:
        return self.nvml.vgpu_usage()

    def _mixed_size(self, pci: str) -> bool | None:
        """Return mixed-size mode; None instead of an error if the driver cannot report it."""
        try:
            return self.nvml.mixed_size(pci)
        except AliquotError:
            return None

    def _with_scheduler(self, gpu: Gpu) -> Gpu:
        """Return a vGPU host's GPU with its scheduler. What the driver reports only while a VM runs is taken from what
        was set in this boot.
        """
        if gpu.mig.enabled:
            return msgspec.structs.replace(gpu, instances=tuple(self._with_details(gpu, i) for i in gpu.instances))
        if gpu.virtual is None or not gpu.virtual.framework:
            return gpu
        try:
            found = self._detailed(self.nvml.scheduler(gpu.pci), gpu.uuid)
        except AliquotError:
            return gpu
        return msgspec.structs.replace(gpu, virtual=msgspec.structs.replace(gpu.virtual, scheduler=found))

    def _with_details(self, gpu: Gpu, instance: GpuInstance) -> GpuInstance:
        if not isinstance(instance.scheduler, str):
            return instance
        found = self._detailed(instance.scheduler, gpu.uuid, instance.id)
        return msgspec.structs.replace(instance, scheduler=found)

    def _detailed(self, found: str, uuid: str, instance: int | None = None) -> str:
        """Return a reported scheduler with the details that were requested: the driver reports them only while a VM
        runs, and then also those that it chose itself.
        """
        if found == DEFAULT:
            return found
        recorded = self.kernel.recorded_scheduler(uuid, instance)
        same = policy_of(recorded) == policy_of(found)
        return recorded if same and (found in POLICIES or recorded in POLICIES) else found

    def _passthrough_gpu(self, pci: str) -> Gpu | None:
        """Return a GPU that NVML does not know because it is bound to vfio-pci."""
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

    def set_scheduler(self, pci: str, scheduler: str) -> None:
        gpu = self.nvml.read_gpu(pci)
        if not gpu.mig.enabled:
            self.nvml.set_scheduler(pci, scheduler)
            self.kernel.record_scheduler(gpu.uuid, scheduler)
            return
        gpu = self.read_gpu(pci)
        seen = any(isinstance(i.scheduler, str) for i in gpu.instances)
        switched = instances_to_switch(gpu, scheduler) if seen else {i.id for i in gpu.instances}
        for instance in sorted(switched - {v.gpu_instance for v in gpu.vgpus}):
            self.nvml.set_instance_scheduler(pci, instance, scheduler)
            self.kernel.record_scheduler(gpu.uuid, scheduler, instance)

    # -- what the kernel does

    def set_functions(self, pci: str, count: int) -> None:
        self.kernel.set_functions(self.nvml.read_gpu(pci), count, self.suspend)

    def create_vgpu(self, pci: str, function: str, type_id: int, uuid: str, parameters: str = "") -> None:
        self.kernel.create_vgpu(self.nvml.read_gpu(pci), function, type_id, uuid, parameters)

    def destroy_vgpu(self, pci: str, function: str, type_id: int, uuid: str, ownership_token: str) -> None:
        self.kernel.destroy_vgpu(self.nvml.read_gpu(pci), function, type_id, uuid, ownership_token)

    def set_passthrough(self, pci: str, on: bool, function: str = "") -> None:
        gpu = self._passthrough_gpu(pci) or self.nvml.read_gpu(pci)
        self.kernel.set_passthrough(gpu, on, function, self._closed_session)

    @contextmanager
    def _closed_session(self) -> Iterator[None]:
        """Close our session while a GPU is bound or unbound; afterwards NVML counts the GPUs again."""
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
