"""The driver's own list of GPU instance and compute instance profiles, read through NVML."""

from __future__ import annotations

from ctypes import Structure, byref, c_char, c_uint, c_ulonglong
from typing import Any

import msgspec

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.placement import Placement
from aliquot.hardware.nvml.session import NvmlSession

_LAST_INDEX = 64
_MAX_PLACEMENTS = 64
_ARCHITECTURES = {7: "ampere", 8: "ada", 9: "hopper", 10: "blackwell"}

CAPS_P2P = 1
CAPS_GFX = 2
_GFX_INDEXES = frozenset({10, 11, 12, 17})
_SUFFIX_BY_INDEX = {7: "+me", 8: "+me", 13: "-me", 14: "-me", 15: "+me.all", 16: "+me.all"}


class _ProfileInfo3(Structure):
    """The structure nvmlGpuInstanceProfileInfo_v3_t, which nvidia-ml-py lacks: ``capabilities`` distinguishes gfx and
    P2P profiles.
    """

    _fields_ = [
        ("version", c_uint),
        ("id", c_uint),
        ("sliceCount", c_uint),
        ("instanceCount", c_uint),
        ("multiprocessorCount", c_uint),
        ("copyEngineCount", c_uint),
        ("decoderCount", c_uint),
        ("encoderCount", c_uint),
        ("jpegCount", c_uint),
        ("ofaCount", c_uint),
        ("memorySizeMB", c_ulonglong),
        ("name", c_char * 96),
        ("capabilities", c_uint),
    ]


_PROFILE_INFO_3 = 3 << 24 | 152
"""NVML's version word: the version in the top byte, the structure's size below."""


class ComputeRow(msgspec.Struct, frozen=True):
    """A compute instance profile as the driver describes it."""

    index: int
    id: int
    name: str
    slices: int
    count: int
    sm: int
    placements: tuple[Placement, ...] | None = None
    """None if the driver does not list them."""


class GpuProfileRow(msgspec.Struct, frozen=True):
    """A GPU instance profile as the driver describes it."""

    index: int
    id: int
    name: str
    """Empty if the driver does not report names."""
    slices: int
    count: int
    sm: int
    engines: dict[str, int]
    memory_mib: int
    gfx: bool
    p2p: bool
    placements: tuple[Placement, ...] | None = None


def read_rows(session: NvmlSession, device: Any, *, placements: bool) -> tuple[GpuProfileRow, ...]:
    """Return the GPU's profiles, by NVML index; none if the driver lists none (R535 with MIG mode off)."""
    rows: list[GpuProfileRow] = []
    for index in range(_LAST_INDEX):
        code, info = _profile_info(session, device, index)
        if code == codes.INVALID_ARGUMENT:
            break  # past the library's last index
        if code in (codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND):
            continue  # an index that this GPU does not have
        if code != codes.SUCCESS:
            raise codes.error(code, f"reading GPU instance profile {index}")
        row = _row(index, info)
        if placements:
            row = msgspec.structs.replace(row, placements=_placements(session, device, row.id))
        rows.append(row)
    return tuple(rows)


def read_compute_rows(session: NvmlSession, instance: Any) -> tuple[ComputeRow, ...]:
    """Return the compute instance profiles of an existing GPU instance (``instance`` is its handle)."""
    nv = session.nv
    rows: list[ComputeRow] = []
    for index in range(_LAST_INDEX):
        code, info = session.try_call(nv.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, index, 0)
        if code == codes.FUNCTION_NOT_FOUND:
            code, info = session.try_call(
                nv.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, index, 0, version=1
            )
        if code == codes.INVALID_ARGUMENT:
            break
        if code != codes.SUCCESS:
            continue
        array, count = (nv.c_nvmlComputeInstancePlacement_t * _MAX_PLACEMENTS)(), c_uint(_MAX_PLACEMENTS)
        listing = nv.nvmlGpuInstanceGetComputeInstancePossiblePlacements
        placement_code, _ = session.try_call(listing, instance, info.id, array, byref(count))
        placements = (
            tuple(Placement(p.start, p.size) for p in array[: count.value]) if placement_code == codes.SUCCESS else None
        )
        rows.append(
            ComputeRow(
                index=index,
                id=info.id,
                name=_text(getattr(info, "name", b"")),
                slices=info.sliceCount,
                count=info.instanceCount,
                sm=info.multiprocessorCount,
                placements=placements,
            )
        )
    return tuple(rows)


