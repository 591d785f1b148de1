"""Pure decision about the agent's next step: the same observation and memory give the same step.

The agent executes one step, observes everything again and decides again. So no step relies on the one before it, and
the next observation sees the state after a kill between any two steps. An observation leads to one of five cases:

    no request        restore what is paused, report it, wait
    failure           restore what is paused, set the state failed with the reason, wait for the next attempt
    nothing to do     publish, restore, set the state success, wait
    another writer    report the writer, wait until it has ended
    change            holders, pause, await, stop services, apply, and then one of the cases above
"""

from __future__ import annotations

from textwrap import shorten

from aliquot.core.model.actions import Create, CreateCompute, CreateVgpu, Reset, SetMode
from aliquot.core.model.plan import Plan
from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.gpu.gpu_operands import operands_for, pause
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.gpu.reasons import INVALID_SETTINGS, NO_REQUEST, FailureReason, StatusReason, reason_word
from aliquot.kubernetes.label_agent.agent import status_builder
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation
from aliquot.kubernetes.label_agent.agent.steps import (
    Apply,
    AwaitOperands,
    Evict,
    Pause,
    Publish,
    Reboot,
    ReportStatus,
    Restore,
    Retry,
    StartServices,
    Step,
    StopServices,
    WaitForEvent,
    Withdraw,
)
from aliquot.kubernetes.node_agent import messages as phrases
from aliquot.kubernetes.node_agent import pod_holders as holders

LOCK_BACKOFF = Backoff(first=1.0, longest=15.0)
LONGEST_MESSAGE = 2000
"""Longest message of a failure with remarks about invalid input, in characters."""
LONGEST_NAME = 120
"""Longest name of a process in a status, in characters."""
REBOOT_PATIENCE_S = 600.0
"""Seconds that the host may take to go down before the reboot counts as refused."""
HOLDERS_POLL_S = 5.0
SERVICES_DOWN: FailureReason = "HostClientsDown"
"""The reason if the host's services could not be started again."""


def decide(observation: Observation, memory: AgentMemory) -> Step:
    """Decide on the next step."""
    if not observation.settings.manage:
        return _publish_only(observation, memory)
    if observation.label is None:
        return _without_config(observation, memory)
    failure = observation.failure or (observation.request.failure if observation.request else None)
    if failure is not None:
        return _fail(observation, memory, failure)
    if memory.status_seen and observation.status is None:
        return Retry()
    if memory.failed is not None and memory.attempt == observation.attempt and observation.clock < memory.retry_at:
        return _fail(observation, memory, memory.failed)
    plan = observation.plan
    assert plan is not None, "a request without a failure has a plan"
    if not plan.actions and not plan.blocked and not plan.reboots:
        return _satisfied(observation, memory)
    return _change(observation, memory, plan)


def _unpublished(observation: Observation, memory: AgentMemory) -> bool:
    """Report whether labels and devices must be published. Nothing is published first with unknown settings."""
    unclear = (
        observation.failure is not None and observation.failure.reason == INVALID_SETTINGS and not memory.published
    )
    return observation.inventory is not None and not unclear and memory.published != observation.key


# -- without a change


def _publish_only(observation: Observation, memory: AgentMemory) -> Step:
    """Decide for a node whose label another manager applies.

    The agent only publishes labels, device plugins and CDI, and restores what it paused before.
    """
    if _services_are_due(observation, memory):
        return StartServices()
    if observation.marks.pause_record is not None and observation.restoration:
        return Restore(None)
    if _unpublished(observation, memory):
        return Publish()
    return WaitForEvent(
        _rest_seconds(observation, memory, observation.settings.check_s),
        "another manager applies the label",
        locked=observation.held_back,
    )


def _without_config(observation: Observation, memory: AgentMemory) -> Step:
    message = f"no config is requested: the GPUs stay as they are{observation.hint}"
    # Keep the previous config on record: the controller sets a default config only on nodes that never had one.
    config = observation.status.config if observation.status is not None else ""
    status = AgentStatus("", NO_REQUEST, message, config=config).with_since(observation.now, observation.status)
    if _services_are_due(observation, memory):
        return StartServices()
    if observation.restoration:
        return Restore(None)
    if observation.state or not status.same_as(observation.status):
        return Withdraw(status)
    if _unpublished(observation, memory):
        return Publish()
    return WaitForEvent(
        _rest_seconds(observation, memory, observation.settings.check_s), message, locked=observation.held_back
    )


