"""The owner map: for whom each vGPU was created, and which GPUs are passed through. It is written to disk before each
action. It also keeps the schedulers that were set, since the driver reports their details only while a VM runs.

The entry of a vGPU holds a random ownership token, which must be presented to destroy it. Therefore a late release
cannot hit the next owner of the same virtual function. Entries of an earlier boot list what a reboot removed: their
tokens are void, their functions and UUIDs are kept.

If the map is damaged, only its passthrough records are used, as they were before its last change. Running vGPUs are
adopted and never touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from threading import Lock

import msgspec

from aliquot.errors import AliquotError
from aliquot.foundation import state_store
from aliquot.foundation.state_store import StateFile
from aliquot.hardware.kernel.framework import KernelVgpu

FILE = "vgpu-owners.json"
OLD_FILE = "owners.json"
_process_lock = Lock()


class VgpuOwner(msgspec.Struct, frozen=True, omit_defaults=True):
    """An owned vGPU."""

    function: str
    type_id: int
    type: str = ""
    uuid: str = ""
    ownership_token: str = msgspec.field(default="", name="claim")
    """Empty for a vGPU that was found and not created here."""
    pci: str = ""
    gpu: str = ""
    """The GPU's UUID."""
    number: int = -1
    """The number of its function (-1: the GPU itself), which finds the function again if addresses have changed."""
    gpu_instance: int | None = None
    boot: str = ""

    def matches(self, kernel_vgpu: KernelVgpu) -> bool:
        """Return whether this is the entry of a vGPU that the kernel shows."""
        same = (self.function, self.type_id) == (kernel_vgpu.function, kernel_vgpu.type_id)
        return same and kernel_vgpu.uuid in ("", self.uuid)


class PassthroughRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that was bound to vfio-pci: a GPU, or one of its virtual functions. The other fields keep what NVML no
    longer reports about the GPU.
    """

    function: str
    drivers: dict[str, str]
    """The drivers that it and its companions in the IOMMU group had."""
    pci: str = ""
    uuid: str = ""
    product: str = ""
    mig: bool = False
    boot: str = ""


class SchedulerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The vGPU scheduler that was set on a GPU, or a GPU instance of it, in a boot."""

    gpu: str
    """The GPU's UUID."""
    scheduler: str
    boot: str
    instance: int | None = None


class OwnerMap(msgspec.Struct, frozen=True):
    """The whole map."""

    vgpus: tuple[VgpuOwner, ...] = ()
    passthrough: tuple[PassthroughRecord, ...] = msgspec.field(default=(), name="handed")
    schedulers: tuple[SchedulerRecord, ...] = ()

    def find_owner(self, kernel_vgpu: KernelVgpu, boot: str) -> VgpuOwner | None:
        """Return the entry of an existing vGPU: one of this boot, else one of an earlier boot without its token."""
        matching = [owner for owner in self.vgpus if owner.matches(kernel_vgpu)]
        for owner in matching:
            if owner.boot == boot:
                return owner
        return msgspec.structs.replace(matching[-1], ownership_token="") if matching else None

    def passthrough_of(self, function: str) -> PassthroughRecord | None:
        return next((h for h in self.passthrough if h.function == function), None)

    def with_owner(self, owner: VgpuOwner) -> OwnerMap:
        """Return the map with this entry in place of all entries that it invalidates."""
        remaining = [o for o in self.vgpus if not _replaces(o, owner)]
        return msgspec.structs.replace(self, vgpus=(*remaining, owner))

    def without_owners(self, owners: Iterable[VgpuOwner]) -> OwnerMap:
        gone = set(owners)
        return msgspec.structs.replace(self, vgpus=tuple(o for o in self.vgpus if o not in gone))

    def with_passthrough(self, record: PassthroughRecord) -> OwnerMap:
        return msgspec.structs.replace(self, passthrough=(*self._other_passthrough(record.function), record))

    def without_passthrough(self, function: str) -> OwnerMap:
        return msgspec.structs.replace(self, passthrough=self._other_passthrough(function))

    def scheduler_of(self, uuid: str, boot: str, instance: int | None = None) -> str:
        """Return the scheduler that was set on a GPU, or a GPU instance of it, in this boot; "" for none."""
        wanted = uuid, boot, instance
        return next((s.scheduler for s in self.schedulers if (s.gpu, s.boot, s.instance) == wanted), "")

    def with_scheduler(self, record: SchedulerRecord) -> OwnerMap:
        """Return the map with this record; those of earlier boots are void."""
        place = record.gpu, record.instance
        rest = (s for s in self.schedulers if (s.gpu, s.instance) != place and s.boot == record.boot)
        return msgspec.structs.replace(self, schedulers=(*rest, record))

    def _other_passthrough(self, function: str) -> tuple[PassthroughRecord, ...]:
        return tuple(h for h in self.passthrough if h.function != function)


def _replaces(old: VgpuOwner, new: VgpuOwner) -> bool:
    """Return whether a new entry replaces an old one. A virtual function carries one vGPU, the GPU itself (number -1)
    may carry many. A UUID belongs to one vGPU.
    """
    return (old.function == new.function and new.number >= 0) or bool(new.uuid and old.uuid == new.uuid)


def _merge(ours: OwnerMap, older: OwnerMap) -> OwnerMap:
    """Merge both maps. For the same function the older release wins: it changed the entry later, without reading our
    file.
    """
    owner_map = ours
    for owner in older.vgpus:
        owner_map = owner_map.with_owner(owner)
    for record in older.passthrough:
        owner_map = owner_map.with_passthrough(record)
    return owner_map


class OwnerMapFile:
    """The map in ``directory``. Threads and processes may change it concurrently; each change reads it again."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE)
        self._old_path = os.path.join(directory, OLD_FILE)
        """Also the path of the lock, which releases before the state store use as well."""
        self._file = StateFile(self.path, "vgpu-owners", OwnerMap, OwnerMap(), legacy_name=OLD_FILE, merge=_merge)

    def load(self) -> tuple[OwnerMap, str]:
        """Return the map, and why it has no vGPUs although the file exists ("" if it is valid)."""
        try:
            owner_map = self._file.load()
        except AliquotError as error:
            return OwnerMap(), f"the owner map cannot be read: {error.brief}: no vGPU is treated as ours"
        if not self.damaged:
            return owner_map, ""
        return msgspec.structs.replace(owner_map, vgpus=()), (
            f"the owner map {self.damaged} is damaged: existing vGPUs are kept, but which ones were created here is "
            "no longer known"
        )

    @property
    def damaged(self) -> str:
        """The file that the last load could not decode, or ""."""
        return next((path for path in (self.path, self._old_path) if path in state_store.unreadable), "")

    def change(self, edit: Callable[[OwnerMap], OwnerMap]) -> OwnerMap:
        """Change the map; the new one is on disk when this returns. A damaged map is set aside first. Raises
        StorageError.
        """
        from aliquot.foundation.lock import exclusive

        with _process_lock, exclusive(self._old_path):
            owner_map, problem = self.load()
            changed = edit(owner_map)
            if changed != owner_map or problem:
                self._file.save(changed)
            return changed


def new_token() -> str:
    """Return a new random token."""
    return os.urandom(8).hex()
