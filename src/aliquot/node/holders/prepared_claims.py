"""ResourceClaims that are prepared on this host, on disk: ``prepared-claims.json`` beside the journal.

The DRA agent writes the record before kubelet gets an answer. From then on, every program holds the claim's devices.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from aliquot.core.model.claims import Claim
from aliquot.core.model.inventory import Gpu, Holder
from aliquot.errors import StorageDeniedError
from aliquot.foundation.callbacks import Report
from aliquot.foundation.state_store import StateFile

FILE = "prepared-claims.json"
PASSED_THROUGH = "vfio"
"""The kind of a whole GPU for a VM, as device classes name it too."""


class RecordedDevice(msgspec.Struct, frozen=True):
    """A device of a prepared claim."""

    requests: tuple[str, ...]
    pool: str
    device: str
    """The name of the device in its pool."""
    gpu: str
    """The UUID of the GPU, or its PCI address if no driver has reported one."""
    profile_id: int = -1
    """-1 for a whole GPU."""
    placement: str = ""
    """``start:size`` in memory slices; empty for a whole GPU and a time-sliced vGPU."""
    uuid: str = ""
    """The UUID of the MIG device, of the vGPU, or of the GPU."""
    cdi_ids: tuple[str, ...] = ()
    shared: bool = False
    """True for admin access, which does not hold the device."""
    vm: str = ""
    """``vfio`` for a whole GPU for a VM, the short name of the type for a vGPU. Empty for a device of containers."""
    function: str = ""
    """The PCI address that a VM opens. Empty for an mdev, which has only ``uuid``."""
    vfio_files: tuple[str, ...] = ()
    """The files through which a VM opens the device, in the boot of the claim."""


class RecordedClaim(msgspec.Struct, frozen=True):
    """A prepared claim. ``boot`` is the id of the boot in which its devices were created or found."""

    uid: str
    namespace: str
    name: str
    boot: str
    devices: tuple[RecordedDevice, ...]
    pod_claim: str = ""
    """The pod's name for a claim that was made from a template; empty for a claim that pods name themselves."""

    @property
    def holder(self) -> Holder:
        return Holder("claim", f"{self.namespace}/{self.name}")


class CreatedInstance(msgspec.Struct, frozen=True):
    """A GPU instance that was created for a claim.

    It stays after the claim, and may be destroyed once its room is needed.
    """

    gpu: str
    profile_id: int
    placement: str


class ClaimRecords(msgspec.Struct, frozen=True):
    """The content of the file."""

    claims: tuple[RecordedClaim, ...] = ()
    created: tuple[CreatedInstance, ...] = ()
    created_boot: str = ""
    """The id of the boot in which they were created. A reboot destroys all instances."""

    def in_boot(self, boot: str) -> ClaimRecords:
        """Return the records as they count in a boot: an instance of an earlier one is not ours, although it may look
        the same.
        """
        return self if self.created_boot == boot else msgspec.structs.replace(self, created=(), created_boot=boot)


class PreparedClaimFile(StateFile[ClaimRecords]):
    """The file in one directory. Only the DRA agent writes it."""

    def __init__(self, directory: str) -> None:
        super().__init__(os.path.join(directory, FILE), "prepared-claims", ClaimRecords, ClaimRecords())


def claims_in(directory: str, report: Report) -> Callable[[Sequence[Gpu]], Sequence[Claim]]:
    """Return the reader of the claims that hold devices of a host.

    A user who may not read the file may change nothing either: this is reported, once. Any other failure raises
    StorageError, as a claimed device must not look free.
    """
    file = PreparedClaimFile(directory)
    reported = False

    def claims(gpus: Sequence[Gpu]) -> Sequence[Claim]:
        nonlocal reported
        try:
            found = file.load().claims
        except StorageDeniedError as error:
            if not reported:
                report(f"note     the prepared ResourceClaims are not shown: {error.brief}")
            reported = True
            return ()
        return tuple(
            Claim(each.holder, held)
            for each in found
            if (held := tuple(d.uuid for d in each.devices if not d.shared and _is_there(d, gpus)))
        )

    return claims


def _is_there(device: RecordedDevice, gpus: Sequence[Gpu]) -> bool:
    """Report whether a claim has its device now. A GPU that a reboot took back from a VM has no holder for it."""
    return device.vm != PASSED_THROUGH or any(gpu.identity == device.gpu and gpu.passthrough for gpu in gpus)
