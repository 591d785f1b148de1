"""The port by which the agent keeps its device plugins from allocating a device that it changes."""

from __future__ import annotations

from typing import Protocol

ALLOCATION_SETTLE_S = 3.0
"""How long kubelet may take to name the pod after the plugin answered Allocate, in seconds."""


class DevicePluginControl(Protocol):
    """The device plugins, which allocate devices to pods."""

    def withhold(self, ids: frozenset[str]) -> frozenset[str]:
        """Stop allocating these devices. Return those of them that were allocated moments ago."""
        ...

    def release(self) -> None:
        """Allow the withheld devices again."""
        ...
