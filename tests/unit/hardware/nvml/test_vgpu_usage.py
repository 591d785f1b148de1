"""The end of a guest's license as the driver writes it: a date, or none."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aliquot.core.model import nvml_return_codes as codes
from aliquot.hardware.nvml.reader import NvmlReader
from aliquot.hardware.nvml.vgpu_usage import VgpuUsageReader

PCI = "0000:01:00.0"


class Session:
    """A session with one running vGPU. What is not in ``nv`` is not supported."""

    def __init__(self, expiry: tuple[int, ...], status: int) -> None:
        year, month, day, hour, minute, second = expiry
        until = SimpleNamespace(year=year, month=month, day=day, hour=hour, min=minute, sec=second, status=status)
        answers: dict[str, Any] = {
            "nvmlDeviceGetActiveVgpus": [7],
            "nvmlVgpuInstanceGetType": 746,
            "nvmlVgpuInstanceGetLicenseInfo_v2": SimpleNamespace(currentState=5, licenseExpiry=until),
        }
        self.nv = SimpleNamespace(NVML_VGPU_VM_ID_UUID=1, **answers)
        for other in (
            "DeviceGetVgpuUtilization",
            "VgpuInstanceGetUUID",
            "VgpuInstanceGetMdevUUID",
            "VgpuInstanceGetVmID",
        ):
            setattr(self.nv, f"nvml{other}", None)

    def try_call(self, answer: Any, *_: object) -> tuple[int, Any]:
        return (codes.NOT_SUPPORTED, None) if answer is None else (codes.SUCCESS, answer)

    def raw(self, *_: object) -> int:
        return codes.NOT_SUPPORTED


class Reader:
    def __init__(self, session: Session) -> None:
        self.session = session

    def present_gpus(self) -> list[tuple[SimpleNamespace, Callable[[], None] | None]]:
        return [(SimpleNamespace(handle=1, pci=PCI), None)]


@pytest.mark.parametrize(
    ("expiry", "status", "expires"),
    [
        ((2026, 12, 1, 0, 0, 30), 2, 1796083230.0),
        ((0, 0, 0, 0, 0, 0), 2, None),
        ((2026, 13, 1, 0, 0, 0), 2, None),
        ((2026, 12, 1, 0, 0, 0), 1, None),
        ((0, 0, 0, 0, 0, 0), 4, None),
    ],
    ids=["valid", "empty", "no-month", "invalid", "permanent"],
)
def test_an_expiry_that_is_no_date_is_absent(expiry: tuple[int, ...], status: int, expires: float | None) -> None:
    (found,) = VgpuUsageReader(cast(NvmlReader, Reader(Session(expiry, status)))).read()
    assert (found.license, found.license_expires) == ("licensed", expires)
