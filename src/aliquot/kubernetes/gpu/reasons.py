"""Reasons: the CamelCase words for programs in a node's status, in conditions and in events."""

from __future__ import annotations

from typing import Final, Literal, NewType

RuleReason = NewType("RuleReason", str)
"""A rule of the planner or an error code, in the form of ``reason_word``."""

_ConfigReason = Literal["ConfigMissing", "EmptyLabel", "InvalidConfig", "NotUnderstood", "Reserved", "UnknownConfig"]
_SettingReason = Literal["InvalidClients", "InvalidSettings", "LabelsWouldBeInvalid", "NoRecord"]
_GpuReason = Literal["Drift", "DriverHangs", "GpusUnreadable", "Held", "HeldTimeout", "NoDriver", "NoGpu"]
_ChangeReason = Literal["ApplyFailed", "ApplyRefused", "Forbidden", "InternalFault"]
_PodReason = Literal["ClientsStay", "EvictionOff", "KubeletAway", "NotDrained", "PauseUndone"]
_RebootReason = Literal["NeedsReboot", "RebootDidNotHelp", "RebootRefused"]
_ServiceReason = Literal["HostClientsDown", "HostClientsStay"]
_PageReason = Literal["Away", "Claims", "NO_SUCH_GPU", "NoAgent", "NoNode", "NotOurs", "NoWish", "VirtualMachines"]
FailureReason = (
    Literal[_ConfigReason, _SettingReason, _GpuReason, _ChangeReason, _PodReason, _RebootReason]
    | Literal[_ServiceReason, _PageReason]
    | RuleReason
)
"""Reasons why a request is not applied."""
_MetReason = Literal["AlreadyApplied", "Applied", "Healed", "NoWish"]
ProgressReason = Literal[_MetReason, "AnotherAgent", "Changing", "Healing", "Locked", "Rebooting", "WaitingForHolders"]
StatusReason = ProgressReason | FailureReason
"""All reasons of a node's status."""
WarningReason = Literal["InvalidSettings", "StateFileUnreadable"]
"""Reasons of events that are not about the status."""

ALREADY_APPLIED: Final = "AlreadyApplied"
APPLY_FAILED: Final = "ApplyFailed"
DRIVER_HANGS: Final = "DriverHangs"
"""The reason while a driver call does not return."""
INVALID_SETTINGS: Final = "InvalidSettings"
"""The reason of an event if the last valid settings stay in use, and of a failure if there are none."""
NO_REQUEST: Final = "NoWish"


def reason_word(code: str) -> RuleReason:
    """Return a rule or error code in CamelCase: ``NoSuchGpu`` for ``NO_SUCH_GPU``."""
    return RuleReason("".join(part.capitalize() for part in code.split("_")))
