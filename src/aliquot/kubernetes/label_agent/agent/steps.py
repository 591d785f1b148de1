"""What the agent can do next: a closed list of small values.

``decide`` chooses one, ``act`` does it, then everything is looked at again. No step needs to know which came before it.
"""

from __future__ import annotations

import msgspec

from aliquot.core.model.plan import Plan
from aliquot.kubernetes.gpu.gpu_operands import Operand
from aliquot.kubernetes.gpu.node_status import AgentStatus


class ReportStatus(msgspec.Struct, frozen=True):
    """Write the status to the node: state label, annotations, an event when it is new."""

    status: AgentStatus


class Pause(msgspec.Struct, frozen=True):
    """Take operands off the node and record it, in one patch with the state ``pending``; cordon if asked."""

    operands: tuple[Operand, ...]
    cordon: bool
    status: AgentStatus


class AwaitOperands(msgspec.Struct, frozen=True):
    """Wait until the pods of paused operands are gone, a bounded time, and delete the validators."""

    operands: tuple[Operand, ...]
    status: AgentStatus


class StopServices(msgspec.Struct, frozen=True):
    """Stop the host's GPU services, recorded before."""

    services: tuple[str, ...]


class Evict(msgspec.Struct, frozen=True):
    """Ask the pods that hold what must go to leave; ``force`` deletes them without asking."""

    pods: tuple[tuple[str, str], ...]
    force: bool
    status: AgentStatus


class Apply(msgspec.Struct, frozen=True):
    """Carry out the plan."""

    plan: Plan
    status: AgentStatus


class Reboot(msgspec.Struct, frozen=True):
    """Record that we did, say ``rebooting``, and restart the machine."""

    status: AgentStatus


class Publish(msgspec.Struct, frozen=True):
    """Labels, device plugins and CDI follow what the GPUs are now."""


class StartServices(msgspec.Struct, frozen=True):
    """Start again what we stopped, in reverse order."""


class Restore(msgspec.Struct, frozen=True):
    """Give operands back their former labels, uncordon if we cordoned, and tell the status, in one patch."""

    status: AgentStatus | None


class Withdraw(msgspec.Struct, frozen=True):
    """Nobody wishes anything any more: the state label goes, the annotation says so."""

    status: AgentStatus


class Retry(msgspec.Struct, frozen=True):
    """Somebody took the status away, which asks for the same again: no former failure holds it back."""


class WaitForEvent(msgspec.Struct, frozen=True):
    """Nothing to do until something happens, or ``seconds`` have passed. ``waiting``: for holders to leave; ``locked``:
    for another process that changes the GPUs.
    """

    seconds: float
    sentence: str
    waiting: bool = False
    locked: bool = False


Step = (
    ReportStatus
    | Pause
    | AwaitOperands
    | StopServices
    | Evict
    | Apply
    | Reboot
    | Publish
    | StartServices
    | Restore
    | Withdraw
    | Retry
    | WaitForEvent
)
