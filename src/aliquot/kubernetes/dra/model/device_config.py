"""Opaque configuration in claims: NVIDIA's kinds, and which of their settings are refused.

The kinds are those of ``resource.nvidia.com/v1beta1``:

- ``GpuConfig`` and ``MigDeviceConfig`` are accepted without ``sharing``.
- Time slicing is accepted for a GPU with the interval ``Default``, which the driver has anyway. Others are refused.
- Time slicing of a MIG device is accepted. It has no settings: the containers of a claim share their device.
- MPS is refused, since no MPS control daemon is started. A MIG profile divides the GPU instead.
- ``VfioDeviceConfig`` is accepted without settings. Every other kind or version is refused.

A ``GpuConfig`` for a MIG device, a ``MigDeviceConfig`` for a whole GPU, or a ``VfioDeviceConfig`` for anything but a
whole GPU for a VM is refused if it is from a claim. From a device class, it is ignored for devices of the other kind.

Source: kubernetes-sigs/dra-driver-nvidia-gpu 9593204, api/nvidia.com/resource/v1beta1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aliquot.errors import AliquotError, BlockedError
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.kinds.claim_status import AllocationResult

NVIDIA_API = "resource.nvidia.com/v1beta1"
_GPU, _MIG, _VFIO = "GpuConfig", "MigDeviceConfig", "VfioDeviceConfig"
_FIELDS = {"apiVersion", "kind", "sharing"}
_SHARING_FIELDS = {"strategy", "timeSlicingConfig", "mpsConfig"}
_INTERVALS = ("Default", "Short", "Medium", "Long")


class AdminAccessError(BlockedError):
    """A claim requests access for administration, and this node gives it to no claim."""

    code = "DRA_ADMIN_ACCESS"


class DeviceConfigError(BlockedError):
    """The configuration for a device in a claim or device class is invalid, or of a kind that Aliquot does not have."""

    code = "DRA_CONFIG"


class SharingRefusedError(BlockedError):
    """A claim requests sharing by MPS, or a time slice, which Aliquot does not set."""

    code = "DRA_SHARING"


class SharedAllocationError(BlockedError):
    """A device is allocated in shares (consumable capacity), which Aliquot never offers."""

    code = "DRA_SHARE"


def check_claim(claim: ResourceClaim, driver: str, *, monitoring: bool = False) -> None:
    """Refuse what Aliquot does not do for the devices of its driver. ``monitoring`` permits access for administration.

    Raises the first refusal, with the others as details.
    """
    found = list(_refusals(claim, driver, monitoring))
    if found:
        found[0].details += tuple(each.brief for each in found[1:])
        raise found[0]


def _refusals(claim: ResourceClaim, driver: str, monitoring: bool) -> Iterator[AliquotError]:
    results = [each for each in claim.results if each.driver == driver]
    for result in results:
        if result.admin_access and not monitoring:
            yield AdminAccessError(
                f"{claim}: request {result.request} has `adminAccess`, which this node gives to no claim",
                next_step="remove adminAccess from the request",
            )
        if result.share_id:
            yield SharedAllocationError(
                f"{claim}: request {result.request} has a share of device {result.device}, which is not divisible",
                next_step="kubectl get resourceslices -o yaml",
            )
    for number, config in enumerate(claim.configs):
        if config.opaque is not None and config.opaque.driver == driver:
            where = f"{claim}: `status.allocation.devices.config[{number}].opaque.parameters`"
            covered = [each for each in results if config.covers(each)]
            yield from _config_refusals(where, config.source, config.opaque.parameters, covered)


def _config_refusals(
    where: str, source: str, found: object, results: Sequence[AllocationResult]
) -> Iterator[AliquotError]:
    if not isinstance(found, Mapping):
        yield _invalid(f"{where} is not an object")
        return
    version, kind = found.get("apiVersion"), found.get("kind")
    if version != NVIDIA_API or kind not in (_GPU, _MIG, _VFIO):
        yield _invalid(f"{where} is {kind!r} of {version!r}, not {_GPU} or {_MIG} of {NVIDIA_API}")
        return
    if kind == _VFIO:
        yield from _vfio_refusals(where, found, results if source == "FromClaim" else ())
        return
    unknown = sorted(str(name) for name in found.keys() - _FIELDS)
    if unknown:
        yield _invalid(f"{where} has unknown fields: {', '.join(unknown)}")
    for result in results:
        if source == "FromClaim" and _is_mig(result.device) != (kind == _MIG):
            yield _invalid(f"{where} is a {kind}, but request {result.request} has device {result.device}")
    sharing = found.get("sharing")
    if sharing is not None:
        yield from _sharing_refusals(f"{where}.sharing", sharing, str(kind))


def _vfio_refusals(
    where: str, found: Mapping[str, object], results: Sequence[AllocationResult]
) -> Iterator[AliquotError]:
    """Refuse settings of a whole GPU for a VM: it has none, and nothing else is passed through."""
    unknown = sorted(str(name) for name in found.keys() - {"apiVersion", "kind"})
    if unknown:
        yield _invalid(f"{where} has unknown fields: {', '.join(unknown)}")
    for result in results:
        if not result.device.endswith("-vfio"):
            yield _invalid(f"{where} is a {_VFIO}, but request {result.request} has device {result.device}")


def _sharing_refusals(where: str, sharing: object, kind: str) -> Iterator[AliquotError]:
    if not isinstance(sharing, Mapping):
        yield _invalid(f"{where} is not an object")
        return
    unknown = sorted(str(name) for name in sharing.keys() - _SHARING_FIELDS)
    if unknown:
        yield _invalid(f"{where} has unknown fields: {', '.join(unknown)}")
    strategy = sharing.get("strategy")
    if strategy == "MPS":
        yield SharingRefusedError(
            f"{where}.strategy is MPS, and no MPS control daemon is started",
            next_step="remove the field sharing, or request a MIG profile",
        )
    elif strategy == "TimeSlicing":
        yield from _time_slice_refusals(where, sharing, kind)
    else:
        yield _invalid(f"{where}.strategy is {strategy!r}, not TimeSlicing or MPS")


def _time_slice_refusals(where: str, sharing: Mapping[str, object], kind: str) -> Iterator[AliquotError]:
    settings = sharing.get("timeSlicingConfig")
    if settings is None:
        return
    if kind == _MIG or not isinstance(settings, Mapping) or settings.keys() - {"interval"}:
        yield _invalid(f"{where}.timeSlicingConfig is not valid for a {kind}")
        return
    interval = settings.get("interval", "Default")
    if interval not in _INTERVALS:
        yield _invalid(f"{where}.timeSlicingConfig.interval is {interval!r}, not {', '.join(_INTERVALS)}")
    elif interval != "Default":
        yield SharingRefusedError(
            f"{where}.timeSlicingConfig.interval is {interval}, and time slices are not changed",
            next_step="set the interval to Default",
        )


def _is_mig(device: str) -> bool:
    return "-mig-" in device


def _invalid(brief: str) -> DeviceConfigError:
    return DeviceConfigError(brief, next_step="kubectl explain resourceclaim.spec.devices.config")
