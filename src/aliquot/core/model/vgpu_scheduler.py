"""The scheduler of time-sliced vGPUs: how the driver shares the time of one GPU between VMs.

Written as ``equal-share``, ``equal-share,2ms`` or ``fixed-share,480Hz``. A frequency keeps the strict round robin that
is the driver's default; a time slice turns it off. Sources: nvml.h, and chapter 8 of NVIDIA's vGPU user guide.
"""

from __future__ import annotations

import re

import msgspec

from aliquot.core.model.driver_branches import numbers
from aliquot.core.model.inventory import Gpu

POLICIES = ("best-effort", "equal-share", "fixed-share")
"""The policies; NVML's numbers for them begin with 1."""
DEFAULT, _, FIXED = POLICIES
"""The policy after a boot, and the one with a share for each vGPU that could exist."""
MIN_SLICE_NS, MAX_SLICE_NS = 1_000_000, 30_000_000
MIN_HZ, MAX_HZ = 63, 960
"""The limits of time slices and frequencies. The driver silently uses the nearest value within them."""
STRICT_OFF, STRICT_ON = 1, 2
"""NVML's numbers for strict round robin, which it calls adaptive (ARR). 0 is the default, which is on."""
ALWAYS_STRICT = 595
"""The first driver branch that cannot turn strict round robin off."""
_SECOND_NS = 1_000_000_000
_MS_NS = 1_000_000
_DETAIL = re.compile(r"(?:(\d{1,2})(?:\.(\d{1,3}))?ms|(\d{1,3})Hz)", re.ASCII)
_EXAMPLES = "for example equal-share, equal-share,2ms or fixed-share,480Hz"


class VgpuScheduler(msgspec.Struct, frozen=True):
    """A policy with at most one of time slice and frequency; 0 means that it is not stated."""

    policy: str
    time_slice_ns: int = 0
    frequency_hz: int = 0

    @property
    def number(self) -> int:
        """NVML's number of the policy."""
        return POLICIES.index(self.policy) + 1

    @property
    def detailed(self) -> bool:
        """True if it states a time slice or a frequency."""
        return bool(self.time_slice_ns or self.frequency_hz)

    def __str__(self) -> str:
        """Return it as files and annotations write it."""
        if self.time_slice_ns:
            return f"{self.policy},{slice_text(self.time_slice_ns)}"
        return f"{self.policy},{self.frequency_hz}Hz" if self.frequency_hz else self.policy


def slice_text(time_slice_ns: int) -> str:
    """Return a time slice in milliseconds, to a microsecond: ``2ms``, ``1.5ms``."""
    whole, rest = divmod(time_slice_ns, _MS_NS)
    decimals = f"{rest // 1000:03d}".rstrip("0")
    return f"{whole}.{decimals}ms" if decimals else f"{whole}ms"


def parse_scheduler(text: str) -> VgpuScheduler:
    """Parse a scheduler; blanks around its parts are ignored. Raises ValueError, which says what is wrong."""
    policy, comma, detail = (part.strip() for part in text.partition(","))
    if policy not in POLICIES:
        raise ValueError(f"{policy[:40]!r} is not a policy: write {', '.join(POLICIES)} ({_EXAMPLES})")
    if not comma:
        return VgpuScheduler(policy)
    found = _DETAIL.fullmatch(detail)
    if found is None:
        raise ValueError(f"{detail[:40]!r} is neither a time slice nor a frequency ({_EXAMPLES})")
    if policy == DEFAULT:
        raise ValueError(f"{DEFAULT} has neither a time slice nor a frequency: equal-share and fixed-share do")
    if found[3]:
        frequency = int(found[3])
        if not MIN_HZ <= frequency <= MAX_HZ:
            raise ValueError(f"a frequency must be from {MIN_HZ}Hz to {MAX_HZ}Hz, not {detail}")
        return VgpuScheduler(policy, frequency_hz=frequency)
    time_slice = int(found[1]) * _MS_NS + int((found[2] or "").ljust(3, "0")) * 1000
    if not MIN_SLICE_NS <= time_slice <= MAX_SLICE_NS:
        limits = f"from {slice_text(MIN_SLICE_NS)} to {slice_text(MAX_SLICE_NS)}"
        raise ValueError(f"a time slice must be {limits}, not {detail}")
    return VgpuScheduler(policy, time_slice)


