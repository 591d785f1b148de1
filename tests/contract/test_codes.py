"""Error codes: each code that NVML can return becomes one clear error with a next step."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.core.model import nvml_return_codes as codes
from aliquot.errors import (
    AliquotError,
    GpuLostError,
    HardwareError,
    InUseError,
    NoDriverError,
    PermissionDeniedError,
)
from aliquot.hardware.nvml import binding as nvml_binding

BINDING: Any = nvml_binding.private_copy()
KNOWN = {value: name for name, value in vars(BINDING).items() if name.startswith("NVML_ERROR_")}


NEWER_THAN_THE_OLDEST_BINDING = {30}


def test_the_table_has_exactly_the_codes_of_nvml() -> None:
    assert len(KNOWN) >= 30
    assert set(codes.TABLE) - NEWER_THAN_THE_OLDEST_BINDING == set(KNOWN) - NEWER_THAN_THE_OLDEST_BINDING


@pytest.mark.parametrize("code", sorted(KNOWN), ids=lambda c: KNOWN[c])
def test_each_says_what_failed_and_what_to_do(code: int) -> None:
    error = codes.error(code, "creating 3g.20gb at 4:4 on 0000:07:00.0", gpu="0000:07:00.0")
    assert error.brief.startswith("creating 3g.20gb at 4:4 on 0000:07:00.0 failed: ")
    assert codes.name(code) == KNOWN[code].removeprefix("NVML_ERROR_")
    assert f"NVML return code {code} ({codes.name(code)})" in error.details
    assert error.next_step
    assert "{" not in error.next_step
    if isinstance(error, HardwareError):
        assert error.nvml_code == code


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (4, PermissionDeniedError),
        (9, NoDriverError),
        (12, NoDriverError),
        (13, NoDriverError),
        (15, GpuLostError),
        (18, NoDriverError),
        (19, InUseError),
        (23, HardwareError),
        (2, HardwareError),
        (999, HardwareError),
    ],
)
def test_the_class_is_what_the_engine_decides_by(code: int, kind: type[AliquotError]) -> None:
    assert type(codes.error(code, "trying")) is kind


def test_a_code_from_the_future_is_an_error_too() -> None:
    error = codes.error(4711, "trying")
    assert isinstance(error, HardwareError)
    assert error.nvml_code == 4711
    assert "4711" in error.details[0]


@pytest.mark.parametrize(
    ("version", "too_old"), [("450.80.02", True), ("469.99", True), ("470.57.02", False), ("", False)]
)
def test_the_floor(version: str, too_old: bool) -> None:
    assert (codes.driver_too_old(version) is not None) == too_old
