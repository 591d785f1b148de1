"""Usage and licenses of running vGPUs through NVML, on a host with the vGPU driver. Reads only.

A GPU without running vGPUs costs one call. Otherwise two are made for the GPU and six for each vGPU.
"""

from __future__ import annotations

from calendar import timegm
from collections.abc import Iterator
from contextlib import suppress
from ctypes import byref, c_uint, c_ulonglong
from typing import Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.vgpu_usage import LicenseState, VgpuUsage
from aliquot.errors import AliquotError
from aliquot.hardware.nvml.reader import NvmlReader

Shares = tuple[float, float, float, float]
"""Multiprocessors, memory accesses, encoder, decoder; 0 to 1."""

_STATES: dict[int, LicenseState] = {
    1: "uninitialized",
    2: "unlicensed-unrestricted",
    3: "unlicensed-restricted",
    4: "unlicensed",
    5: "licensed",
}
"""NVML_GRID_LICENSE_STATE_*."""
_EXPIRY_VALID = 2
_NO_SHARES = (None,) * 4


class VgpuUsageReader:
    """The usage of vGPUs in one session. Shares cover the time since the last read."""

    def __init__(self, reader: NvmlReader) -> None:
        self._reader = reader
        self._session = reader.session
        self._seen: dict[str, int] = {}
        """Time stamp of the newest share of each GPU, in the driver's microseconds."""

    def read(self) -> tuple[VgpuUsage, ...]:
        """Return the usage of all running vGPUs. What the driver does not report is left out."""
        found: list[VgpuUsage] = []
        for nvml_gpu, _ in self._reader.present_gpus():
            with suppress(AliquotError):  # the GPU fell off the bus
                found += self._of_gpu(nvml_gpu.handle, nvml_gpu.pci)
        return tuple(found)

    def _of_gpu(self, handle: Any, pci: str) -> Iterator[VgpuUsage]:
        nv, session = self._session.nv, self._session
        code, numbers = session.try_call(nv.nvmlDeviceGetActiveVgpus, handle)
        if code != codes.SUCCESS or not numbers:
            self._seen.pop(pci, None)
            return
        shares = self._shares(handle, pci)
        for number in numbers:
            code, type_id = session.try_call(nv.nvmlVgpuInstanceGetType, number)
            if code != codes.SUCCESS:
                continue  # the VM has ended
            compute, memory, encoder, decoder = shares.get(number, _NO_SHARES)
            license_state, expires = self._license(number)
            yield VgpuUsage(
                pci,
                int(type_id),
                self._text(nv.nvmlVgpuInstanceGetUUID, number),
                self._text(nv.nvmlVgpuInstanceGetMdevUUID, number),
                self._vm(number),
                compute,
                memory,
                encoder,
                decoder,
                self._memory_mib(number),
                license_state,
                expires,
            )

    def _shares(self, handle: Any, pci: str) -> dict[int, Shares]:
        """Return the shares by vGPU; none if the driver has no newer sample, or does not report them."""
        nv = self._session.nv
        code, samples = self._session.try_call(nv.nvmlDeviceGetVgpuUtilization, handle, self._seen.get(pci, 0))
        if code != codes.SUCCESS:
            return {}
        found: dict[int, Shares] = {}
        for each in samples:
            values = (each.smUtil, each.memUtil, each.encUtil, each.decUtil)
            compute, memory, encoder, decoder = (min(100, value.uiVal) / 100 for value in values)
            found[each.vgpuInstance] = (compute, memory, encoder, decoder)
            self._seen[pci] = max(self._seen.get(pci, 0), each.timeStamp)
        return found

    def _text(self, function: Any, number: int) -> str:
        code, text = self._session.try_call(function, number)
        return str(text).lower() if code == codes.SUCCESS else ""

    def _vm(self, number: int) -> str:
        """Return the VM's UUID. A hypervisor that counts its VMs instead has none."""
        nv = self._session.nv
        code, found = self._session.try_call(nv.nvmlVgpuInstanceGetVmID, number)
        if code != codes.SUCCESS or found[1] != nv.NVML_VGPU_VM_ID_UUID:
            return ""
        return (found[0].decode() if isinstance(found[0], bytes) else str(found[0])).lower()

    def _memory_mib(self, number: int) -> int | None:
        """Return the used frame buffer. nvidia-ml-py has room for 4 of the 8 bytes that NVML writes."""
        used = c_ulonglong(0)
        code = self._session.raw("nvmlVgpuInstanceGetFbUsage", c_uint(number), byref(used))
        return used.value >> 20 if code == codes.SUCCESS else None

    def _license(self, number: int) -> tuple[LicenseState, float | None]:
        """Return the state of the guest's license and when it expires. Drivers before R510 only know whether it has
        one.
        """
        nv = self._session.nv
        code, found = self._session.try_call(nv.nvmlVgpuInstanceGetLicenseInfo_v2, number)
        if code == codes.FUNCTION_NOT_FOUND:
            code, licensed = self._session.try_call(nv.nvmlVgpuInstanceGetLicenseStatus, number)
            return ("" if code != codes.SUCCESS else "licensed" if licensed else "unlicensed"), None
        if code != codes.SUCCESS:
            return "", None
        return _STATES.get(found.currentState, ""), _expiry(found.licenseExpiry)


def _expiry(until: Any) -> float | None:
    """Return a license's end in UTC; None without one, or if its date does not exist."""
    if until.status != _EXPIRY_VALID:
        return None
    try:
        return float(timegm((until.year, until.month, until.day, until.hour, until.min, until.sec)))
    except ValueError:
        return None
