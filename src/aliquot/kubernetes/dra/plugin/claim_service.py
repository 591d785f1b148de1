"""Values of the calls that kubelet makes to a DRA driver: claims, answers, and the service that gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from aliquot.errors import AliquotError


class ClaimReference(msgspec.Struct, frozen=True):
    """A ResourceClaim as kubelet names it."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


class PreparedDevice(msgspec.Struct, frozen=True):
    """A device that is ready for the containers of a claim."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]


class PreparedClaim(msgspec.Struct, frozen=True):
    """A claim whose devices are ready."""

    uid: str
    devices: tuple[PreparedDevice, ...]


class DeviceState(msgspec.Struct, frozen=True):
    """The health of a device. ``message`` says what is wrong with one that is not healthy."""

    healthy: bool
    message: str = ""


class ClaimService(Protocol):
    """Prepares and releases claims. Both answers have every uid of the call."""

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, PreparedClaim | AliquotError]: ...

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, AliquotError | None]: ...
