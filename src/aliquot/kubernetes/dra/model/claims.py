"""Resource claims: what the scheduler allocated, from the JSON of any served version.

``status.allocation`` is alike in ``v1``, ``v1beta1`` and ``v1beta2``. The versions differ in ``spec`` only, which the
driver does not need: the allocation has its own copy of the configuration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from aliquot.errors import BlockedError
from aliquot.kubernetes.client.object_base import ApiStruct, ObjectMeta

ConfigSource = Literal["FromClass", "FromClaim"]
_NO_ALLOCATION: dict[str, Any] = {}


class UnreadableClaimError(BlockedError):
    """A ResourceClaim has no allocation that the driver understands."""

    code = "DRA_CLAIM"


class ClaimedResult(msgspec.Struct, frozen=True):
    """A device that a claim has."""

    request: str
    """The request, or ``request/alternative`` for one of ``firstAvailable``."""
    pool: str
    device: str
    admin: bool = False
    """Access for administration: the device may be allocated to others too, and is not taken by it."""
    share: str = ""
    """Set if the device is allocated in shares, which Aliquot never offers."""

    @property
    def main_request(self) -> str:
        return self.request.partition("/")[0]


class ClaimConfig(msgspec.Struct, frozen=True):
    """Configuration for the driver, from a device class or the claim."""

    source: str
    """One of ``ConfigSource``."""
    requests: tuple[str, ...]
    """The requests that it is for. Empty for all. A name without alternative includes all alternatives."""
    parameters: Any
    """JSON as the author wrote it. ``device_config`` checks it."""

    def covers(self, result: ClaimedResult) -> bool:
        return not self.requests or bool({result.request, result.main_request} & set(self.requests))


class ClaimAllocation(msgspec.Struct, frozen=True):
    """The devices of this driver that a claim has."""

    uid: str
    namespace: str
    name: str
    results: tuple[ClaimedResult, ...] = ()
    configs: tuple[ClaimConfig, ...] = ()
    """Those of classes first. Of two that cover a result, the later one counts."""

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"

    def config(self, result: ClaimedResult) -> ClaimConfig | None:
        """Return the configuration of a device. None if there is none."""
        return next((each for each in reversed(self.configs) if each.covers(result)), None)


class _Result(ApiStruct, frozen=True):
    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool = False
    share_id: str = msgspec.field(name="shareID", default="")


class _Opaque(ApiStruct, frozen=True):
    driver: str
    parameters: Any = None


class _Config(ApiStruct, frozen=True):
    source: str = "FromClaim"
    requests: tuple[str, ...] = ()
    opaque: _Opaque | None = None


class _Devices(ApiStruct, frozen=True):
    results: tuple[_Result, ...] = ()
    config: tuple[_Config, ...] = ()


class _Allocation(ApiStruct, frozen=True):
    devices: _Devices = _Devices()


class _Status(ApiStruct, frozen=True):
    allocation: _Allocation | None = None


class _Claim(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()


def parse_claim(document: bytes | str | Mapping[str, Any], driver: str) -> ClaimAllocation | None:
    """Return the devices and the configuration of this driver in a claim. None if the claim is not allocated.

    ``results`` is empty if all devices are of other drivers. Raises UnreadableClaimError with the field at fault.
    """
    claim = _decoded(document)
    allocation = claim.status.allocation
    if allocation is None:
        return None
    if not (claim.metadata.uid and claim.metadata.name and claim.metadata.namespace):
        raise _unreadable(_title(claim), "`metadata` lacks the uid, the namespace or the name")
    results = [each for each in allocation.devices.results if each.driver == driver]
    for number, each in enumerate(results):
        if not (each.request and each.pool and each.device):
            where = f"`status.allocation.devices.results[{number}]`"
            raise _unreadable(_title(claim), f"{where} lacks the request, the pool or the device")
    return ClaimAllocation(
        claim.metadata.uid,
        claim.metadata.namespace,
        claim.metadata.name,
        tuple(ClaimedResult(r.request, r.pool, r.device, r.admin_access, r.share_id) for r in results),
        tuple(
            ClaimConfig(each.source, each.requests, each.opaque.parameters)
            for each in allocation.devices.config
            if each.opaque is not None and each.opaque.driver == driver
        ),
    )


def allocated_devices(claims: Collection[ClaimAllocation], pools: Collection[str]) -> frozenset[str]:
    """Return the names of the devices that claims have in these pools. Access for administration takes nothing."""
    return frozenset(
        result.device for claim in claims for result in claim.results if result.pool in pools and not result.admin
    )


def _decoded(document: bytes | str | Mapping[str, Any]) -> _Claim:
    try:
        raw = msgspec.json.decode(document) if isinstance(document, bytes | str) else document
        return msgspec.convert(_without_nulls(raw), _Claim)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(_raw_title(document), str(error)) from error


def _without_nulls(value: Any) -> Any:
    """Drop fields that are null, which Go treats as absent. Those of opaque parameters stay."""
    if isinstance(value, Mapping):
        return {
            name: each if name == "parameters" else _without_nulls(each)
            for name, each in value.items()
            if each is not None
        }
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _title(claim: _Claim) -> str:
    return f"claim {claim.metadata.namespace or '?'}/{claim.metadata.name or '?'}"


def _raw_title(document: bytes | str | Mapping[str, Any]) -> str:
    metadata = document.get("metadata") if isinstance(document, Mapping) else None
    if isinstance(metadata, Mapping):
        return f"claim {metadata.get('namespace', '?')}/{metadata.get('name', '?')}"
    return "a claim"


def _unreadable(title: str, why: str) -> UnreadableClaimError:
    return UnreadableClaimError(f"{title} cannot be prepared: {why}", next_step="kubectl get resourceclaims -A -o yaml")