def normal_scheduler(text: str) -> str:
    """Return a scheduler in our spelling. Raises ValueError as ``parse_scheduler``."""
    return str(parse_scheduler(text))


def unreadable(text: str) -> str:
    """Return what is wrong with a recorded scheduler, which a later release may have written; "" if nothing."""
    try:
        parse_scheduler(text)
    except ValueError as error:
        return str(error)
    return ""


def from_driver(policy: int, strict: int, time_slice_ns: int) -> str:
    """Return the scheduler that NVML reports. "" for a policy that this version does not know.

    The driver reports strictness and time slice only while a VM runs. With strict round robin the time slice is the
    inverse of the frequency. The result is within the limits of requests, so that it can be requested.
    """
    if not 1 <= policy <= len(POLICIES):
        return ""
    name = POLICIES[policy - 1]
    if name == DEFAULT or time_slice_ns <= 0:
        return name
    if strict == STRICT_OFF:
        return str(VgpuScheduler(name, min(MAX_SLICE_NS, max(MIN_SLICE_NS, time_slice_ns))))
    return str(VgpuScheduler(name, frequency_hz=_frequency(time_slice_ns)))


def _frequency(time_slice_ns: int) -> int:
    return min(MAX_HZ, max(MIN_HZ, round(_SECOND_NS / time_slice_ns)))


def to_driver(text: str) -> tuple[int, int, int, int]:
    """Return NVML's policy, strictness, time slice in ns, and frequency in Hz. 0 is the driver's default."""
    found = parse_scheduler(text)
    strict = STRICT_OFF if found.time_slice_ns else STRICT_ON if found.frequency_hz else 0
    return found.number, strict, found.time_slice_ns, found.frequency_hz


def without_slice(text: str, driver: str) -> str:
    """Return a scheduler as a driver of this version can have it: where strict round robin cannot be turned off, with
    the frequency nearest to its time slice. One that cannot be read (``unreadable``) is returned as it is.
    """
    if unreadable(text):
        return text
    found = parse_scheduler(text)
    if not found.time_slice_ns or numbers(driver) < (ALWAYS_STRICT,):
        return text
    return str(VgpuScheduler(found.policy, frequency_hz=_frequency(found.time_slice_ns)))


def policy_of(text: str) -> str:
    """Return the policy of a scheduler's text."""
    return text.partition(",")[0]


def meets(found: str, requested: str) -> bool:
    """Report whether a GPU has the requested scheduler. A request without details leaves them as they are."""
    return requested in (found, policy_of(found))


def scheduler_of(gpu: Gpu) -> str:
    """Return the scheduler of a GPU; in MIG mode the one that its GPU instances have in common.

    Of GPU instances that differ only in details this is the policy. "" if it is unknown, or if the policies differ.
    """
    if not gpu.mig.enabled:
        return gpu.virtual.scheduler if gpu.virtual else ""
    found = {i.scheduler for i in gpu.instances if isinstance(i.scheduler, str)}
    policies = set(map(policy_of, found))
    return found.pop() if len(found) == 1 else policies.pop() if len(policies) == 1 else ""


def instances_to_switch(gpu: Gpu, scheduler: str) -> frozenset[int]:
    """Return the ids of the GPU instances that have another scheduler than this one. Empty for none ("")."""
    seen = ((i.id, i.scheduler) for i in gpu.instances if scheduler and isinstance(i.scheduler, str))
    return frozenset(number for number, found in seen if not meets(found, scheduler))
