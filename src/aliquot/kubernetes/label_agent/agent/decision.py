"""What to do next, from what is. Pure: the same observation and memory give the same step.

The agent does one step, looks again at everything and asks again, so that no step relies on the one before it and a
kill between any two leaves nothing that the next look does not see. A look leads to one of five ends:

    no wish           give back what is paused, say so, rest
    something wrong   give back what is paused, state failed with the reason, rest until it may be tried again
    nothing to do     publish, give back, state success, rest
    another writer    say for whom, rest until it has ended
    a change          holders, pause, await, stop services, apply, and from there to one of the ends above
"""

from __future__ import annotations

from textwrap import shorten

from aliquot.core.model.actions import Destroy, DestroyCompute, Reset, SetMode
from aliquot.core.model.plan import Plan
from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.gpu.gpu_operands import operands_for, pause
from aliquot.kubernetes.gpu.node_status import AgentStatus
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
LONGEST_NAME = 120
"""Characters of the name of a process in a status."""
REBOOT_PATIENCE_S = 600.0
"""How long a machine may take to go down before the reboot counts as refused."""
HOLDERS_POLL_S = 5.0
SERVICES_DOWN = "HostClientsDown"
"""The reason of a failed attempt to start the host's services again."""


def decide(observation: Observation, memory: AgentMemory) -> Step:
    """The next step."""
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
    assert plan is not None, "a wish without trouble has a plan"
    if not plan.actions and not plan.blocked and not plan.reboots:
        return _satisfied(observation, memory)
    return _change(observation, memory, plan)


def _unpublished(observation: Observation, memory: AgentMemory) -> bool:
    """True if others do not know yet what is. Nothing is said for the first time under settings that are not known."""
    unclear = (
        observation.failure is not None and observation.failure.reason == "InvalidSettings" and not memory.published
    )
    return observation.inventory is not None and not unclear and memory.published != observation.key


# -- the four ends


def _publish_only(observation: Observation, memory: AgentMemory) -> Step:
    """Somebody else carries the label out: nothing but labels, plugins and CDI is ours, and what we still owe."""
    if _services_are_due(observation, memory):
        return StartServices()
    if observation.marks.pause_record is not None and observation.restoration:
        return Restore(None)
    if _unpublished(observation, memory):
        return Publish()
    return WaitForEvent(
        _rest_seconds(observation, memory, observation.settings.check_s),
        "the label is carried out by another manager",
        locked=observation.held_back,
    )


