"""Waiting for what Slurm does by itself: jobs that end, a node that registers. Every wait has a bound."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from aliquot.errors import BlockedError
from aliquot.foundation.backoff import Backoff
from aliquot.slurm.client.errors import BusyError, NoNodeError, RefusedError, SlurmUnavailableError
from aliquot.slurm.client.models import SlurmJob, SlurmNode
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.desired_gres import agrees
from aliquot.slurm.node.gpu_plan import feasible
from aliquot.slurm.node.next_step import BUSY, SlurmNodeObservation
from aliquot.slurm.node.request import held_by_others, is_our_reason

POLL_S = 0.1
POLL = Backoff(POLL_S, longest=0.5, factor=1.5)
SLOW_S = 1.0
REPORT_EVERY_S = 10.0
REGISTER_S = 60.0
"""How long a slurmd has to register. On a loaded machine it takes some seconds; later than that it does not."""

SETTLE_S = 3.0
PROCESSES_END_S = 5.0
RESUME_S = 20.0
ANSWERED_S = 2.0
"""An answer that slurmd gave before its end reaches slurmctld within that time; later it would count for the resume."""
LONG_S = 5.0
"""How long the jobs that are waited for count as those of the last look, while the node's record stays the same."""

HELD = "HELD"


def _turns(context: SlurmChangeContext, seconds: float) -> Iterator[None]:
    """Yield once, and again until ``seconds`` have passed. The pauses grow: each turn is a request to slurmctld."""
    begin, turns = context.now(), 0
    while context.now() - begin <= seconds:
        yield
        turns += 1
        context.sleep(POLL.pause(turns))


def observe(name: str, context: SlurmChangeContext, known_s: float = 0.0) -> SlurmNodeObservation:
    """The node, fresh, and its jobs. slurmctld searches its whole queue for the jobs of one node, so they are asked for
    only where they may be others than in the last look. On a busy node that look is good for ``known_s`` seconds.
    """
    found = fetch_node(name, context)
    if found is None:
        return SlurmNodeObservation(None)
    last = context.last_observation
    if (
        last is None
        or last.node is None
        or _moved(last.node, found)
        or (last.busy and context.now() - last.observed_at > known_s)
    ):
        try:
            context.last_observation = last = SlurmNodeObservation(found, context.slurm.jobs(name), context.now())
        except NoNodeError:
            return SlurmNodeObservation(None)
    return SlurmNodeObservation(found, last.jobs, last.observed_at)


def _moved(last: SlurmNode, now: SlurmNode) -> bool:
    """Whether a job may have come or gone. One that comes makes the node busy, and Slurm notes when a node was busy for
    the last time: when a job ended or was suspended, or somebody resumed the node. Tried on 22.05 and 24.11.
    """
    return not now.last_busy or _use(last) != _use(now)


def _use(node: SlurmNode) -> tuple[object, ...]:
    return node.name, node.last_busy, node.states & BUSY, node.cpus_allocated, node.gres_used


def fetch_node(name: str, context: SlurmChangeContext) -> SlurmNode | None:
    """The node alone, fresh; None where Slurm has no such record. The queue is not read for it."""
    try:
        return context.slurm.node(name)
    except NoNodeError:
        return None


def job_lines(jobs: Iterable[SlurmJob]) -> tuple[str, ...]:
    """Jobs, a line each."""
    return tuple(f"job {j.id} ({j.name or 'no name'} of {j.user or 'unknown'}): {j.state.lower()}" for j in jobs)


def wait_for_jobs(record: ChangeRecord, context: SlurmChangeContext) -> None:
    """Until no job is on the node. Raises BusyError, the jobs named, where the policy or the bound says no."""
    change, name = record.change, record.name
    observation = observe(name, context)
    if observation.busy and change.jobs == "refuse" and observation.jobs:
        raise busy(name, observation.jobs, "jobs are on it")
    if change.jobs == "requeue":
        _requeue(observation.jobs, context)
    begin = context.now()
    last = -REPORT_EVERY_S
    shown: tuple[str, ...] = ()
    while observation.busy:
        waited = context.now() - begin
        lines = job_lines(observation.jobs)
        # With "refuse" there is no job any more; what completes is waited for all the same.
        if waited > (change.timeout_s if observation.jobs else max(change.timeout_s, REGISTER_S)):
            raise busy(name, observation.jobs, f"after {waited:.0f} s there are still jobs on it")
        if lines != shown or waited - last >= REPORT_EVERY_S:
            what = "; ".join(lines) or "jobs that are being cleaned up"
            context.report(f"waiting for {what} ({max(change.timeout_s - waited, 0):.0f} s left)")
            shown, last = lines, waited
        context.sleep(POLL_S if waited < 5 else SLOW_S)
        observation = _observe_patiently(name, observation, context)


