"""Waits for jobs that end, and for a node that registers. Every wait has a time limit."""

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
"""Seconds that slurmd has to register. On a loaded host it takes some seconds; after this limit it will not."""

SETTLE_S = 3.0
PROCESSES_END_S = 5.0
RESUME_S = 20.0
ANSWERED_S = 2.0
"""Seconds within which slurmctld gets a last answer of a stopped slurmd, so that it does not count for the resume."""
LONG_S = 5.0
"""Seconds for which the last observation of jobs is reused while waiting, if the node's record stays the same."""

HELD = "HELD"
_WAIT = "To wait for them, add --jobs wait --timeout 3600"


def turns(context: SlurmChangeContext, seconds: float) -> Iterator[None]:
    """Yield once, and again until ``seconds`` have passed. The pauses grow: each turn is a request to slurmctld."""
    begin, turns = context.now(), 0
    while context.now() - begin <= seconds:
        yield
        turns += 1
        context.sleep(POLL.pause(turns))


def observe(name: str, context: SlurmChangeContext, known_s: float = 0.0) -> SlurmNodeObservation:
    """Read the node and its jobs.

    slurmctld searches its whole queue for the jobs of one node. So they are read only if they may have changed after
    the last observation. On a busy node, that one is reused for ``known_s`` seconds.
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
    """Report whether a job may have started or ended.

    A new job makes the node busy. Slurm records when a node was last busy: when a job ended or was suspended, or the
    node was resumed. Tested on 22.05 and 24.11.
    """
    return not now.last_busy or _use(last) != _use(now)


def _use(node: SlurmNode) -> tuple[object, ...]:
    return node.name, node.last_busy, node.states & BUSY, node.cpus_allocated, node.gres_used


def fetch_node(name: str, context: SlurmChangeContext) -> SlurmNode | None:
    """Read the node without its jobs, or return None if Slurm has no such record."""
    try:
        return context.slurm.node(name)
    except NoNodeError:
        return None


def job_lines(jobs: Iterable[SlurmJob]) -> tuple[str, ...]:
    """Format jobs, one per line."""
    return tuple(f"job {j.id} ({j.name or 'no name'} of {j.user or 'unknown'}): {j.state.lower()}" for j in jobs)


def wait_for_jobs(record: ChangeRecord, context: SlurmChangeContext) -> None:
    """Wait until no job is on the node. Raises BusyError with the jobs, by the policy or after the time limit."""
    change, name = record.change, record.name
    observation = observe(name, context)
    if observation.busy and change.jobs == "refuse" and observation.jobs:
        raise busy(name, observation.jobs, "jobs are on it")
    if change.jobs == "requeue":
        requeue(observation.jobs, context)
    begin = context.now()
    last = -REPORT_EVERY_S
    shown: tuple[str, ...] = ()
    while observation.busy:
        waited = context.now() - begin
        lines = job_lines(observation.jobs)
        # With "refuse" no job is left; still wait for what is completing.
        if waited > (change.timeout_s if observation.jobs else max(change.timeout_s, REGISTER_S)):
            longer = "To wait longer, give a higher --timeout" if change.jobs != "refuse" else _WAIT
            raise busy(name, observation.jobs, f"jobs are still on it after {waited:.0f} s", longer)
        if lines != shown or waited - last >= REPORT_EVERY_S:
            what = "; ".join(lines) or "jobs that are being cleaned up"
            context.report(f"waiting for {what} ({max(change.timeout_s - waited, 0):.0f} s left)")
            shown, last = lines, waited
        context.sleep(POLL_S if waited < 5 else SLOW_S)
        observation = _observe_patiently(name, observation, context)


def _observe_patiently(
    name: str, observation: SlurmNodeObservation, context: SlurmChangeContext
) -> SlurmNodeObservation:
    """Observe the node; return the last observation while slurmctld does not answer, for example during a restart."""
    try:
        return observe(name, context, LONG_S)
    except SlurmUnavailableError as unavailable:
        context.report(f"{unavailable.brief}: still waiting")
        return observation


def wait_for_processes(record: ChangeRecord, context: SlurmChangeContext) -> None:
    """Wait briefly until processes of ended jobs have left the GPUs. Raises BlockedError for remaining holders."""
    begin = context.now()
    while True:
        try:
            feasible(record.change, context.gpus.backend.read())
            return
        except BlockedError as error:
            if error.code != HELD or context.now() - begin > PROCESSES_END_S or record.change.policy.held != "refuse":
                raise
        context.sleep(POLL_S)


def busy(name: str, jobs: tuple[SlurmJob, ...], why: str, advice: str = _WAIT) -> BusyError:
    """Return the error for a node that cannot be changed because of its jobs."""
    return BusyError(
        f"{name} cannot be changed now: {why}",
        details=(*job_lines(jobs), advice),
        next_step=f"squeue --nodelist={name}",
    )


def requeue(jobs: tuple[SlurmJob, ...], context: SlurmChangeContext) -> None:
    """Put jobs back into the queue. Raises BusyError before touching any, if one of them cannot be requeued."""
    fixed = tuple(j for j in jobs if not j.requeue)
    if fixed:
        raise BusyError(
            f"{len(fixed)} of {len(jobs)} jobs cannot be requeued",
            details=(*job_lines(fixed), _WAIT),
            next_step=f"squeue --jobs={','.join(str(j.id) for j in fixed)}",
        )
    for job in jobs:
        try:
            context.slurm.requeue(job.id)
            context.report(f"requeued job {job.id}")
        except RefusedError as refused:
            context.report(f"waiting for job {job.id}, which was not requeued: {refused.brief}")


def wait_for_registration(record: ChangeRecord, context: SlurmChangeContext) -> SlurmNode:
    """Wait until our slurmd has registered the node with exactly the expected GRES, and return it.

    Raises BlockedError, with what Slurm has instead, after the time limit.
    """
    name = record.name
    explained = False
    node: SlurmNode | None = None
    for _ in turns(context, REGISTER_S):
        node = fetch_node(name, context)
        if node is not None and _refused_registration(node, record):
            break
        if node is not None and record.kind == "dynamic" and not explained:
            explained = _explain_drain(node, record, context)
        if node is not None and _fresh(node, record):
            if node.invalid:
                break
            if agrees(node, record.expected.gres):
                return node
    raise _unregistered(node, record)


def _fresh(node: SlurmNode, record: ChangeRecord) -> bool:
    """Report whether a slurmd that has read the new files has registered."""
    new = node.slurmd_start >= int(record.started) and node.slurmd_start != record.restore_point.slurmd_start
    return new and not node.states & {"UNKNOWN", "FUTURE"}


def _refused_registration(node: SlurmNode, record: ChangeRecord) -> bool:
    """Report whether slurmctld refused a new dynamic node. Before the change the record was deleted."""
    return record.kind == "dynamic" and not record.undoing and node.invalid


def another_second(record: ChangeRecord, context: SlurmChangeContext) -> float:
    """Wait until slurmd's next start differs from its last one, which Slurm stores in whole seconds.

    Returns the time in seconds since the epoch.
    """
    while int(time.time()) <= record.restore_point.slurmd_start <= time.time() + 1:
        context.sleep(POLL_S)
    return time.time()


def _explain_drain(node: SlurmNode, record: ChangeRecord, context: SlurmChangeContext) -> bool:
    """Set a reason, because a dynamic node registers drained without one."""
    if node.draining and (is_our_reason(node.reason) or held_by_others(node)):
        return True
    context.slurm.drain(record.name, reason(record))
    return True


def respect_other_drain(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """Save the reason of someone who has drained the node after us, because deleting the node's record loses it.

    The reason is set again on the new record, and the node stays drained.
    """
    node = fetch_node(record.name, context)
    if node is None or not held_by_others(node) or node.reason == record.restore_point.reason:
        return record
    record = replace(record, drained=False, restore_point=replace(record.restore_point, reason=node.reason))
    context.save(record)
    return record


def reason(record: ChangeRecord) -> str:
    """Return the reason during a change: ours, or that of someone who drained the node before us."""
    if not record.drained and record.restore_point.reason:
        return record.restore_point.reason
    if record.undoing:
        return f"aliquot: a change is being undone: {record.why}"[:250]
    return f"aliquot: changing to {record.change.revision or 'another layout'}"[:250]


def _unregistered(node: SlurmNode | None, record: ChangeRecord) -> BlockedError:
    wanted = record.expected.text
    if node is None or not (_fresh(node, record) or _refused_registration(node, record)):
        return BlockedError(
            f"slurmd did not register {record.name} within {REGISTER_S:.0f} s",
            code="NOT_REGISTERED",
            details=("Its log has the reason: see SlurmdLogFile in slurm.conf.",),
            next_step="journalctl -u slurmd -n 50",
        )
    has = ",".join(map(str, node.gres)) or "no GRES"
    state = "+".join(sorted(node.states))
    if _refused_registration(node, record) and node.reason and not is_our_reason(node.reason):
        return BlockedError(
            f"{record.name} registered as {state}: {node.reason}",
            code="NOT_REGISTERED",
            next_step=f"scontrol show node {record.name}",
        )
    return BlockedError(
        f"{record.name} registered as {state} with {has} instead of {wanted}",
        code="NOT_REGISTERED",
        details=tuple(filter(None, (node.reason,))),
        next_step=f"scontrol show node {record.name}",
    )


def resume_node(record: ChangeRecord, context: SlurmChangeContext) -> bool:
    """Resume the node, and report whether its slurmd answers.

    Slurm refuses that shortly after a registration, so it is retried within a time limit. Slurm starts no job on a node
    before slurmd has answered a ping.
    """
    if record.undoing:
        context.sleep(ANSWERED_S)
    ordered = False
    refused: RefusedError | None = None
    for _ in turns(context, RESUME_S):
        node = context.slurm.node(record.name)
        if held_by_others(node) or (not node.draining and "DOWN" not in node.states):
            if ordered and not node.draining:
                # While undoing, no new registration proves that slurmd runs, so wait longer for its answer.
                node = _trigger_scheduling(node, context, RESUME_S if record.undoing else SETTLE_S)
            return "NOT_RESPONDING" not in node.states
        refused = None
        try:
            context.slurm.resume(record.name)
            ordered = True
        except RefusedError as error:
            refused = error
    raise refused or BlockedError(
        f"{record.name} becomes {'+'.join(sorted(node.states))} again after each resume",
        code="NOT_RESUMED",
        details=tuple(filter(None, (node.reason,))),
        next_step=f"scontrol show node {record.name}",
    )


def _trigger_scheduling(node: SlurmNode, context: SlurmChangeContext, seconds: float) -> SlurmNode:
    """Trigger a scheduling cycle after the node responds.

    Slurm schedules when a node is resumed, but starts no job on it before it has answered a ping. If the cycle ends
    before, jobs would wait for the next one, up to half a minute. An update of a responding node triggers a new cycle.
    """
    if "NOT_RESPONDING" in node.states:
        node = wait_until_settled(node.name, context, seconds) or node
    context.slurm.note(node.name, node.extra)
    return node


def wait_until_settled(name: str, context: SlurmChangeContext, seconds: float = SETTLE_S) -> SlurmNode | None:
    """Wait until the node responds, and return it, or None if Slurm has no such record.

    A node that has just registered counts as not responding until slurmctld has pinged it.
    """
    node: SlurmNode | None = None
    for _ in turns(context, seconds):
        node = fetch_node(name, context)
        if node is None or "NOT_RESPONDING" not in node.states:
            break
    return node


def wait_for_controller(context: SlurmChangeContext, seconds: float = 30.0) -> None:
    """Wait until slurmctld answers. Raises SlurmUnavailableError."""
    begin = context.now()
    while True:
        try:
            context.slurm.settings()
            return
        except SlurmUnavailableError:
            if context.now() - begin > seconds:
                raise
            context.sleep(POLL_S * 5)
