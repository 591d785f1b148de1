"""The division of a node's devices into pools and slices.

Source of the limits: kubernetes/api resource/v1/types.go, and v1.34 for the combined shape.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

MOST_DEVICES = 64
"""Devices in a slice, if one of them has counters or taints."""
MOST_COUNTER_SETS = 8
MOST_COUNTERS = 32
"""Counters in a set. In 1.34: in all sets of a slice."""
MOST_DEVICE_COUNTERS = 1024
"""In 1.34: counters of all devices of a slice together."""

SEPARATE_SINCE = (1, 35)
"""The first Kubernetes whose slices have either devices or counters."""


def is_combined(release: tuple[int, int]) -> bool:
    """Report whether slices of a release have devices and their counters together. An unknown one, (0, 0), has not."""
    return (0, 0) < release < SEPARATE_SINCE


class SliceLayout(msgspec.Struct, frozen=True):
    """The division of a node's devices.

    By default a slice of devices has eight GPUs: up to 56 instances, so that it has room for all that are allocated.
    """

    gpus_per_slice: int = 8
    """With 2, a slice has room for every placement of its GPUs, and an update may need several writes."""
    pool_per_gpu: bool = False
    """One pool for each GPU instead of each node.

    An over-committed GPU then blocks no other one. But the scheduler tries GPUs in a fixed order, whatever the score.
    """
    combined: bool = False
    """The shape of Kubernetes 1.34, where devices and their counters are in one slice."""
    most_devices: int = MOST_DEVICES
    reserve: int = 4
    """Devices for which a slice keeps room: those that a claim gets while they are being removed come back."""

    def groups(self, gpus: Iterable[str]) -> list[tuple[str, ...]]:
        """Divide GPUs by PCI address, in ascending order. A group has a slice of devices."""
        ordered = sorted(set(gpus))
        size = 1 if self.pool_per_gpu else min(self.gpus_per_slice, 2) if self.combined else self.gpus_per_slice
        return [tuple(ordered[n : n + size]) for n in range(0, len(ordered), size)]