def _observe_patiently(
    name: str, observation: SlurmNodeObservation, context: SlurmChangeContext
) -> SlurmNodeObservation:
    """A fresh look; the last one while slurmctld does not answer: a restart of it is no reason to give a wait up."""
    try:
        return observe(name, context, LONG_S)
    except SlurmUnavailableError as unavailable:
        context.report(f"{unavailable.brief}: waiting on")
        return observation


def wait_for_processes(record: ChangeRecord, context: SlurmChangeContext) -> None:
    """Until the processes of jobs that have ended are off the GPUs: moments. Raises BlockedError for what stays."""
    begin = context.now()
    while True:
        try:
            feasible(record.change, context.gpus.backend.read())
            return
        except BlockedError as error:
            if error.code != HELD or context.now() - begin > PROCESSES_END_S or record.change.policy.held != "refuse":
                raise
        context.sleep(POLL_S)


def busy(name: str, jobs: tuple[SlurmJob, ...], why: str) -> BusyError:
    """Why the node cannot be changed now."""
    return BusyError(
        f"{name} cannot be changed now: {why}",
        details=(*job_lines(jobs), "the same command waits for them with --jobs wait --timeout 3600"),
        next_step=f"squeue --nodelist={name}",
    )


def _requeue(jobs: tuple[SlurmJob, ...], context: SlurmChangeContext) -> None:
    """Raises BusyError before any job is touched, if one of them may not be requeued."""
    fixed = tuple(j for j in jobs if not j.requeue)
    if fixed:
        raise BusyError(
            f"{len(fixed)} of {len(jobs)} jobs may not be requeued",
            details=(*job_lines(fixed), "the same command waits for them with --jobs wait --timeout 3600"),
            next_step=f"squeue --jobs={','.join(str(j.id) for j in fixed)}",
        )
    for job in jobs:
        try:
            context.slurm.requeue(job.id)
            context.report(f"requeued job {job.id}")
        except RefusedError as refused:
            context.report(f"job {job.id} is not requeued, but waited for: {refused.brief}")


def wait_for_registration(record: ChangeRecord, context: SlurmChangeContext) -> SlurmNode:
    """The node, registered by the slurmd that we started, with exactly what is meant. Raises BlockedError where it is
    not so in time, with what Slurm has instead.
    """
    name = record.name
    explained = False
    node: SlurmNode | None = None
    for _ in _turns(context, REGISTER_S):
        node = fetch_node(name, context)
        if node is not None and record.kind == "dynamic" and not explained:
            explained = _explain_drain(node, record, context)
        if node is not None and _fresh(node, record):
            if node.invalid:
                break
            if agrees(node, record.expected.gres):
                return node
    raise _unregistered(node, record)


def _fresh(node: SlurmNode, record: ChangeRecord) -> bool:
    """Whether a slurmd that has read the new files speaks."""
    new = node.slurmd_start >= int(record.started) and node.slurmd_start != record.restore_point.slurmd_start
    return new and not node.states & {"UNKNOWN", "FUTURE"}


def another_second(record: ChangeRecord, context: SlurmChangeContext) -> float:
    """The time, in seconds of the epoch, when slurmd's next start can be told from its last: Slurm counts seconds."""
    while int(time.time()) <= record.restore_point.slurmd_start <= time.time() + 1:
        context.sleep(POLL_S)
    return time.time()


def _explain_drain(node: SlurmNode, record: ChangeRecord, context: SlurmChangeContext) -> bool:
    """A dynamic node registers drained, and without a reason: those who look should find one."""
    if node.draining and (is_our_reason(node.reason) or held_by_others(node)):
        return True
    context.slurm.drain(record.name, reason(record))
    return True


