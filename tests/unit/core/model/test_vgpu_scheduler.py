"""The text of a vGPU scheduler: what it can be, and how it stands for NVML's numbers."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.model import vgpu_scheduler as schedulers
from aliquot.core.model.inventory import Gpu, GpuInstance, Mig
from aliquot.core.model.vgpu_scheduler import (
    VgpuScheduler,
    from_driver,
    instances_to_switch,
    meets,
    normal_scheduler,
    scheduler_of,
    to_driver,
)

SHARES = st.sampled_from(schedulers.POLICIES[1:])
SLICES = st.integers(schedulers.MIN_SLICE_NS // 1000, schedulers.MAX_SLICE_NS // 1000).map(lambda us: us * 1000)
STATES = st.one_of(
    st.sampled_from(schedulers.POLICIES).map(VgpuScheduler),
    st.builds(VgpuScheduler, SHARES, SLICES),
    st.builds(VgpuScheduler, SHARES, st.just(0), st.integers(schedulers.MIN_HZ, schedulers.MAX_HZ)),
)


@given(STATES)
def test_text_and_numbers_lead_back(state: VgpuScheduler) -> None:
    text = str(state)
    assert schedulers.parse_scheduler(text) == state
    assert normal_scheduler(f"  {text.replace(',', ' , ')} ") == text
    policy, strict, time_slice, frequency = to_driver(text)
    # A driver reports the inverse of a frequency, rounded down.
    assert from_driver(policy, strict, time_slice or (1_000_000_000 // frequency if frequency else 0)) == text


@given(st.integers(0, 4), st.integers(0, 2), st.integers(0, 1 << 40))
def test_what_a_driver_reports_can_be_requested(policy: int, strict: int, time_slice: int) -> None:
    found = from_driver(policy, strict, time_slice)
    assert found == "" or normal_scheduler(found) == found


def test_the_numbers_of_nvml() -> None:
    assert to_driver("best-effort") == (1, 0, 0, 0)
    assert to_driver("fixed-share,24ms") == (3, 1, 24_000_000, 0)
    assert to_driver("equal-share,960Hz") == (2, 2, 0, 960)
    assert from_driver(2, 2, 2_083_333) == "equal-share,480Hz", "as NVIDIA's guide shows it"
    assert from_driver(2, 0, 0) == "equal-share", "no VM runs"
    assert from_driver(1, 2, 2_083_333) == "best-effort"
    assert (from_driver(0, 0, 0), from_driver(4, 0, 0)) == ("", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is not a policy"),
        ("Equal-Share", "is not a policy"),
        ("equal-share,", "'' is neither a time slice nor a frequency"),
        ("equal-share,2", "'2' is neither"),
        ("equal-share,2ms,480Hz", "is neither"),
        ("equal-share,\u0662ms", "is neither"),
        ("best-effort,2ms", "best-effort has neither a time slice nor a frequency"),
        ("equal-share,0.999ms", "from 1ms to 30ms, not 0.999ms"),
        ("fixed-share,30.001ms", "from 1ms to 30ms"),
        ("fixed-share,62Hz", "from 63Hz to 960Hz, not 62Hz"),
        ("fixed-share,961Hz", "from 63Hz to 960Hz"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"share|from") as refused:
        schedulers.parse_scheduler(text)
    assert words in str(refused.value)


def test_a_request_without_details_leaves_them() -> None:
    assert meets("equal-share,2ms", "equal-share")
    assert meets("equal-share,2ms", "equal-share,2ms")
    assert not meets("equal-share", "equal-share,2ms")
    assert not meets("equal-share,2ms", "equal-share,480Hz")
    assert not meets("fixed-share", "equal-share")


def test_what_gpu_instances_have_in_common() -> None:
    def gpu(*found: str | msgspec.UnsetType) -> Gpu:
        instances = tuple(GpuInstance(n, "1g.24gb+gfx", 47, f"{3 * n}:3", scheduler=s) for n, s in enumerate(found))
        return Gpu("0000:08:00.0", "GPU-1", 0, "a board", mig=Mig(True, "enabled", "enabled"), instances=instances)

    assert [scheduler_of(gpu(*found)) for found in ((), (msgspec.UNSET,), ("equal-share,2ms", msgspec.UNSET))] == [
        "",
        "",
        "equal-share,2ms",
    ]
    assert scheduler_of(gpu("equal-share,2ms", "equal-share")) == "equal-share", "details differ"
    assert scheduler_of(gpu("equal-share", "best-effort")) == ""
    three = gpu("equal-share,2ms", "best-effort", msgspec.UNSET)
    assert [instances_to_switch(three, s) for s in ("equal-share", "fixed-share", "")] == [{1}, {0, 1}, set()]
