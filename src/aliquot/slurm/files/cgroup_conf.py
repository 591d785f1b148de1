"""cgroup.conf: what keeps a job from the slices of its neighbours. Pure."""

from __future__ import annotations

LINES = ("ConstrainDevices=yes",)
"""Without it every job can open every instance, and the number in CUDA_VISIBLE_DEVICES is the only fence. It needs
ProctrackType=proctrack/cgroup and TaskPlugin=task/cgroup."""


def lines() -> tuple[str, ...]:
    """The lines that GPUs need; yours may have more."""
    return LINES
