"""The prepared claims, in memory and on disk. Each change is on disk before it takes effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.dra.agent.claim_types import AllocatedClaim, AllocatedDevice
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference
from aliquot.node.holders.prepared_claims import (
    PASSED_THROUGH,
    ClaimRecords,
    CreatedInstance,
    PreparedClaimFile,
    RecordedClaim,
    RecordedDevice,
)


class ClaimStore:
    """The prepared claims of a node. One agent at a time has it, because it holds the lock of its role.

    ``problem`` is why the last write failed; empty if it did not.
    """

    def __init__(self, directory: str) -> None:
        self._file = PreparedClaimFile(directory)
        self._lock = asyncio.Lock()
        self.records = self._file.load()
        self.problem = ""

    def get(self, uid: str) -> RecordedClaim | None:
        return next((each for each in self.records.claims if each.uid == uid), None)

    async def add(self, claims: Sequence[RecordedClaim]) -> None:
        """Record claims, in place of older records of the same uids. Raises StorageError."""
        await self.replace({each.uid for each in claims}, claims)

    async def remove(self, uids: Collection[str]) -> None:
        """Forget claims. Their instances stay. Raises StorageError."""
        await self.replace(uids, ())

    async def replace(self, uids: Collection[str], claims: Sequence[RecordedClaim]) -> None:
        """Forget the claims with these uids, and record others. Raises StorageError."""
        await self._change(
            lambda now: msgspec.structs.replace(now, claims=(*(c for c in now.claims if c.uid not in uids), *claims))
        )

    async def add_created(self, created: Iterable[CreatedInstance], boot: str) -> None:
        """Record instances before they are created, so that a killed agent knows them again. Raises StorageError."""
        found = tuple(created)

        def add(now: ClaimRecords) -> ClaimRecords:
            now = now.in_boot(boot)
            return msgspec.structs.replace(now, created=tuple(dict.fromkeys((*now.created, *found))))

        await self._change(add)

    async def forget_destroyed(self, inventory: Inventory) -> None:
        """Forget created instances that no longer exist. A GPU that is not in the inventory keeps its own."""
        present = {(g.uuid, i.profile_id, i.placement) for g in inventory.gpus for i in g.instances}
        known = {gpu.uuid for gpu in inventory.gpus if not gpu.lost}
        stale = {c for c in self.records.created if c.gpu in known and msgspec.structs.astuple(c) not in present}
        if stale:
            await self._change(
                lambda now: msgspec.structs.replace(now, created=tuple(c for c in now.created if c not in stale))
            )

    async def _change(self, change: Callable[[ClaimRecords], ClaimRecords]) -> None:
        async with self._lock:
            new = change(self.records)
            if new == self.records:
                return
            saving = asyncio.ensure_future(asyncio.to_thread(self._file.save, new))
            try:
                await asyncio.shield(saving)
            except asyncio.CancelledError:
                await asyncio.wait((saving,))  # the file may have changed: memory must agree with it
                if saving.exception() is None:
                    self.records = new
                raise
            except Exception as error:
                self.problem = str(error)
                raise
            self.records, self.problem = new, ""


def allocation_of(recorded: RecordedClaim) -> AllocatedClaim:
    """Return the allocation for which a claim was prepared."""
    reference = ClaimReference(recorded.uid, recorded.namespace, recorded.name)
    devices = tuple(AllocatedDevice(d.requests, d.pool, d.device, d.shared) for d in recorded.devices)
    return AllocatedClaim(reference, devices, recorded.pod_claim)


def exists(claim: RecordedClaim, inventory: Inventory) -> bool:
    """Report whether all devices of a prepared claim exist at their places."""
    return all(device_exists(device, inventory) for device in claim.devices)


def device_exists(device: RecordedDevice, inventory: Inventory) -> bool:
    """Report whether a device of a prepared claim exists at its place."""
    gpu = next((gpu for gpu in inventory.gpus if gpu.identity == device.gpu), None)
    if gpu is None or gpu.lost:
        return False
    if device.vm == PASSED_THROUGH:
        return gpu.passthrough
    if device.vm:
        return any(vgpu.uuid == device.uuid for vgpu in gpu.vgpus)
    parts = {
        c.uuid
        for i in gpu.instances
        if (i.profile_id, i.placement) == (device.profile_id, device.placement)
        for c in i.compute_instances
    }
    return device.uuid in (parts if device.placement else {gpu.uuid})