def _fail(observation: Observation, memory: AgentMemory, failure: ConfigFailure) -> Step:
    """Decide after a failure: restore everything paused first, as a failed request must not stop the monitoring too.

    Input that is invalid and has no effect is part of the message, because it may be why the request failed.
    """
    message = "; ".join((failure.message, *observation.remarks))
    status = status_builder.status(
        observation,
        "failed",
        failure.reason,
        shorten(message, LONGEST_MESSAGE, placeholder=" ...") if observation.remarks else message,
        next_step=failure.next_step,
        details=failure.details,
        change=failure.change,
    )
    if _unpublished(observation, memory):
        return Publish()
    if _services_are_due(observation, memory):
        return StartServices()
    if observation.restoration:
        return Restore(status)
    if status_builder.needs_report(observation, status):
        return ReportStatus(status)
    wait = (
        memory.retry_at - observation.clock
        if memory.failed is not None and memory.attempt == observation.attempt
        else observation.settings.check_s
    )
    seconds = _rest_seconds(observation, memory, max(1.0, min(wait, observation.settings.check_s)))
    return WaitForEvent(seconds, f"failed: {failure.message}", locked=observation.held_back)


def _satisfied(observation: Observation, memory: AgentMemory) -> Step:
    if memory.published != observation.key:
        return Publish()
    if observation.held_back:
        return _locked(observation, memory)
    if _services_are_due(observation, memory):
        return StartServices()
    status = status_builder.success(observation, memory)
    if observation.restoration:
        return Restore(status)
    if status_builder.needs_report(observation, status) or observation.durable.reboot is not None:
        return ReportStatus(status)
    return WaitForEvent(observation.settings.check_s, status.message)


def _services_are_due(observation: Observation, memory: AgentMemory) -> bool:
    """Report whether services of the host must be started again and the next attempt is due."""
    resting = (
        memory.failed is not None and memory.failed.reason == SERVICES_DOWN and observation.clock < memory.retry_at
    )
    return observation.owes_services and not resting


def _rest_seconds(observation: Observation, memory: AgentMemory, longest: float) -> float:
    """Return the seconds to wait: ``longest``, or less if the agent waits for the end of another process."""
    return min(longest, LOCK_BACKOFF.pause(memory.lockouts + 1)) if observation.held_back else longest


# -- the change


def _change(observation: Observation, memory: AgentMemory, plan: Plan) -> Step:
    if observation.other_agent or observation.writer or memory.locked_by:
        return _locked(observation, memory)
    stop = _forbidden(observation, plan)
    if stop is not None:
        return _fail(observation, memory, stop)
    if plan.blocked:
        return _blocked(observation, memory, plan)
    if not plan.actions:
        return _reboot(observation, memory, plan)
    if plan.reboots and not observation.settings.with_reboot:
        return _fail(observation, memory, _needs_reboot(plan))  # before anything is destroyed
    if observation.kubelet_error and touches(plan) and observation.holder_policy.policy != "force":
        next_step = "systemctl status kubelet on the node"
        return _fail(observation, memory, ConfigFailure("KubeletAway", observation.kubelet_error, (), next_step))
    return _prepare_and_apply(observation, memory, plan)


def _prepare_and_apply(observation: Observation, memory: AgentMemory, plan: Plan) -> Step:
    drift = f"the GPUs drifted from {observation.label!r}: " if status_builder.was_met(observation) else ""
    reason: StatusReason = status_builder.HEALING if drift else "Changing"
    status = status_builder.status(observation, "pending", reason, drift + phrases.intent(plan))
    operands = operands_for(plan, observation.managed.operands)
    if pause(
        observation.marks,
        operands,
        requested=observation.digest,
        cordon=observation.holder_policy.cordon,
        owner=observation.owner,
    ):
        return Pause(operands, observation.holder_policy.cordon, status)
    if observation.state != "pending":
        return ReportStatus(status)
    if observation.marks.pause_record is not None and not memory.operands_gone:
        return AwaitOperands(operands, status)
    if observation.services and not memory.services_stopped and _resets_gpus(plan):
        return StopServices(observation.services)
    if status_builder.needs_report(observation, status):
        return ReportStatus(status)  # the last step added what it waited for
    return Apply(plan, status)


def _locked(observation: Observation, memory: AgentMemory) -> Step:
    """Wait for another writer: pause, restore and change nothing until it has ended."""
    if memory.published != observation.key:
        return Publish()
    if observation.other_agent:
        other, node = observation.other_agent, observation.node
        text = f"{other} has paused GPU clients on this node under another lock: the agent waits until it ends"
        step = (
            f"stop one of the two agents; if the other is gone: kubectl annotate node {node} {names.PAUSE_ANNOTATION}-"
        )
        status = status_builder.status(observation, "pending", "AnotherAgent", text, next_step=step)
    else:
        who = shorten(memory.locked_by or observation.writer, LONGEST_NAME, placeholder=" ...)")
        text = f"{who} is changing this node's GPUs: the agent waits until it ends"
        status = status_builder.status(observation, "pending", "Locked", text)
    if status_builder.needs_report(observation, status):
        return ReportStatus(status)
    return WaitForEvent(LOCK_BACKOFF.pause(memory.lockouts + 1), status.message, locked=True)


def touches(plan: Plan) -> bool:
    """Report whether a plan affects devices that a pod may hold, or is blocked, possibly by a pod."""
    return plan.blocked or any(not isinstance(a, Create | CreateCompute | CreateVgpu) for a in plan.actions)