def respect_other_drain(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """The record, and on disk, with the words of whoever has drained the node since we did: they go with the node's
    record in Slurm, and are said again of the next one. The node is theirs to resume then.
    """
    node = fetch_node(record.name, context)
    if node is None or not held_by_others(node) or node.reason == record.restore_point.reason:
        return record
    record = replace(record, drained=False, restore_point=replace(record.restore_point, reason=node.reason))
    context.save(record)
    return record


def reason(record: ChangeRecord) -> str:
    """What Slurm shows while a change is under way, or the words of whoever drained the node before us."""
    if not record.drained and record.restore_point.reason:
        return record.restore_point.reason
    if record.undoing:
        return f"aliquot: a change is being undone: {record.why}"[:250]
    return f"aliquot: changing to {record.change.revision or 'another layout'}"[:250]


def _unregistered(node: SlurmNode | None, record: ChangeRecord) -> BlockedError:
    wanted = record.expected.text
    if node is None or not _fresh(node, record):
        return BlockedError(
            f"slurmd did not register {record.name} within {REGISTER_S:.0f} s",
            details=("its own log says why: SlurmdLogFile in slurm.conf",),
            next_step="journalctl -u slurmd -n 50",
        )
    has = ",".join(map(str, node.gres)) or "no GRES"
    state = "+".join(sorted(node.states))
    return BlockedError(
        f"{record.name} registered as {state} with {has}, and {wanted} was meant",
        details=tuple(filter(None, (node.reason,))),
        next_step=f"scontrol show node {record.name}",
    )


def resume_node(record: ChangeRecord, context: SlurmChangeContext) -> bool:
    """Resume the node; return whether its slurmd answers. Slurm refuses that for moments after a registration: tried
    again, bounded. It gives a node no job before slurmd has answered a ping.
    """
    if record.undoing:
        context.sleep(ANSWERED_S)
    ordered = False
    refused: RefusedError | None = None
    for _ in _turns(context, RESUME_S):
        node = context.slurm.node(record.name)
        if held_by_others(node) or (not node.draining and "DOWN" not in node.states):
            if ordered and not node.draining:
                # On the way back no slurmd has registered that could vouch for itself.
                node = _trigger_scheduling(node, context, RESUME_S if record.undoing else SETTLE_S)
            return "NOT_RESPONDING" not in node.states
        refused = None
        try:
            context.slurm.resume(record.name)
            ordered = True
        except RefusedError as error:
            refused = error
    raise refused or BlockedError(
        f"Slurm resumes {record.name}, and it is {'+'.join(sorted(node.states))} again each time",
        details=tuple(filter(None, (node.reason,))),
        next_step=f"scontrol show node {record.name}",
    )


def _trigger_scheduling(node: SlurmNode, context: SlurmChangeContext, seconds: float) -> SlurmNode:
    """Slurm looks at its queue when a node is resumed, and gives it no job before it has answered a ping: that look may
    be over by then, and jobs that wait for this node would go on waiting for the next, up to half a minute later. A
    word about a node that answers has Slurm look again.
    """
    if "NOT_RESPONDING" in node.states:
        node = wait_until_settled(node.name, context, seconds) or node
    context.slurm.note(node.name, node.extra)
    return node


def wait_until_settled(name: str, context: SlurmChangeContext, seconds: float = SETTLE_S) -> SlurmNode | None:
    """The node, None where Slurm has no such record. One that registered a moment ago counts as not responding until
    slurmctld has asked it: that is waited for.
    """
    node: SlurmNode | None = None
    for _ in _turns(context, seconds):
        node = fetch_node(name, context)
        if node is None or "NOT_RESPONDING" not in node.states:
            break
    return node


def wait_for_controller(context: SlurmChangeContext, seconds: float = 30.0) -> None:
    """Until slurmctld answers. Raises AwayError."""
    begin = context.now()
    while True:
        try:
            context.slurm.settings()
            return
        except SlurmUnavailableError:
            if context.now() - begin > seconds:
                raise
            context.sleep(POLL_S * 5)
