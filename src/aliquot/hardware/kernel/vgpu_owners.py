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
from aliquot.foundation import atomic_file, state_store
from aliquot.foundation.state_store import StateFile
from aliquot.hardware.kernel.framework import Found

FILE = "vgpu-owners.json"
FORMER = "owners.json"
_same_process = Lock()


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """A vGPU. ``number`` is its function's (-1: the GPU itself), which finds the function again where addresses have
    moved; ``gpu`` the GPU's UUID; ``claim`` empty for one that was found and not made here.
    """

    function: str
    type_id: int
    type: str = ""
    uuid: str = ""
    claim: str = ""
    pci: str = ""
    gpu: str = ""
    number: int = -1
    gpu_instance: int | None = None
    boot: str = ""

    def carries(self, found: Found) -> bool:
        """Whether this is the entry of a vGPU that the kernel shows."""
        same = (self.function, self.type_id) == (found.function, found.type_id)
        return same and found.uuid in ("", self.uuid)


class Handed(msgspec.Struct, frozen=True, omit_defaults=True):
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


class Book(msgspec.Struct, frozen=True):
    """The whole map."""

    vgpus: tuple[Owner, ...] = ()
    handed: tuple[Handed, ...] = ()

    def owner(self, found: Found, boot: str) -> Owner | None:
        """The entry of a vGPU that exists: one of this boot, else one of an earlier boot, without its claim."""
        hits = [owner for owner in self.vgpus if owner.carries(found)]
        for owner in hits:
            if owner.boot == boot:
                return owner
        return msgspec.structs.replace(hits[-1], claim="") if hits else None

    def of_function(self, function: str) -> Handed | None:
        return next((h for h in self.handed if h.function == function), None)

    def with_owner(self, owner: Owner) -> Book:
        """With this entry in the place of every other that it makes untrue."""
        kept = [o for o in self.vgpus if not _replaced(o, owner)]
        return msgspec.structs.replace(self, vgpus=(*kept, owner))

    def without(self, owners: Iterable[Owner]) -> Book:
        gone = set(owners)
        return msgspec.structs.replace(self, vgpus=tuple(o for o in self.vgpus if o not in gone))

    def with_handed(self, handed: Handed) -> Book:
        return msgspec.structs.replace(self, handed=(*self._others(handed.function), handed))

    def without_handed(self, function: str) -> Book:
        return msgspec.structs.replace(self, handed=self._others(function))

    def _others(self, function: str) -> tuple[Handed, ...]:
        return tuple(h for h in self.handed if h.function != function)


def _replaced(old: Owner, new: Owner) -> bool:
    """A virtual function carries one vGPU; of the GPU itself (number -1) there may be many. A UUID is one vGPU's."""
    return (old.function == new.function and new.number >= 0) or bool(new.uuid and old.uuid == new.uuid)


def _merged(ours: Book, older: Book) -> Book:
    """Both maps; where they speak of the same function, an older release changed it since and did not see ours."""
    book = ours
    for owner in older.vgpus:
        book = book.with_owner(owner)
    for handed in older.handed:
        book = book.with_handed(handed)
    return book


class Owners:
    """The map in ``directory``. Threads and processes may change it at once; each change reads it afresh."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE)
        self._former = os.path.join(directory, FORMER)
        """Also the name of the lock, which releases before the state store take as well."""
        self._file = StateFile(self.path, "vgpu-owners", Book, Book(), former=FORMER, merge=_merged)

    def load(self) -> tuple[Book, str]:
        """The map, and a sentence that says why it has no vGPU although there is a file (empty where there is none)."""
        try:
            book = self._file.load()
        except AliquotError as error:
            return Book(), f"the owner map cannot be read: {error.brief}: no vGPU counts as ours"
        if not self.damaged:
            return book, ""
        return msgspec.structs.replace(book, vgpus=()), (
            f"the owner map {self.damaged} is damaged: vGPUs that exist are kept, and which ones were made here is "
            "not known any more"
        )

    @property
    def damaged(self) -> str:
        """The file that the last load could not understand; empty for none."""
        return next((path for path in (self.path, self._former) if path in state_store.unreadable), "")

    def change(self, edit: Callable[[Book], Book]) -> Book:
        """Change the map; the new one is on disk when this returns. A damaged one is set aside first. Raises
        StorageError.
        """
        with _same_process, atomic_file.alone(self._former):
            book, fault = self.load()
            changed = edit(book)
            if changed != book or fault:
                self._file.save(changed)
            return changed


def claim() -> str:
    """A fresh token."""
    return os.urandom(8).hex()
