"""The decision which nodes to repartition for which jobs: a pure function of the cluster, the queue and the settings.

Jobs are served in their order. If free devices suit a job, they are promised to it and not repartitioned for a while.
Otherwise a node is repartitioned, the one where the fewest instances are destroyed. Beside the jobs of a slot board its
idle slots change; another node with a job is never repartitioned.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from aliquot.errors import Message
from aliquot.slurm.controller.candidates import Candidates
from aliquot.slurm.controller.coverage import FreeDevices
from aliquot.slurm.controller.job_demand import JobDemand, JobQueue
from aliquot.slurm.controller.limits import mismatch
from aliquot.slurm.controller.long_waits import KeptGpus, without_kept
from aliquot.slurm.controller.models import (
    JobState,
    JobVerdict,
    NodeDrain,
    Repartition,
    SlurmDecision,
    SlurmNodeState,
    SlurmState,
)
from aliquot.slurm.controller.settings import SlurmControllerSettings
from aliquot.slurm.controller.slot_boards import SOON_S
from aliquot.slurm.controller.waiting_step import waiting_step

_LISTED = 12
"""Most types in a sentence."""


def decide(state: SlurmState, queue: JobQueue, settings: SlurmControllerSettings, now: float) -> SlurmDecision:
    """Decide what to do at the time ``now`` (seconds since the epoch).

    If a job has waited too long for a slot board, the decision is made again with GPUs kept for it. Jobs before it may
    not lose by that.
    """
    first = _Round(state, queue, settings, now)
    decision = first.decision()
    kept = first.kept
    if kept is None:
        return decision
    again = _Round(state, queue, settings, now, kept).decision()
    before = {each.job for each in itertools.takewhile(lambda each: each.job != kept.job, queue.demands)}
    lost = _served(decision) & before - _served(again)
    return decision if lost else again


def _served(decision: SlurmDecision) -> set[int]:
    return {each.job for each in decision.verdicts if each.state in ("covered", "cut")}


def types_text(need: dict[str, int]) -> str:
    """Format device counts as jobs request them: ``a100_3g.20gb:2,a100_1g.5gb``."""
    return ",".join(kind if n == 1 else f"{kind}:{n}" for kind, n in need.items())


class _Round:
    def __init__(
        self,
        state: SlurmState,
        queue: JobQueue,
        settings: SlurmControllerSettings,
        now: float,
        keep: KeptGpus | None = None,
    ) -> None:
        self._keep = keep
        self._whole = {each.name: each for each in state.node_states}
        if keep is not None:
            shown = (
                without_kept(each, keep.gpus, now) if each.name == keep.node_name else each
                for each in state.node_states
            )
            state = msgspec.structs.replace(state, node_states=tuple(shown))
        self.kept: KeptGpus | None = keep
        """The GPUs that are kept, or should be, for a job that has waited too long."""
        self.state = state
        self.queue = queue
        self.settings = settings
        self.now = now
        self.verdicts: dict[int, JobVerdict] = {}
        self.covered: list[int] = []
        self.drains: list[NodeDrain] = []
        self._devices = FreeDevices(state.node_states)
        self._suited: dict[int, int] = {}
        self._served: set[int] = set()

    def decision(self) -> SlurmDecision:
        for each in self.queue.unserved:
            self._set_verdict(each.job, "alone", each.why, next_step=each.next_step)
        open_wants = self._uncovered(self._allowed())
        chosen = Candidates(self.state, open_wants, self.settings, self.now, self._devices.promised)
        later = []
        for demand in open_wants:
            if demand.follows:
                later.append(demand)
            else:
                self._serve(demand, chosen)
        self._follow(later, chosen)
        repartitions = self._cleared(chosen, list(chosen.repartitions()))
        self._copies = sum((Counter(r.copies) for r in repartitions), Counter[int]())
        for repartition in repartitions:
            for job in repartition.copies:
                self._mark_partitioning(job, repartition)
        draining_or_changing = {d.node_name for d in self.drains} | {r.node_name for r in repartitions}
        resume = tuple(
            r.name for r in self.state.node_states if r.waiting and not r.shut and r.name not in draining_or_changing
        )
        ordered = tuple(self.verdicts[job] for job in sorted(self.verdicts))
        return SlurmDecision(repartitions, tuple(self.drains), resume, tuple(self.covered), ordered)

    def _cleared(self, chosen: Candidates, repartitions: list[Repartition]) -> tuple[Repartition, ...]:
        """Add the change of the kept GPUs to the changes for other jobs."""
        demand = next((each for each in self.queue.demands if self._keep and each.job == self._keep.job), None)
        if self._keep is None or demand is None:
            return tuple(repartitions)
        own = chosen.cleared(self._whole[self._keep.node_name], demand, self._keep)
        if own is None:
            return tuple(repartitions)
        for number, each in enumerate(repartitions):
            if each.node_name == own.node_name:
                repartitions[number] = msgspec.structs.replace(
                    each, placements={**each.placements, **own.placements}, destroyed=each.destroyed + own.destroyed
                )
                return tuple(repartitions)
        return (*repartitions, own)

    def _set_verdict(
        self,
        job: int,
        state: JobState,
        sentence: str,
        node_names: Iterable[str] = (),
        why: Iterable[str] = (),
        next_step: str = "",
    ) -> None:
        self.verdicts[job] = JobVerdict(job, state, sentence, tuple(node_names), tuple(why), next_step)

    def _allowed(self) -> list[JobDemand]:
        """Return the demands whose partitions may cause changes."""
        fine = []
        for demand in self.queue.demands:
            rules = [self.settings.partition(p) for p in demand.partitions] or [self.settings.partition("")]
            wanted = {name for r in self.state.node_states for kind, name in r.names.items() if kind in demand.need}
            if not any(r.demands for r in rules):
                names = ",".join(demand.partitions)
                text = f"the settings do not let jobs of partition {names} cause changes (demands: false)"
                self._set_verdict(demand.job, "alone", text)
            elif not any(r.demands and (r.profiles is None or wanted <= set(r.profiles)) for r in rules):
                names = ",".join(demand.partitions)
                text = f"the settings allow partition {names} no {', '.join(sorted(wanted))} (profiles)"
                self._set_verdict(demand.job, "alone", text)
            else:
                fine.append(demand)
        return fine

    # -- what is there

    def _uncovered(self, demands: list[JobDemand]) -> list[JobDemand]:
        """Return the demands that no free devices suit, and promise free devices to the others in their order.

        Of an array, the tasks that no free devices suit are left.
        """
        left = []
        for demand in demands:
            why = {r.name: mismatch(r, demand) for r in self.state.node_states}
            suits = self._devices.suiting(demand, why)
            self._suited[demand.job] = len(suits)
            copies = self._devices.copies(demand, suits)
            missing = (demand.copies if demand.nodes == 1 else demand.nodes) - sum(copies.values())
            if not missing:
                self._cover(demand, copies)
                continue
            if demand.nodes == 1 and not demand.spread:
                self._devices.promise(demand, copies)
                demand = msgspec.structs.replace(demand, copies=missing)
                missing -= self._expect(demand, why)
            if missing:
                one = demand.nodes > 1
                left.append(demand if demand.spread else msgspec.structs.replace(demand, copies=1 if one else missing))
        return left

    def _cover(self, demand: JobDemand, copies: dict[str, int]) -> None:
        """Reserve free devices for a job that they suit, unless Slurm has not started it for too long."""
        self.covered.append(demand.job)
        names = sorted(copies)
        since = self.state.promised.get(demand.job, self.now)
        if self.now - since > self.settings.promise_s:
            text = f"free devices of {', '.join(names)} have suited it for {self.now - since:.0f} s, but Slurm did "
            text += f"not start it ({demand.reason})"
            self._set_verdict(demand.job, "stuck", text, names, next_step=f"scontrol show job {demand.job}")
            return
        self._devices.promise(demand, copies)
        text = f"free devices of {', '.join(names)} suit it, so Slurm can start it there"
        self._set_verdict(demand.job, "covered", text, names)

    def _expect(self, demand: JobDemand, why: dict[str, str]) -> int:
        """Return how many copies of a job get the devices of jobs that end in some seconds."""
        copies = self._devices.expect(demand, why)
        if copies:
            names = sorted(copies)
            text = f"jobs on {', '.join(names)} end within {SOON_S:.0f} s, and their devices suit it"
            self._set_verdict(demand.job, "covered", text, names)
        return sum(copies.values())

    # -- what could be

    def _serve(self, demand: JobDemand, chosen: Candidates) -> None:
        if self.now - self.state.stuck.get(demand.job, float("-inf")) < 5 * self.settings.promise_s:
            text = f"the controller created devices for it, but Slurm did not start it ({demand.reason})"
            self._set_verdict(demand.job, "stuck", text, next_step=f"scontrol show job {demand.job}")
            return
        soon = self.state.partitioning.get(demand.job, ())
        if soon and len(soon) + self._suited[demand.job] >= demand.nodes:
            # Another node would be repartitioned in vain. If the change fails, the next round decides again.
            self._set_verdict(
                demand.job,
                "cut",
                f"{', '.join(soon)} {'is' if len(soon) == 1 else 'are'} being repartitioned for it",
                soon,
            )
            return
        served, lines = self._repartition(self.state.node_states, demand, chosen)
        if served < demand.copies and demand.job not in self._served:
            self._patience(demand, chosen, lines)

    def _repartition(
        self, node_states: Sequence[SlurmNodeState], demand: JobDemand, chosen: Candidates
    ) -> tuple[int, tuple[str, ...]]:
        """Choose nodes to repartition for a job.

        Returns how many of its copies they serve, and why the others are not chosen.
        """
        why: dict[str, str] = {r.name: mismatch(r, demand) for r in node_states}
        options = []
        for node_state in node_states:
            if not why[node_state.name]:
                option, why[node_state.name] = chosen.option(node_state, demand)
                if option is not None:
                    options.append(option)
        enough = len(options) >= demand.nodes
        if demand.spread and sum(option.copies for option in options) < demand.copies:
            # Its parts start together, so a change for some of them helps no job.
            enough = False
        served = chosen.take(demand, options) if enough else 0
        if served:
            self._served.add(demand.job)
        return served, tuple(f"{name}: {text}" for name, text in why.items() if text)

    def _patience(self, demand: JobDemand, chosen: Candidates, lines: tuple[str, ...]) -> None:
        """Drain a busy node for a job that has waited long.

        At most ``at_once`` nodes are drained at a time, or one user's queue could block the cluster.
        """
        waited = self.now - max(demand.submitted, demand.eligible)
        more = len(self.drains) < self.settings.at_once
        for node_state in sorted(self.state.node_states if more else (), key=lambda r: (not r.waiting, r.jobs, r.name)):
            patience = node_state.host.limits.patience_s
            taken = any(d.node_name == node_state.name for d in self.drains)
            if patience is None or waited < patience or demand.nodes > 1 or mismatch(node_state, demand) or taken:
                continue
            if chosen.would_serve(node_state, demand):
                self.drains.append(NodeDrain(node_state.name, demand.job))
                ended = "job has" if node_state.jobs == 1 else f"{node_state.jobs} jobs have"
                text = f"the controller drains {node_state.name}, and repartitions it when its {ended} ended"
                self._set_verdict(demand.job, "drained", text, (node_state.name,), lines)
                return
        if self._keeps(demand, chosen, waited, lines):
            return
        sentence, step = self._waiting(demand)
        self._set_verdict(demand.job, "waits", sentence, (), lines, step)

    def _keeps(self, demand: JobDemand, chosen: Candidates, waited: float, lines: tuple[str, ...]) -> bool:
        """Keep GPUs of a slot board for a job that has waited long: those where it fits the earliest."""
        if self._keep is None and self.kept is None and demand.nodes == 1:
            found = []
            for node_state in self.state.node_states:
                patience = node_state.host.limits.patience_s
                if patience is not None and waited >= patience and not mismatch(node_state, demand):
                    found.append(chosen.kept_for(node_state, demand))
            options = [each for each in found if each is not None]
            self.kept = min(options, key=lambda each: (each.ready_at, len(each.gpus), each.node_name), default=None)
        if self._keep is None or self._keep.job != demand.job:
            return False
        names = ", ".join(self._keep.gpus)
        text = f"GPU {names} of {self._keep.node_name} gets no new instances for other jobs until it fits there"
        self._set_verdict(demand.job, "drained", text, (self._keep.node_name,), lines)
        return True

    def _waiting(self, demand: JobDemand) -> Message:
        """Return why a job waits, beside the reasons of each node, and the next command."""
        names = [r.names for r in self.state.node_states if r.names]
        known = sorted({kind for each in names for kind in each})
        unknown = {kind: n for kind, n in demand.need.items() if kind not in known}
        show = f"scontrol show job {demand.job}"
        if unknown and known:
            nodes = "the managed nodes" if len(names) == len(self.state.node_states) else "the nodes that answer"
            more = f", ... ({len(known)} types)" if len(known) > _LISTED else ""
            text = f"no GPU of {nodes} supports {types_text(unknown)}; they support {', '.join(known[:_LISTED])}{more}"
            return Message(text, show)
        step = waiting_step((r for r in self.state.node_states if not mismatch(r, demand)), demand.job)
        if unknown and self.state.node_states:
            return Message("no managed node answers, so it is unknown what their GPUs support", step)
        requested = types_text(demand.need) or " or ".join(demand.layouts)
        return Message(f"no node can be repartitioned for {requested} now", step)

    def _follow(self, later: list[JobDemand], chosen: Candidates) -> None:
        """Serve jobs whose turn it is not yet.

        They share nodes that are repartitioned for others. They cause changes of their own only if no job before them
        in their partition can be served.
        """
        before = {p for v in self.queue.demands if not v.follows and self._moves(v) for p in v.partitions}
        for demand in later:
            if before & set(demand.partitions):
                self._after_others(demand, chosen)
            else:
                self._serve(demand, chosen)
                before |= set(demand.partitions) if self._moves(demand) else set()

    def _after_others(self, demand: JobDemand, chosen: Candidates) -> None:
        """Serve a job whose turn it is not yet: on slots of boards that nothing else needs, or by joining others."""
        boards = [r for r in self.state.node_states if r.board]
        if demand.nodes == 1 and self._repartition(boards, demand, chosen)[0] == demand.copies:
            return
        if demand.job not in self._served:
            self._set_verdict(demand.job, "waits", "Slurm lets other jobs go first (Priority)")
            chosen.join(demand)

    def _moves(self, demand: JobDemand) -> bool:
        """Report whether a job is being served, so that those behind it wait."""
        verdict = self.verdicts.get(demand.job)
        return verdict is None or verdict.state in ("covered", "cut", "drained")

    def _mark_partitioning(self, job: int, repartition: Repartition) -> None:
        known = self.verdicts.get(job)
        node_names = sorted({*(known.node_names if known and known.state == "cut" else ()), repartition.node_name})
        tasks = self._copies[job]
        served = f"for {tasks} of its tasks" if tasks > 1 else "for it"
        self._set_verdict(job, "cut", f"the controller repartitions {', '.join(node_names)} {served}", node_names)