def _without_config(observation: Observation, memory: AgentMemory) -> Step:
    message = f"no wish: the GPUs are left as they are{observation.hint}"
    # The former wish stays on record: the controller gives a first wish to new nodes, not one that was withdrawn.
    config = observation.status.config if observation.status is not None else ""
    status = AgentStatus("", "NoWish", message, config=config).with_since(observation.now, observation.status)
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
    """Everything paused is given back first: a wish that cannot be met must not cost the monitoring as well."""
    status = status_builder.status(
        observation, "failed", failure.reason, failure.message, next_step=failure.next_step, details=failure.details
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
    """True if services of the host are to be started again, and it is time to try."""
    resting = (
        memory.failed is not None and memory.failed.reason == SERVICES_DOWN and observation.clock < memory.retry_at
    )
    return observation.owes_services and not resting


def _rest_seconds(observation: Observation, memory: AgentMemory, longest: float) -> float:
    """How long to rest: ``longest``, or less where the end of another process is waited for."""
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
        return _fail(observation, memory, _needs_reboot(plan))  # before anything is destroyed for it
    if observation.kubelet_error and touches(plan) and observation.holder_policy.policy != "force":
        next_step = f"kubectl annotate node {observation.node} {names.HOLDERS_ANNOTATION}=force"
        return _fail(observation, memory, ConfigFailure("KubeletAway", observation.kubelet_error, (), next_step))
    return _prepare_and_apply(observation, memory, plan)


def _prepare_and_apply(observation: Observation, memory: AgentMemory, plan: Plan) -> Step:
    drift = f"the GPUs drifted from {observation.label!r}: " if status_builder.was_met(observation) else ""
    reason = status_builder.HEALING if drift else "Changing"
    status = status_builder.status(observation, "pending", reason, drift + phrases.intent(plan))
    operands = operands_for(plan)
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
        return ReportStatus(status)  # it says whom the last step waited for
    return Apply(plan, status)


def _locked(observation: Observation, memory: AgentMemory) -> Step:
    """Another writer is at work: nothing is paused, given back or changed before it has ended."""
    if memory.published != observation.key:
        return Publish()
    if observation.other_agent:
        other, node = observation.other_agent, observation.node
        text = f"{other} has paused GPU clients on this node under another lock: the agent waits for its end"
        step = f"end one of both agents; if that one is gone: kubectl annotate node {node} {names.PAUSE_ANNOTATION}-"
        status = status_builder.status(observation, "pending", "AnotherAgent", text, next_step=step)
    else:
        who = shorten(memory.locked_by or observation.writer, LONGEST_NAME, placeholder=" ...)")
        text = f"{who} is changing this node's GPUs: the agent changes nothing meanwhile and goes on when it has ended"
        status = status_builder.status(observation, "pending", "Locked", text)
    if status_builder.needs_report(observation, status):
        return ReportStatus(status)
    return WaitForEvent(LOCK_BACKOFF.pause(memory.lockouts + 1), status.message, locked=True)


def touches(plan: Plan) -> bool:
    """True if a plan reaches something that a pod may be on, or is blocked and may be so by one."""
    return plan.blocked or any(isinstance(a, Destroy | DestroyCompute | SetMode | Reset) for a in plan.actions)


def _resets_gpus(plan: Plan) -> bool:
    return any(isinstance(a, Reset | SetMode) for a in plan.actions)


def _forbidden(observation: Observation, plan: Plan) -> ConfigFailure | None:
    """What forbids a change that the GPUs would allow."""
    if (
        observation.prediction is not None
        and observation.prediction.refusals
        and observation.settings.prediction_for(observation.label or "") == "refuse"
    ):
        first, *rest = observation.prediction.refusals
        return ConfigFailure("LabelsWouldBeInvalid", first, tuple(rest), observation.prediction.next_step or "")
    if status_builder.was_met(observation) and not observation.settings.self_heal:
        return ConfigFailure(
            "Drift", f"the GPUs differ from {observation.label!r}, and healing is switched off: {phrases.intent(plan)}"
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
            ConfigFailure(phrases.reason_word(first.rule), first.message, others, first.next_step or ""),
        )
    holding = observation.holder_policy
    who = phrases.holders(plan)
    message = f"{first.message}; held by {who}"
    pods = holders.blocking_pods(plan)
    if holding.policy == "refuse":
        step = (
            f"kubectl annotate node {observation.node} {names.HOLDERS_ANNOTATION}=drain"
            if pods
            else phrases.describe_command(plan)
        )
        return _fail(observation, memory, ConfigFailure("Held", message, (*observation.remarks, *rest), step))
    since = memory.waiting_since if memory.waiting_for == observation.patience else 0.0
    if since and observation.clock - since >= holding.timeout_s:
        text = f"{message}; they did not leave within {holding.timeout_s} s"
        return _fail(observation, memory, ConfigFailure("HeldTimeout", text, rest, phrases.describe_command(plan)))
    if memory.published != observation.key:
        return Publish()  # a wait may last for hours
    if holding.policy == "drain" and not pods and not since:
        text = f"{message}: no pod, so there is nothing to evict"
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
    """The mode change waits for a reboot, and nothing else is left to do. An order that another process recorded in
    this boot is given again: it may have been killed before it gave it.
    """
    gpus = ", ".join(plan.reboots)
    status = status_builder.status(observation, "rebooting", "Rebooting", f"rebooting for the MIG mode of GPU {gpus}")
    reboot_mark = observation.durable.reboot
    requested = reboot_mark is not None and reboot_mark.digest == observation.digest
    if reboot_mark is not None and requested and reboot_mark.boot != observation.boot:
        text = f"the machine was rebooted for GPU {gpus}, and the MIG mode still did not change"
        return _fail(
            observation, memory, ConfigFailure("RebootDidNotHelp", text, (), "nvidia-smi -q -d MIG on the node")
        )
    if reboot_mark is not None and requested and memory.rebooting == observation.boot:
        if observation.clock - reboot_mark.at > REBOOT_PATIENCE_S:
            text = f"the machine did not reboot within {REBOOT_PATIENCE_S / 60:.0f} minutes of being asked"
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
    text = f"the MIG mode of GPU {gpus} becomes active only with a reboot, which WITH_REBOOT does not allow"
    return ConfigFailure("NeedsReboot", text, (), "set WITH_REBOOT=true, or mig.with-reboot in the settings")