def _resets_gpus(plan: Plan) -> bool:
    return any(isinstance(a, Reset | SetMode) for a in plan.actions)


def _forbidden(observation: Observation, plan: Plan) -> ConfigFailure | None:
    """Return the failure if a setting forbids a change that the GPUs would allow; else None."""
    if (
        observation.prediction is not None
        and observation.prediction.refusals
        and observation.settings.prediction_for(observation.label or "") == "refuse"
    ):
        first, *rest = observation.prediction.refusals
        return ConfigFailure("LabelsWouldBeInvalid", first, tuple(rest), observation.prediction.next_step or "")
    if status_builder.was_met(observation) and not observation.settings.self_heal:
        return ConfigFailure(
            "Drift", f"the GPUs differ from {observation.label!r}, and healing is disabled: {phrases.intent(plan)}"
        )
    return None


def _blocked(observation: Observation, memory: AgentMemory, plan: Plan) -> Step:
    first = plan.blockers[0]
    rest = tuple(b.message for b in plan.blockers[1:])
    if not holders.blocked_by_holders_only(plan):
        first = next(b for b in plan.blockers if b.rule != "HELD")
        others = tuple(b.message for b in plan.blockers if b is not first)
        return _fail(
            observation,
            memory,
            ConfigFailure(reason_word(first.rule), first.message, others, first.next_step or ""),
        )
    holding = observation.holder_policy
    who = phrases.holders(plan)
    message = f"{first.message}; held by {who}"
    pods = holders.blocking_pods(plan)
    if holding.policy == "refuse":
        step = (
            f"kubectl annotate node {observation.node} {names.HOLDERS_ANNOTATION}=drain --overwrite"
            if pods
            else phrases.describe_command(plan)
        )
        return _fail(observation, memory, ConfigFailure("Held", message, rest, step))
    since = memory.waiting_since if memory.waiting_for == observation.patience else 0.0
    if since and observation.clock - since >= holding.timeout_s:
        text = f"{message}; they did not leave within {holding.timeout_s} s"
        return _fail(observation, memory, ConfigFailure("HeldTimeout", text, rest, phrases.describe_command(plan)))
    if memory.published != observation.key:
        return Publish()  # a wait may last for hours
    if holding.policy == "drain" and not pods and not since:
        text = f"{message}: no holder is a pod that could be evicted"
        return _fail(observation, memory, ConfigFailure("Held", text, rest, phrases.describe_command(plan)))
    status = status_builder.status(observation, "pending", "WaitingForHolders", message)
    if pause(observation.marks, (), requested=observation.digest, cordon=holding.cordon, owner=observation.owner):
        return Pause((), holding.cordon, status)
    if status_builder.needs_report(observation, status):
        return ReportStatus(status)
    if holding.policy in ("drain", "force") and pods:
        return Evict(pods, holding.policy == "force", status)
    return WaitForEvent(min(HOLDERS_POLL_S, float(holding.timeout_s)), f"waiting: {message}", waiting=True)


def _reboot(observation: Observation, memory: AgentMemory, plan: Plan) -> Step:
    """Decide on the reboot that a change of MIG mode waits for, when nothing else is left to do.

    A reboot that another process recorded in this boot is requested again, as that process may have been killed before
    it sent the request.
    """
    gpus = ", ".join(plan.reboots)
    status = status_builder.status(observation, "rebooting", "Rebooting", f"rebooting for the MIG mode of GPU {gpus}")
    reboot_mark = observation.durable.reboot
    requested = reboot_mark is not None and reboot_mark.digest == observation.digest
    if reboot_mark is not None and requested and reboot_mark.boot != observation.boot:
        text = f"the node was rebooted for GPU {gpus}, but the MIG mode did not change"
        return _fail(
            observation, memory, ConfigFailure("RebootDidNotHelp", text, (), "nvidia-smi -q -d MIG on the node")
        )
    if reboot_mark is not None and requested and memory.rebooting == observation.boot:
        if observation.clock - reboot_mark.at > REBOOT_PATIENCE_S:
            text = f"the node did not reboot within {REBOOT_PATIENCE_S / 60:.0f} minutes of the request"
            return _fail(observation, memory, ConfigFailure("RebootRefused", text, (), "reboot the node by hand"))
        return (
            ReportStatus(status)
            if status_builder.needs_report(observation, status)
            else WaitForEvent(HOLDERS_POLL_S, status.message)
        )
    if not observation.settings.with_reboot:
        return _fail(observation, memory, _needs_reboot(plan))
    return Reboot(status)


def _needs_reboot(plan: Plan) -> ConfigFailure:
    gpus = ", ".join(plan.reboots)
    text = f"the MIG mode of GPU {gpus} becomes active only after a reboot, which WITH_REBOOT does not allow"
    return ConfigFailure("NeedsReboot", text, (), "set WITH_REBOOT=true, or mig.with-reboot in the settings")
