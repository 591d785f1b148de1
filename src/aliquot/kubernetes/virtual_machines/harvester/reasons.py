"""Reasons why an object is not in its desired state: a word for programs, and a sentence with the next command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from aliquot.core.model.plan import Blocker
from aliquot.errors import Message
from aliquot.kubernetes.gpu.reasons import RuleReason, reason_word
from aliquot.kubernetes.virtual_machines.harvester.driver_pods import DriverPodReason

_DriverReason = Literal["DriverHangs", "HardwareRefused", "InternalFault", "KubeletAway", "NoDriver"]
_GpuReason = Literal["GpuLost", "GpuMissing", "Missing", "NotAGpu", "NotCapable", "NotRead", "NotServed", "NotShown"]
_RequestReason = Literal[
    "Claimed", "Held", "Misnamed", "NoType", "TypeChanged", "UnknownProfile", "UnknownType", "VirtualFunction"
]
_OrderReason = Literal["FunctionsOff", "HasInstances", "RebootNeeded", "Skipped", "SriovEnabled", "VgpuEnabled"]
_StateReason = Literal[
    "Disabled", "Enabled", "Insufficient", "OutOfSync", "Present", "Synced", "Undone", "Untracked", "Waiting"
]
_MetReason = Literal["Applied", "Configured", "PassedThrough", "Pending"]
ObjectReason = (
    Literal["", DriverPodReason, _DriverReason, _GpuReason, _RequestReason, _OrderReason, _StateReason, _MetReason]
    | RuleReason
)
"""The reasons of conditions; empty if there is nothing to explain."""
DevicesReason = Literal["NoCustomResources", "NoGpu", "PcidevicesRuns", "Working"] | ObjectReason
"""The reasons of the agent's own status."""
HELD: Final = "Held"
NO_DRIVER: Final = "NoDriver"
PENDING: Final = "Pending"
MAX_CHARACTERS = 1000
"""The most characters of a message: an event takes 1,024."""


class ObjectVerdict(msgspec.Struct, frozen=True):
    """A verdict about an object."""

    reason: ObjectReason
    """CamelCase."""
    sentence: str
    next_step: str = ""
    """The command to type, or ""."""

    @property
    def message(self) -> str:
        """The sentence with the next step, in the form of a condition."""
        return str(advice(self.sentence, self.next_step))


def advice(sentence: str, step: str) -> Message:
    """Build a message from a sentence and the next command, shortened to fit an event."""
    return Message(sentence, step).cut(MAX_CHARACTERS)


def blocker_verdict(blocker: Blocker) -> ObjectVerdict:
    """Return why the planner finds no valid plan, with the holders."""
    holders = ", ".join(dict.fromkeys(str(h) for h in blocker.holders))
    message = f"{blocker.message}; in use by {holders}" if holders else blocker.message
    step = "shut that down; Aliquot then continues by itself" if blocker.rule == "HELD" else blocker.next_step or ""
    return ObjectVerdict(reason_word(blocker.rule), message, step)


def join_names(words: Iterable[str], limit: int = 8) -> str:
    """Join names for a sentence: all of them, or the first and how many more."""
    found = list(words)
    return ", ".join(found[:limit]) + (f" and {len(found) - limit} more" if len(found) > limit else "")
