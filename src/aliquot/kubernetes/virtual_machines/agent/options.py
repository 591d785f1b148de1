"""What the command line says to the devices agent."""

from __future__ import annotations

from aliquot.kubernetes.node_agent.agent_context import AgentOptions

NAMESPACE = "harvester-system"
"""Where Harvester, and the driver toolkit, keep their pods."""
CHECK_S = 30.0
"""Virtual functions that somebody switches on, or a vGPU made by hand, is seen no later than this."""


class DevicesAgentOptions(AgentOptions, frozen=True, kw_only=True):
    """``driver`` says where the GPU driver's programs are: in its pod (``pod``), on this machine (``local``), or
    ``auto``: in the pod where the node has one. ``check_s`` is the longest time between two looks, in seconds.
    """

    driver: str = "auto"
    driver_namespace: str = NAMESPACE
    check_s: float = CHECK_S
