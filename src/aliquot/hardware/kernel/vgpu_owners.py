"""The owner map: which vGPU was made for whom, and which GPUs were handed out. On disk before the act that it tells of.

A vGPU's entry holds a claim, a random token that is known to nobody who did not read it. Whoever destroys must present
it, so that a release that comes late cannot hit the next owner of the same virtual function. Entries of an earlier
boot are what a reboot took away: their claims are void, their functions and UUIDs are remembered. Of a map that cannot
be understood only the GPUs in passthrough count, as they were before its last change: vGPUs that run are adopted, never
touched.
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
    """A vGPU. ``number`` is its function's (-1: the GPU itself), which finds the function again where addresses have
    moved; ``gpu`` the GPU's UUID; ``ownership_token`` empty for one that was found and not made here.
    """

    function: str
    type_id: int
    type: str = ""
    uuid: str = ""
    ownership_token: str = msgspec.field(default="", name="claim")
    pci: str = ""
    gpu: str = ""
    number: int = -1
    gpu_instance: int | None = None
    boot: str = ""

    def matches(self, kernel_vgpu: KernelVgpu) -> bool:
        """Whether this is the entry of a vGPU that the kernel shows."""
        same = (self.function, self.type_id) == (kernel_vgpu.function, kernel_vgpu.type_id)
        return same and kernel_vgpu.uuid in ("", self.uuid)


class PassthroughRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that was given to vfio-pci: a GPU, or one of its virtual functions. ``drivers`` are the drivers that
    it and its companions in the IOMMU group had. The rest is what NVML can no longer say of a GPU.
    """

    function: str
    drivers: dict[str, str]
    pci: str = ""
    uuid: str = ""
    product: str = ""
    mig: bool = False
    boot: str = ""


class OwnerMap(msgspec.Struct, frozen=True):
    """The whole map."""

    vgpus: tuple[VgpuOwner, ...] = ()
    passthrough: tuple[PassthroughRecord, ...] = msgspec.field(default=(), name="handed")

    def find_owner(self, kernel_vgpu: KernelVgpu, boot: str) -> VgpuOwner | None:
        """The entry of a vGPU that exists: one of this boot, else one of an earlier boot, without its claim."""
        matching = [owner for owner in self.vgpus if owner.matches(kernel_vgpu)]
        for owner in matching:
            if owner.boot == boot:
                return owner
        return msgspec.structs.replace(matching[-1], ownership_token="") if matching else None

    def passthrough_of(self, function: str) -> PassthroughRecord | None:
        return next((h for h in self.passthrough if h.function == function), None)

    def with_owner(self, owner: VgpuOwner) -> OwnerMap:
        """With this entry in the place of every other that it makes untrue."""
        remaining = [o for o in self.vgpus if not _replaces(o, owner)]
        return msgspec.structs.replace(self, vgpus=(*remaining, owner))

    def without_owners(self, owners: Iterable[VgpuOwner]) -> OwnerMap:
        gone = set(owners)
        return msgspec.structs.replace(self, vgpus=tuple(o for o in self.vgpus if o not in gone))

    def with_passthrough(self, record: PassthroughRecord) -> OwnerMap:
        return msgspec.structs.replace(self, passthrough=(*self._other_passthrough(record.function), record))

    def without_passthrough(self, function: str) -> OwnerMap:
        return msgspec.structs.replace(self, passthrough=self._other_passthrough(function))

    def _other_passthrough(self, function: str) -> tuple[PassthroughRecord, ...]:
        return tuple(h for h in self.passthrough if h.function != function)


def _replaces(old: VgpuOwner, new: VgpuOwner) -> bool:
    """A virtual function carries one vGPU; of the GPU itself (number -1) there may be many. A UUID is one vGPU's."""
    return (old.function == new.function and new.number >= 0) or bool(new.uuid and old.uuid == new.uuid)


def _merge(ours: OwnerMap, older: OwnerMap) -> OwnerMap:
    """Both maps; where they speak of the same function, an older release changed it since and did not see ours."""
    owner_map = ours
    for owner in older.vgpus:
        owner_map = owner_map.with_owner(owner)
    for record in older.passthrough:
        owner_map = owner_map.with_passthrough(record)
    return owner_map


class OwnerMapFile:
    """The map in ``directory``. Threads and processes may change it at once; each change reads it afresh."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE)
        self._old_path = os.path.join(directory, OLD_FILE)
        """Also the name of the lock, which releases before the state store take as well."""
        self._file = StateFile(self.path, "vgpu-owners", OwnerMap, OwnerMap(), legacy_name=OLD_FILE, merge=_merge)

    def load(self) -> tuple[OwnerMap, str]:
        """The map, and a sentence that says why it has no vGPU although there is a file (empty where there is none)."""
        try:
            owner_map = self._file.load()
        except AliquotError as error:
            return OwnerMap(), f"the owner map cannot be read: {error.brief}: no vGPU counts as ours"
        if not self.damaged:
            return owner_map, ""
        return msgspec.structs.replace(owner_map, vgpus=()), (
            f"the owner map {self.damaged} is damaged: vGPUs that exist are kept, and which ones were made here is "
            "not known any more"
        )

    @property
    def damaged(self) -> str:
        """The file that the last load could not understand; empty for none."""
        return next((path for path in (self.path, self._old_path) if path in state_store.unreadable), "")

    def change(self, edit: Callable[[OwnerMap], OwnerMap]) -> OwnerMap:
        """Change the map; the new one is on disk when this returns. A damaged one is set aside first. Raises
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
    """A fresh token."""
    return os.urandom(8).hex()
