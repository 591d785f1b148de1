"""Steps of the agent: a closed set of small values.

``decide`` chooses a step, ``StepExecutor`` executes it, and then everything is observed again. No step depends on the
one before it.
"""

from __future__ import annotations

import msgspec

from aliquot.core.model.plan import Plan
from aliquot.kubernetes.gpu.gpu_operands import Operand
from aliquot.kubernetes.gpu.node_status import AgentStatus


class ReportStatus(msgspec.Struct, frozen=True):
    """Write the status to the node: state label, annotations, and an event if it is new."""

    status: AgentStatus


class Pause(msgspec.Struct, frozen=True):
    """Pause operands, record it and cordon the node if requested, in one patch with the state ``pending``."""

    operands: tuple[Operand, ...]
    cordon: bool
    status: AgentStatus


class AwaitOperands(msgspec.Struct, frozen=True):
    """Wait until the pods of paused operands are gone, with a timeout, and delete the validators."""

    operands: tuple[Operand, ...]
    status: AgentStatus


class StopServices(msgspec.Struct, frozen=True):
    """Stop the host's GPU services after recording it."""

    services: tuple[str, ...]


class Evict(msgspec.Struct, frozen=True):
    """Evict the pods that hold devices to be destroyed; ``force`` then deletes those that remain."""

    pods: tuple[tuple[str, str], ...]
    force: bool
    status: AgentStatus


class Apply(msgspec.Struct, frozen=True):
    """Apply the plan."""

    plan: Plan
    status: AgentStatus


class Reboot(msgspec.Struct, frozen=True):
    """Record the reboot, set the state ``rebooting``, and reboot the host."""

    status: AgentStatus


class Publish(msgspec.Struct, frozen=True):
    """Publish the current GPUs through labels, device plugins and CDI."""


class StartServices(msgspec.Struct, frozen=True):
    """Start the stopped services again, in reverse order."""


class Restore(msgspec.Struct, frozen=True):
    """Restore the operands' previous labels, lift the agent's own cordon, and write the status, in one patch."""

    status: AgentStatus | None


class Withdraw(msgspec.Struct, frozen=True):
    """Remove the state label and write the status after the request was removed."""

    status: AgentStatus


class Retry(msgspec.Struct, frozen=True):
    """Retry at once after a user removed the status, even if the last attempt failed."""


class WaitForEvent(msgspec.Struct, frozen=True):
    """Wait for a change, or for ``seconds``."""

    seconds: float
    sentence: str
    waiting: bool = False
    """True if the agent waits for holders to leave."""
    locked: bool = False
    """True if the agent waits for another process that changes the GPUs."""


PodWait = AwaitOperands | Evict
HostStep = StopServices | StartServices | Reboot
Step = ReportStatus | Withdraw | Pause | PodWait | HostStep | Apply | Publish | Restore | Retry | WaitForEvent
