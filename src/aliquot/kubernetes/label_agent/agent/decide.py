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
from aliquot.kubernetes.gpu.config_label import Trouble
from aliquot.kubernetes.gpu.gpu_operands import concerned, pause
from aliquot.kubernetes.gpu.node_status import FAILED, NO_WISH, PENDING, REBOOTING, Status
from aliquot.kubernetes.label_agent.agent import status_builder as said
from aliquot.kubernetes.label_agent.agent.observation import Memory, Observation
from aliquot.kubernetes.label_agent.agent.steps import (
    Apply,
    AwaitOperands,
    Evict,
    Pause,
    Publish,
    Reboot,
    Rest,
    Restore,
    Retry,
    StartServices,
    Step,
    StopServices,
    Tell,
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
OWED = "HostClientsDown"
"""The reason of a failed attempt to start the host's services again."""


def decide(o: Observation, m: Memory) -> Step:
    """The next step."""
    if not o.settings.manage:
        return _look_on(o, m)
    if o.label is None:
        return _no_wish(o, m)
    trouble = o.trouble or (o.wish.trouble if o.wish else None)
    if trouble is not None:
        return _fail(o, m, trouble)
    if m.told and o.status is None:
        return Retry()
    if m.failed is not None and m.attempt == o.attempt and o.clock < m.retry_at:
        return _fail(o, m, m.failed)
    plan = o.plan
    assert plan is not None, "a wish without trouble has a plan"
    if not plan.actions and not plan.blocked and not plan.reboots:
        return _done(o, m)
    return _change(o, m, plan)


def _unpublished(o: Observation, m: Memory) -> bool:
    """True if others do not know yet what is. Nothing is said for the first time under settings that are not known."""
    unclear = o.trouble is not None and o.trouble.reason == "InvalidSettings" and not m.published
    return o.inventory is not None and not unclear and m.published != o.key


# -- the four ends


def _look_on(o: Observation, m: Memory) -> Step:
    """Somebody else carries the label out: nothing but labels, plugins and CDI is ours, and what we still owe."""
    if _owed(o, m):
        return StartServices()
    if o.marks.record is not None and o.restoration:
        return Restore(None)
    if _unpublished(o, m):
        return Publish()
    return Rest(_seconds(o, m, o.settings.check_s), "the label is carried out by another manager", locked=o.held_back)


def _no_wish(o: Observation, m: Memory) -> Step:
    message = f"no wish: the GPUs are left as they are{o.hint}"
    # The former wish stays on record: the controller gives a first wish to new nodes, not one that was withdrawn.
    config = o.status.config if o.status is not None else ""
    status = Status(NO_WISH, "NoWish", message, config=config).at(o.now, o.status)
    if _owed(o, m):
        return StartServices()
    if o.restoration:
        return Restore(None)
    if o.state or not status.same(o.status):
        return Withdraw(status)
    if _unpublished(o, m):
        return Publish()
    return Rest(_seconds(o, m, o.settings.check_s), message, locked=o.held_back)


def _fail(o: Observation, m: Memory, trouble: Trouble) -> Step:
    """Everything paused is given back first: a wish that cannot be met must not cost the monitoring as well."""
    status = said.status(
        o, FAILED, trouble.reason, trouble.message, next_step=trouble.next_step, details=trouble.details
    )
    if _unpublished(o, m):
        return Publish()
    if _owed(o, m):
        return StartServices()
    if o.restoration:
        return Restore(status)
    if said.untold(o, status):
        return Tell(status)
    wait = m.retry_at - o.clock if m.failed is not None and m.attempt == o.attempt else o.settings.check_s
    seconds = _seconds(o, m, max(1.0, min(wait, o.settings.check_s)))
    return Rest(seconds, f"failed: {trouble.message}", locked=o.held_back)


def _done(o: Observation, m: Memory) -> Step:
    if m.published != o.key:
        return Publish()
    if o.held_back:
        return _locked(o, m)
    if _owed(o, m):
        return StartServices()
    status = said.success(o, m)
    if o.restoration:
        return Restore(status)
    if said.untold(o, status) or o.durable.reboot is not None:
        return Tell(status)
    return Rest(o.settings.check_s, status.message)


def _owed(o: Observation, m: Memory) -> bool:
    """True if services of the host are to be started again, and it is time to try."""
    resting = m.failed is not None and m.failed.reason == OWED and o.clock < m.retry_at
    return o.owes_services and not resting


def _seconds(o: Observation, m: Memory, longest: float) -> float:
    """How long to rest: ``longest``, or less where the end of another process is waited for."""
    return min(longest, LOCK_BACKOFF.pause(m.lockouts + 1)) if o.held_back else longest


# -- the change


def _change(o: Observation, m: Memory, plan: Plan) -> Step:
    if o.other_agent or o.writer or m.locked_by:
        return _locked(o, m)
    stop = _may_not(o, plan)
    if stop is not None:
        return _fail(o, m, stop)
    if plan.blocked:
        return _blocked(o, m, plan)
    if not plan.actions:
        return _reboot(o, m, plan)
    if plan.reboots and not o.settings.with_reboot:
        return _fail(o, m, _needs_reboot(plan))  # before anything is destroyed for it
    if o.blind and touches(plan) and o.holding.policy != "force":
        return _fail(
            o,
            m,
            Trouble("KubeletAway", o.blind, (), f"kubectl annotate node {o.node} {names.HOLDERS_ANNOTATION}=force"),
        )
    drift = f"the GPUs drifted from {o.label!r}: " if said.was_met(o) else ""
    reason = said.HEALING if drift else "Changing"
    status = said.status(o, PENDING, reason, drift + phrases.intent(plan))
    operands = concerned(plan)
    if pause(o.marks, operands, wish=o.digest, cordon=o.holding.cordon, owner=o.owner):
        return Pause(operands, o.holding.cordon, status)
    if o.state != PENDING:
        return Tell(status)
    if o.marks.record is not None and not m.cleared:
        return AwaitOperands(operands, status)
    if o.services and not m.silenced and _deep(plan):
        return StopServices(o.services)
    if said.untold(o, status):
        return Tell(status)  # it says whom the last step waited for
    return Apply(plan, status)


def _locked(o: Observation, m: Memory) -> Step:
    """Another writer is at work: nothing is paused, given back or changed before it has ended."""
    if m.published != o.key:
        return Publish()
    if o.other_agent:
        text = f"{o.other_agent} has paused GPU clients on this node under another lock: the agent waits for its end"
        step = f"end one of both agents; if that one is gone: kubectl annotate node {o.node} {names.PAUSE_ANNOTATION}-"
        status = said.status(o, PENDING, "AnotherAgent", text, next_step=step)
    else:
        who = shorten(m.locked_by or o.writer, LONGEST_NAME, placeholder=" ...)")
        text = f"{who} is changing this node's GPUs: the agent changes nothing meanwhile and goes on when it has ended"
        status = said.status(o, PENDING, "Locked", text)
    if said.untold(o, status):
        return Tell(status)
    return Rest(LOCK_BACKOFF.pause(m.lockouts + 1), status.message, locked=True)


def touches(plan: Plan) -> bool:
    """True if a plan reaches something that a pod may be on, or is blocked and may be so by one."""
    return plan.blocked or any(isinstance(a, Destroy | DestroyCompute | SetMode | Reset) for a in plan.actions)


def _deep(plan: Plan) -> bool:
    return any(isinstance(a, Reset | SetMode) for a in plan.actions)


def _may_not(o: Observation, plan: Plan) -> Trouble | None:
    """What forbids a change that the GPUs would allow."""
    if o.prediction is not None and o.prediction.refusals and o.settings.predicting(o.label or "") == "refuse":
        first, *rest = o.prediction.refusals
        return Trouble("LabelsWouldBeInvalid", first, tuple(rest), o.prediction.next_step or "")
    if said.was_met(o) and not o.settings.self_heal:
        return Trouble(
            "Drift", f"the GPUs differ from {o.label!r}, and healing is switched off: {phrases.intent(plan)}"
        )
    return None


def _blocked(o: Observation, m: Memory, plan: Plan) -> Step:
    first = plan.blockers[0]
    rest = tuple(b.message for b in plan.blockers[1:])
    if not holders.held_only(plan):
        first = next(b for b in plan.blockers if b.rule != "HELD")
        others = tuple(b.message for b in plan.blockers if b is not first)
        return _fail(o, m, Trouble(phrases.word(first.rule), first.message, others, first.next_step or ""))
    holding = o.holding
    who = phrases.holders(plan)
    message = f"{first.message}; held by {who}"
    pods = holders.pods_in_the_way(plan)
    if holding.policy == "refuse":
        step = f"kubectl annotate node {o.node} {names.HOLDERS_ANNOTATION}=drain" if pods else phrases.look(plan)
        return _fail(o, m, Trouble("Held", message, (*o.remarks, *rest), step))
    since = m.waiting_since if m.waiting_for == o.patience else 0.0
    if since and o.clock - since >= holding.timeout_s:
        text = f"{message}; they did not leave within {holding.timeout_s} s"
        return _fail(o, m, Trouble("HeldTimeout", text, rest, phrases.look(plan)))
    if m.published != o.key:
        return Publish()  # a wait may last for hours
    if holding.policy == "drain" and not pods and not since:
        text = f"{message}: no pod, so there is nothing to evict"
        return _fail(o, m, Trouble("Held", text, rest, phrases.look(plan)))
    status = said.status(o, PENDING, "WaitingForHolders", message)
    if pause(o.marks, (), wish=o.digest, cordon=holding.cordon, owner=o.owner):
        return Pause((), holding.cordon, status)
    if said.untold(o, status):
        return Tell(status)
    if holding.policy in ("drain", "force") and pods:
        return Evict(pods, holding.policy == "force", status)
    return Rest(min(HOLDERS_POLL_S, float(holding.timeout_s)), f"waiting: {message}", waiting=True)


def _reboot(o: Observation, m: Memory, plan: Plan) -> Step:
    """The mode change waits for a reboot, and nothing else is left to do. An order that another process recorded in
    this boot is given again: it may have been killed before it gave it.
    """
    gpus = ", ".join(plan.reboots)
    status = said.status(o, REBOOTING, "Rebooting", f"rebooting for the MIG mode of GPU {gpus}")
    mark = o.durable.reboot
    asked = mark is not None and mark.digest == o.digest
    if mark is not None and asked and mark.boot != o.boot:
        text = f"the machine was rebooted for GPU {gpus}, and the MIG mode still did not change"
        return _fail(o, m, Trouble("RebootDidNotHelp", text, (), "nvidia-smi -q -d MIG on the node"))
    if mark is not None and asked and m.rebooting == o.boot:
        if o.clock - mark.at > REBOOT_PATIENCE_S:
            text = f"the machine did not reboot within {REBOOT_PATIENCE_S / 60:.0f} minutes of being asked"
            return _fail(o, m, Trouble("RebootRefused", text, (), "reboot the node by hand"))
        return Tell(status) if said.untold(o, status) else Rest(HOLDERS_POLL_S, status.message)
    if not o.settings.with_reboot:
        return _fail(o, m, _needs_reboot(plan))
    return Reboot(status)


def _needs_reboot(plan: Plan) -> Trouble:
    gpus = ", ".join(plan.reboots)
    text = f"the MIG mode of GPU {gpus} becomes active only with a reboot, which WITH_REBOOT does not allow"
    return Trouble("NeedsReboot", text, (), "set WITH_REBOOT=true, or mig.with-reboot in the settings")
