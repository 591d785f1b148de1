"""The command-line options of the devices agent."""

from __future__ import annotations

from aliquot.kubernetes.node_agent.shared_parts import AgentOptions

NAMESPACE = "harvester-system"
"""The namespace of Harvester's pods and of the driver toolkit's."""
CHECK_S = 30.0
"""The longest time in seconds until the agent finds virtual functions or vGPUs that were created by hand."""


class DevicesAgentOptions(AgentOptions, frozen=True, kw_only=True):
    """The options of the devices agent."""

    driver: str = "auto"
    """The location of the GPU driver's programs: its pod (``pod``), the host (``local``), or ``auto`` (the pod if the
    node has one).
    """
    driver_namespace: str = NAMESPACE
    check_s: float = CHECK_S
    """The longest time between two rounds, in seconds."""
    all_devices: bool = False
    """Serve all PCI and USB devices, as Harvester's pcidevices does, and not only NVIDIA's."""
