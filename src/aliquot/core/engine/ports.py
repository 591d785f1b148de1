"""The ports of the engine. Backends implement them outside the core; in tests everything runs in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.stored import Stored

if TYPE_CHECKING:
    from aliquot.core.model.desired import Desired
    from aliquot.core.model.facts import Facts

T = TypeVar("T")

ApplyStatus = Literal["nothing", "done", "reboot", "undone", "stopped", "partial"]
FORMAT = 1
"""The format of a run's journal entries. A larger number means that older versions would misread them."""


class GpuDriver(Protocol):
    """The operations of the GPU driver itself: MIG, and the modes of a GPU.

    Every method may raise an ``AliquotError`` (``InUseError`` if a client uses the object, ``GpuLostError``,
    ``PermissionDeniedError``, else ``HardwareError``) and never makes a decision. Methods may be called from several
    threads, for different GPUs.
    """

    def read(self) -> Inventory:
        """Read the whole inventory."""
        ...

    def read_gpu(self, pci: str) -> Gpu:
        """Read one GPU, holders included."""
        ...

    def facts(self) -> Facts:
        """Read the facts that labels and device plugins need besides the geometry. They are read separately because no
        plan depends on them. A GPU that fell off the bus has none.
        """
        ...

    def set_mode(self, pci: str, enabled: bool) -> bool:
        """Request MIG mode on or off. Returns True if it is active now, False if it waits for a reset or reboot."""
        ...

    def create_gpu_instance(self, pci: str, profile_id: int, start: int, size: int) -> int:
        """Create an instance at exactly that placement. Returns its id."""
        ...

    def destroy_gpu_instance(self, pci: str, instance: int) -> None: ...

    def create_compute_instance(self, pci: str, instance: int, profile_id: int, start: int | None, size: int) -> int:
        """Create a compute instance, at a compute slot if one is given. Returns its id."""
        ...

    def destroy_compute_instance(self, pci: str, instance: int, compute_instance: int) -> None: ...

    def set_mixed_size(self, pci: str, on: bool) -> None: ...

    def set_scheduler(self, pci: str, scheduler: str) -> None:
        """Set the scheduler of time-sliced vGPUs, as ``vgpu_scheduler`` writes it. The driver refuses it while vGPUs
        exist. In MIG mode it is set on each GPU instance that has another one and no vGPU.
        """
        ...

    def suspend(self) -> AbstractContextManager[None]:
        """Close our own session for the duration: like any client it would block a reset."""
        ...

    def close(self) -> None: ...


class Backend(GpuDriver, Protocol):
    """The GPUs of one node for the engine: the operations of the GPU driver, and those of the kernel for VMs.

    ``read`` and ``read_gpu`` show both.
    """

    def set_functions(self, pci: str, count: int) -> None:
        """Enable (``count``) or disable (0) virtual functions, and wait, with a limit, until all are ready."""
        ...

    def create_vgpu(self, pci: str, function: str, type_id: int, uuid: str, parameters: str = "") -> None:
        """Create a vGPU with its plugin parameters on a free function. Raises InUseError if the function is not free
        any more.
        """
        ...

    def destroy_vgpu(self, pci: str, function: str, type_id: int, uuid: str, ownership_token: str) -> None:
        """Destroy exactly that vGPU. Raises InUseError if its VFIO handle is open, or if another vGPU replaced it
        (other type, UUID or ownership token): that one is not touched.
        """
        ...

    def set_passthrough(self, pci: str, on: bool, function: str = "") -> None:
        """Bind the whole GPU (or one virtual function) to vfio-pci, or to its previous driver."""
        ...


class HostControl(Protocol):
    """The operations of the host."""

    def reset(self, pci: str) -> None:
        """Reset only that GPU. Raises InUseError if a client uses it."""
        ...

    def terminate(self, pid: int) -> None:
        """Terminate a process, first gracefully, then by force. Returns once it has ended."""
        ...


JournalKind = Literal["begin", "intent", "done", "refused", "failed", "undo", "end"]


class JournalEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the journal. Only a ``begin`` entry has the fields from ``by`` on, and ``change``."""

    kind: Stored[JournalKind]
    run: str
    boot: str = ""
    gpu: str = ""
    step: str = ""
    text: str = ""
    """In a ``begin`` entry the name of the request, in ``end`` the status, else a reason."""
    change: msgspec.Raw | None = None
    """The change and the state before it (``recorded_change``). Old runs lose it."""
    at: float = 0.0
    """The time of writing in seconds of wall time; 0 in journals of older versions."""
    by: str = ""
    """Who requested the change."""
    format: int = 0
    writer: str = ""
    """The version of Aliquot that wrote the run."""
    command: tuple[str, ...] = ()
    """The command line, without secrets. Empty if no person typed one, and in older journals."""


class Journal(Protocol):
    """An append-only record of intended and finished steps."""

    def append(self, entry: JournalEntry, *, durable: bool) -> None:
        """Write one entry; with ``durable`` it is on disk before this returns. Raises StorageError."""
        ...

    def entries(self) -> Sequence[JournalEntry]:
        """Return the entries of the last run. A torn last line (power loss) is omitted."""
        ...

    @property
    def boot(self) -> str:
        """The id of this boot. The instances in the entries of another boot no longer exist."""
        ...

    def new_run(self) -> str:
        """Return a new run id."""
        ...


class Clock(Protocol):
    def now(self) -> float:
        """Return monotonic seconds."""
        ...

    def sleep(self, seconds: float) -> None: ...


class Lock(Protocol):
    """The lock that allows one writer per node."""

    def hold(self) -> AbstractContextManager[None]:
        """Hold the lock. Raises LockedError, which names the process that has it."""
        ...


class Workers(Protocol):
    """A pool that runs the jobs of several GPUs in parallel."""

    def run(self, jobs: Sequence[Callable[[], T]], stop: Callable[[], None] = lambda: None) -> list[T]:
        """Run the jobs and return their results, in order. A job must not raise. A KeyboardInterrupt calls ``stop``,
        and is raised once all jobs have ended.
        """
        ...


class Hooks(Protocol):
    """Commands of the user that run around an apply (mig-parted's hook names)."""

    def fire(self, name: str) -> None:
        """Run the commands of a hook. Raises AliquotError if one fails."""
        ...


class BootRecordStore(Protocol):
    """The last request for each GPU, recorded for the next boot."""

    def record(self, desired: Desired, after: Inventory) -> None:
        """Record what was requested and reached, durably. Other GPUs keep their requests. Raises StorageError."""
        ...
