"""Output of ``aliquot slurm demand``: the verdict on each job, the changes, and the nodes with a problem."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aliquot.cli.framework import output
from aliquot.foundation.decimals import counted
from aliquot.slurm.controller.decide import types_text
from aliquot.slurm.controller.job_demand import JobDemand
from aliquot.slurm.controller.layout_gpus import geometry
from aliquot.slurm.controller.limits import failure_text
from aliquot.slurm.controller.models import JobVerdict, Repartition, SlurmDecision, SlurmNodeState, SlurmObservation
from aliquot.slurm.controller.waiting_step import node_command


def fields(observation: SlurmObservation, decision: SlurmDecision) -> dict[str, Any]:
    """Return the fields of the document."""
    return {
        "jobs": [_job(observation, v.job) | output.document(v) for v in decision.verdicts],
        "changes": [output.document(r) for r in decision.repartitions],
        "drains": [output.document(d) for d in decision.drains],
        "records": [_node_state(r) for r in observation.state.node_states],
    }


def _job(observation: SlurmObservation, job: int) -> dict[str, Any]:
    want = next((w for w in observation.queue.demands if w.job == job), None)
    alone = next((a for a in observation.queue.unserved if a.job == job), None)
    if want is not None:
        return {"user": want.user, "need": want.need, "nodes": want.nodes, "priority": want.priority}
    return {"user": alone.user if alone else "", "need": {}, "nodes": 0, "priority": 0}


def _node_state(state: SlurmNodeState) -> dict[str, Any]:
    return {
        "name": state.name,
        "states": sorted(state.node.states) if state.node else [],
        "jobs": state.jobs,
        "free": dict(sorted(state.free.items())),
        "shut": state.shut,
        "failure": state.failure,
    }


def text(observation: SlurmObservation, decision: SlurmDecision) -> str:
    """Return the decision as text: what the controller would do now, and why not more."""
    wants = {w.job: w for w in observation.queue.demands}
    lines = [line for verdict in decision.verdicts for line in _verdict(verdict, wants.get(verdict.job))]
    lines = lines or ["no pending job waits for GPUs"]
    lines += _changes(observation, decision)
    for state in observation.state.node_states:
        lines += _problem(state, observation.now)
    return "\n".join(lines)


def _verdict(verdict: JobVerdict, want: JobDemand | None) -> Iterator[str]:
    need = f" {types_text(want.need) or ','.join(want.layouts)}" if want else ""
    on = f" on {want.nodes} nodes" if want and want.nodes > 1 else ""
    yield f"job {verdict.job}{need}{on}: {verdict.state_text}, {verdict.sentence}"
    yield from (f"  {line}" for line in verdict.why)
    if verdict.next_step:
        yield f"  next     {verdict.next_step}"


def _changes(observation: SlurmObservation, decision: SlurmDecision) -> Iterator[str]:
    states = {state.name: state for state in observation.state.node_states}
    for repartition in decision.repartitions:
        change = f"destroy {counted(repartition.destroyed, 'instance')}, create {repartition.created}"
        offered = types_text(repartition.offered) or "nothing"
        yield f"{repartition.node_name}: the controller would {change}; it would offer {offered}"
        yield from _gpu_changes(states[repartition.node_name], repartition)
        yield f"  for      {repartition.jobs_text}"
    for drain in decision.drains:
        yield f"{drain.node_name}: the controller would drain it for job {drain.job}"


def _gpu_changes(state: SlurmNodeState, repartition: Repartition) -> Iterator[str]:
    """Yield what each GPU becomes: ``GPU 0000:03:00.0: 7g.40gb -> 3g.20gb:2``."""
    for gpu in state.gpus:
        if gpu.pci in repartition.placements:
            counts = (geometry(gpu, gpu.placed), geometry(gpu, repartition.placements[gpu.pci]))
            before, after = (types_text(dict(sorted(each.items()))) or "no instance" for each in counts)
            if before != after:
                yield f"  GPU {gpu.pci}: {before} -> {after}"


def _problem(state: SlurmNodeState, now: float) -> Iterator[str]:
    """Yield the lines about a node that cannot be changed now, whichever job waits."""
    if state.shut:
        yield f"{state.name}: {state.shut}"
    elif state.failure:
        yield f"{state.name}: {failure_text(state, now)}"
    if (state.shut and not state.changing) or state.failure:
        yield f"  next     {node_command(state)}"