def architecture(session: NvmlSession, device: Any) -> str:
    """Return the GPU's architecture in lowercase, "" if NVML does not report a known one."""
    _, number = session.try_call(session.nv.nvmlDeviceGetArchitecture, device)
    return _ARCHITECTURES.get(number, "") if isinstance(number, int) else ""


def memory_mib(session: NvmlSession, device: Any) -> int | None:
    """Return the GPU's memory in MiB, None if NVML does not report it."""
    code, memory = session.try_call(session.nv.nvmlDeviceGetMemoryInfo, device)
    return int(memory.total) >> 20 if code == codes.SUCCESS else None


def _profile_info(session: NvmlSession, device: Any, index: int) -> tuple[int, Any]:
    """Return version 3 of the profile information if the driver knows it, else 2, else 1."""
    if session.profile_info_version == 3:
        info = _ProfileInfo3(version=_PROFILE_INFO_3)
        code = session.raw("nvmlDeviceGetGpuInstanceProfileInfoV", device, c_uint(index), byref(info))
        if code not in (codes.FUNCTION_NOT_FOUND, codes.ARGUMENT_VERSION_MISMATCH):
            return code, info
        session.profile_info_version = 2
    read = session.nv.nvmlDeviceGetGpuInstanceProfileInfo
    if session.profile_info_version == 2:
        code, info = session.try_call(read, device, index)
        if code not in (codes.FUNCTION_NOT_FOUND, codes.ARGUMENT_VERSION_MISMATCH):
            return code, info
        session.profile_info_version = 1
    return session.try_call(read, device, index, version=1)


def _row(index: int, info: Any) -> GpuProfileRow:
    capabilities = getattr(info, "capabilities", None)
    gfx = index in _GFX_INDEXES or bool((capabilities or 0) & CAPS_GFX)
    p2p = bool(capabilities & CAPS_P2P) if capabilities is not None else bool(info.isP2pSupported)
    return GpuProfileRow(
        index=index,
        id=info.id,
        name=_text(getattr(info, "name", b"")),
        slices=info.sliceCount,
        count=info.instanceCount,
        sm=info.multiprocessorCount,
        engines={
            "ce": info.copyEngineCount,
            "dec": info.decoderCount,
            "enc": info.encoderCount,
            "jpeg": info.jpegCount,
            "ofa": info.ofaCount,
        },
        memory_mib=info.memorySizeMB,
        gfx=gfx,
        p2p=p2p,
    )


def _placements(session: NvmlSession, device: Any, profile_id: int) -> tuple[Placement, ...] | None:
    """Return the possible placements of a profile on an empty GPU. None if the driver does not list them: MIG mode is
    off, or the caller has no permission (this list is privileged, the profile list is not).
    """
    nv = session.nv
    array, count = (nv.c_nvmlGpuInstancePlacement_t * _MAX_PLACEMENTS)(), c_uint(_MAX_PLACEMENTS)
    listing = nv.nvmlDeviceGetGpuInstancePossiblePlacements
    code, _ = session.try_call(listing, device, profile_id, array, byref(count))
    if code != codes.SUCCESS or not count.value:
        return None
    return tuple(sorted(Placement(p.start, p.size) for p in array[: count.value]))


def _text(name: Any) -> str:
    """Return the name of a profile without the prefix that NVML prints (``MIG 1g.5gb``)."""
    return (name.decode(errors="replace") if isinstance(name, bytes) else str(name)).removeprefix("MIG ").strip()


def suffix_of_index(index: int) -> str:
    """Return the attribute part of a profile's name from its NVML index, for drivers that do not report names (before
    R510).
    """
    return "+gfx" if index in _GFX_INDEXES else _SUFFIX_BY_INDEX.get(index, "")
