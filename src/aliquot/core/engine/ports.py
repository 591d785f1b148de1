"""What the engine needs from the world. Backends plug in from outside; in tests everything runs in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.stored import Stored

if TYPE_CHECKING:
    from aliquot.core.config.boot_record import RecordedRequest
    from aliquot.core.model.facts import Facts

T = TypeVar("T")

FORMAT = 1
"""Of the records of a run in the journal. A larger number says that older versions would misread them."""


class GpuDriver(Protocol):
    """What the GPU driver itself does: MIG, and the modes of a GPU. Every method raises an ``AliquotError``
    (``InUseError`` when a client is on the thing, ``GpuLostError``, ``PermissionDeniedError``, else ``HardwareError``)
    and never decides anything. Methods may be called from several threads, for different GPUs.
    """

    def read(self) -> Inventory:
        """A fresh look at everything."""
        ...

    def read_gpu(self, pci: str) -> Gpu:
        """A fresh look at one GPU, holders included."""
        ...

    def facts(self) -> Facts:
        """What labels and device plugins say beside the geometry, read apart: no plan depends on it. A GPU that fell
        off the bus has none.
        """
        ...

    def set_mode(self, pci: str, enabled: bool) -> bool:
        """Ask for MIG mode on or off. True if it is active now, False if it waits for a reset or reboot."""
        ...

    def create_gpu_instance(self, pci: str, profile_id: int, start: int, size: int) -> int:
        """Create at exactly that placement; the new instance's id."""
        ...

    def destroy_gpu_instance(self, pci: str, instance: int) -> None: ...

    def create_compute_instance(self, pci: str, instance: int, profile_id: int, start: int | None, size: int) -> int:
        """Create, at a compute slot if one is given; the new compute instance's id."""
        ...

    def destroy_compute_instance(self, pci: str, instance: int, compute_instance: int) -> None: ...

    def set_mixed_size(self, pci: str, on: bool) -> None: ...

    def suspend(self) -> AbstractContextManager[None]:
        """Close our own session for the duration: it is a client that refuses a reset like any other."""
        ...

    def close(self) -> None: ...


class Backend(GpuDriver, Protocol):
    """The GPUs of one node as the engine sees them: what their driver does, and what the kernel does for virtual
    machines. ``read`` and ``read_gpu`` show both.
    """

    def set_functions(self, pci: str, count: int) -> None:
        """Switch virtual functions on (``count``) or off (0), and wait, bounded, until all are there and ready."""
        ...

    def create_vgpu(self, pci: str, function: str, type_id: int, uuid: str) -> None:
        """Make a vGPU on a free function. Raises InUseError when something is on it by now."""
        ...

    def destroy_vgpu(self, pci: str, function: str, type_id: int, uuid: str, ownership_token: str) -> None:
        """Destroy exactly that vGPU. Raises InUseError when its VFIO handle is open, or when another one lies there
        by now (other type, UUID or claim): that one is not touched.
        """
        ...

    def set_passthrough(self, pci: str, on: bool, function: str = "") -> None:
        """Bind the whole GPU (or one virtual function of it) to vfio-pci, or back to the driver that it had."""
        ...


class HostControl(Protocol):
    """What only the machine around the GPUs can do."""

    def reset(self, pci: str) -> None:
        """Reset that GPU and no other. Raises InUseError when a client is on it."""
        ...

    def terminate(self, pid: int) -> None:
        """End a process, first asking, then not. Returns when it is gone."""
        ...


JournalKind = Literal["begin", "intent", "done", "refused", "failed", "undo", "end"]


class JournalEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the journal. ``kind``: begin, intent, done, refused, failed, undo, end. ``at`` is when it was
    written, in seconds of wall time, 0 in journals that are older than that. The rest stands in ``begin`` only: ``by``
    is who asked, ``text`` the name of the request, ``change`` what is to be done and what was there before
    (``recorded_change``; old runs lose it), ``format`` and ``writer`` the number of that form and the version that
    wrote the run.
    """

    kind: Stored[JournalKind]
    run: str
    boot: str = ""
    gpu: str = ""
    step: str = ""
    text: str = ""
    change: msgspec.Raw | None = None
    at: float = 0.0
    by: str = ""
    format: int = 0
    writer: str = ""


class Journal(Protocol):
    """Append-only record of what was about to be done."""

    def append(self, entry: JournalEntry, *, durable: bool) -> None:
        """Write one record; with ``durable`` it is on disk before this returns. Raises StorageError."""
        ...

    def entries(self) -> Sequence[JournalEntry]:
        """The records of the last run. A torn last line (power loss) is left out."""
        ...

    @property
    def boot(self) -> str:
        """The id of this boot: records of another boot tell of instances that are gone."""
        ...

    def new_run(self) -> str:
        """A fresh run id."""
        ...


class Clock(Protocol):
    def now(self) -> float:
        """Seconds, monotonic."""
        ...

    def sleep(self, seconds: float) -> None: ...


class Lock(Protocol):
    """One writer per node."""

    def hold(self) -> AbstractContextManager[None]:
        """Raises LockedError, naming the process that has it."""
        ...


class Workers(Protocol):
    """Runs the lanes side by side."""

    def run(self, jobs: Sequence[Callable[[], T]], stop: Callable[[], None] = lambda: None) -> list[T]:
        """Every job's result, in order. A job must not raise. A KeyboardInterrupt calls ``stop``, waits for the jobs
        to end, and is raised then.
        """
        ...


class Hooks(Protocol):
    """Commands that the user wants run around an apply (mig-parted's hook names)."""

    def fire(self, name: str) -> None:
        """Raises AliquotError if a command fails."""
        ...


class BootRecordStore(Protocol):
    """The last wish for each GPU, kept for the next boot."""

    def load(self) -> tuple[RecordedRequest, ...]:
        """What is recorded. Raises StorageError."""
        ...

    def save(self, requests: Iterable[RecordedRequest]) -> None:
        """Replace the record, durably. Raises StorageError."""
        ...
