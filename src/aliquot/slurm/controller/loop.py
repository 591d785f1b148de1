"""The controller's loop: observe the cluster, decide, and act.

Only ``history`` carries state from round to round. A controller that is killed and started again continues from the
state of Slurm and the nodes. An interrupted change on a node is finished before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Event
from time import monotonic

import msgspec

from aliquot.slurm.client.cluster_claim import require_own
from aliquot.slurm.client.models import SlurmJob, SlurmNode
from aliquot.slurm.controller import drains
from aliquot.slurm.controller.decide import decide, types_text
from aliquot.slurm.controller.history import SlurmHistory
from aliquot.slurm.controller.job_demand import job_queue
from aliquot.slurm.controller.layout_gpus import desired_config, profiles_by_type, searchable_gpus
from aliquot.slurm.controller.log_once import LogOnce
from aliquot.slurm.controller.models import Repartition, SlurmDecision, SlurmNodeState, SlurmObservation, SlurmState
from aliquot.slurm.controller.placeholder_sync import PlaceholderSync
from aliquot.slurm.controller.poll_hint import MOST_SETTLE_S, Burst, PollHint
from aliquot.slurm.controller.ports import ControllerPorts
from aliquot.slurm.controller.remote_nodes import SLOTS, RemoteChangeOutcome, RemoteNodeFacts, UnreachableError
from aliquot.slurm.controller.settings import ManagedNode, SlurmControllerSettings
from aliquot.slurm.controller.slot_boards import board_state, coming, is_board, with_used

FRESH_S = 300.0
"""The facts of a node are read again after this many seconds, or when its record in Slurm changes."""
RETRY_S = 30.0
"""Seconds after which a node that did not answer, or whose instances were held, is queried again."""


RACES = 3
"""Changes of a node in a row that may lose a race against jobs, before it counts as a failure."""
_MOST_NAMED_JOBS = 12
"""The maximum number of jobs in the text that Slurm shows for a node."""


class KnownNode(msgspec.Struct, frozen=True):
    """The last answer of a node."""

    when: float
    node_key: tuple[object, ...]
    """Its record in Slurm at that time."""
    busy: bool
    """Whether jobs were on it, so that their instances were held."""
    facts: RemoteNodeFacts | None = None
    error: str = ""
    """Why the node did not answer."""

    def is_stale(self, now: float, node_key: tuple[object, ...], busy: bool) -> bool:
        """Report whether the answer may be outdated."""
        used = self.facts is None or any(i.held for gpu in self.facts.inventory.gpus for i in gpu.instances)
        ended = self.busy and not busy
        return ended or node_key != self.node_key or now - self.when > (RETRY_S if used and not busy else FRESH_S)


class SlurmController:
    """The controller of one cluster. It passes each new history to ``keep``, which writes it if it has changed."""

    def __init__(
        self,
        settings: SlurmControllerSettings,
        ports: ControllerPorts,
        history: SlurmHistory,
        keep: Callable[[SlurmHistory], None],
    ) -> None:
        self.settings = settings
        self.history = history
        self._ports = ports
        self._keep = keep
        self._known: dict[str, KnownNode] = {}
        self._work: dict[str, Future[RemoteChangeOutcome]] = {}
        self._races: dict[str, int] = {}
        self._poll_hint = PollHint()
        self._burst = Burst()
        self._log_once = LogOnce(ports.log)
        self._job_log = LogOnce(ports.log)
        self._placeholders = PlaceholderSync(ports.slurm, self._log_once)

    @property
    def working(self) -> bool:
        """True while changes are in progress."""
        return bool(self._work)

    # -- observing

    def observe(self) -> SlurmObservation:
        """Read Slurm and the nodes. Raises SlurmError if Slurm does not answer."""
        now = self._ports.clock.now()
        self.collect()
        nodes = self._ports.slurm.nodes()
        jobs = self._ports.slurm.queue()
        self._poll_hint.observe(jobs, monotonic())
        self._burst.observe(jobs, now)
        partitions = self._ports.slurm.partitions()
        by_name = {n.name: n for n in nodes}
        on_nodes = _jobs_by_node(jobs)
        busy = {name: len(found) for name, found in on_nodes.items()}
        self._query_nodes(by_name, busy, now)
        node_states = [
            self._node_state(h, by_name.get(h.name), on_nodes.get(h.name, ()), now) for h in self.settings.hosts
        ]
        reservations = self._ports.slurm.reservations() if any(job.pending for job in jobs) else ()
        queue = job_queue(jobs, partitions, self.settings.layouts, now, reservations)
        idle = [r.name for r in node_states if not r.jobs and not r.shut and r.node is not None and r.node.answers]
        self.history = self.history.with_observation(now, idle, {j.id for j in jobs if j.pending})
        state = SlurmState(
            node_states=tuple(self._with_history(r) for r in node_states),
            promised=self.history.promised,
            stuck=self.history.stuck,
            recent=self.history.recent(now),
            active_changes=len(self._work),
            causes=self.history.causes(now),
            partitioning=self._partitioning(now),
        )
        return SlurmObservation(state, queue, nodes, now, frozenset(j.id for j in jobs if not j.pending))

    def decide(self, observation: SlurmObservation) -> SlurmDecision:
        return decide(observation.state, observation.queue, self.settings, observation.now)

    def _query_nodes(self, nodes: Mapping[str, SlurmNode], busy: Mapping[str, int], now: float) -> None:
        """Query the nodes whose facts are unknown or outdated, in parallel."""
        queries: dict[str, tuple[Future[RemoteNodeFacts], tuple[object, ...]]] = {}
        for host in self.settings.hosts:
            node = nodes.get(host.name)
            node_key: tuple[object, ...] = (node.slurmd_start, node.gres, node.answers) if node else ()
            known = self._known.get(host.name)
            stale = known is None or known.is_stale(now, node_key, host.name in busy)
            if stale and host.name not in self._work:
                queries[host.name] = self._ports.threads.submit(self._ports.hosts.facts, host), node_key
        for name, (answer, node_key) in queries.items():
            try:
                self._known[name] = KnownNode(now, node_key, name in busy, answer.result())
                self._log_once.report(f"node {name}", "")
            except UnreachableError as error:
                self._known[name] = KnownNode(now, node_key, name in busy, None, error.why)
                self._log_once.report(f"node {name}", error.why)

    def _partitioning(self, now: float) -> dict[int, tuple[str, ...]]:
        """Return the nodes that are being repartitioned for each job.

        The history also has changes that an earlier controller started. If such a change is long over, a change that is
        in progress now is the administrator's, and not for those jobs.
        """
        found: dict[int, tuple[str, ...]] = {}
        for host in self.settings.hosts:
            change = self.history.last_change(host.name)
            if change and self._changing(host.name) and now - change.when <= self.settings.apply_s:
                found |= {job: (*found.get(job, ()), host.name) for job in change.jobs}
        return found

    def _changing(self, name: str) -> bool:
        """Report whether a change of a node is in progress, by this controller or by something else."""
        known = self._known.get(name)
        return name in self._work or bool(known and known.facts and known.facts.unfinished)

    def _node_state(
        self, host: ManagedNode, node: SlurmNode | None, jobs: Sequence[SlurmJob], now: float
    ) -> SlurmNodeState:
        known = self._known.get(host.name)
        facts = known.facts if known else None
        failure = self.history.failures.get(host.name)
        recent, changing = self.history.recent(now, host.name), self._changing(host.name)
        soon = coming(host.name, jobs, now)
        node_state = SlurmNodeState(host, node, jobs=len(jobs), recent=recent, changing=changing, coming=soon)
        if failure is not None:
            node_state = msgspec.structs.replace(node_state, failure=failure.why, retry_at=failure.retry_at)
        if facts is None:
            return msgspec.structs.replace(
                node_state, shut=f"it does not answer: {known.error if known else 'not queried yet'}"
            )
        if node is not None and is_board(node, facts):
            node_state = board_state(node_state, node, facts, jobs)
            facts = with_used(facts, node)
        return msgspec.structs.replace(
            node_state,
            gpus=searchable_gpus(facts.inventory, facts.gpus, node_state.rules, self.settings.style),
            names=profiles_by_type(facts.inventory, self.settings.style),
            shut="a change of it is in progress" if changing else node_state.shut,
        )

    def _with_history(self, node_state: SlurmNodeState) -> SlurmNodeState:
        """Add the node's history."""
        since = self.history.idle.get(node_state.name, self._ports.clock.now())
        return msgspec.structs.replace(
            node_state, idle_since=since, last_change=self.history.last_change_time(node_state.name)
        )

    # -- acting

    def round(self) -> SlurmDecision:
        """Observe, decide and act.

        Raises SlurmError if Slurm does not answer, StorageError if the history cannot be written, and LockedError if a
        controller on another host acts.
        """
        began = monotonic()
        observation = self.observe()
        self._poll_hint.observation_s = monotonic() - began
        self._require_claim(observation)
        if self.settings.placeholders:
            node_states, layouts = observation.state.node_states, self.settings.layouts
            self._placeholders.sync(node_states, observation.nodes, layouts, observation.now)
        self._finish(observation)
        decision = self.decide(observation)
        if (decision.repartitions or decision.drains) and self._settle():
            observation = self.observe()
            decision = self.decide(observation)
        if decision.repartitions or decision.drains:
            require_own(self._ports.claim.verify())
        self._poll_hint.set_running(observation.running, bool(decision.verdicts))
        self._poll_hint.idle = self._is_idle(decision)
        self.history = self.history.with_decision(observation.now, decision.covered, self.settings.promise_s)
        drains.apply_drains(decision, self._ports.slurm, self._log_once, self._ports.log)
        for repartition in decision.repartitions:
            self._begin(repartition, observation.now)
        self._keep(self.history)
        self._job_log.keep({f"job {verdict.job}" for verdict in decision.verdicts})
        for verdict in decision.verdicts:
            self._job_log.report(f"job {verdict.job}", f"{verdict.state_text}: {verdict.sentence}")
        self._ports.observer.on_observation(observation, decision)
        return decision

    def _require_claim(self, observation: SlurmObservation) -> None:
        """Raise LockedError if a controller on another host acts. Reports once if Slurm cannot store a claim."""
        require_own(self._ports.claim.hold(observation.nodes, observation.now))
        problem = self._ports.claim.problem
        text = f"only the lock on this host keeps controllers apart: {problem}" if problem else ""
        self._log_once.report("claim", text)

    def _settle(self) -> bool:
        """Wait until no new jobs come, so that one change serves a whole burst. Report whether it waited."""
        waited = 0.0
        while waited < MOST_SETTLE_S and (pause := min(0.5, self._burst.pause(self._ports.clock.now()))) > 0:
            self._ports.clock.sleep(pause)
            waited += pause
            self._burst.observe(self._ports.slurm.queue(details=False), self._ports.clock.now())
        return waited > 0

    def _is_idle(self, decision: SlurmDecision) -> bool:
        """Report whether nothing waits for the controller: no job for GPUs, and no change in progress."""
        return not (self._work or decision.verdicts or decision.resume or decision.drains)

    def _begin(self, repartition: Repartition, now: float) -> None:
        """Start a change. The history is written before, so that a killed controller does not forget its limits."""
        host = self.settings.host(repartition.node_name)
        facts = self._known[repartition.node_name].facts
        assert host is not None
        assert facts is not None
        self.history = self.history.with_change(now, repartition.node_name, repartition.jobs, repartition.user)
        self._ports.observer.on_change_started(repartition.node_name, now)
        self._keep(self.history)
        offered = types_text(repartition.offered) or "nothing"
        self._ports.log(f"{repartition.node_name} is repartitioned for {repartition.jobs_text}: {offered}")
        words = ["--jobs", "refuse", "--revision", revision(repartition.jobs)]
        if host.slots or facts.slots:
            words.append(SLOTS)
        for feature in repartition.features or ():
            words += ["--feature", feature]
        document = desired_config(repartition.placements, facts.inventory)
        self._work[repartition.node_name] = self._ports.threads.submit(
            self._ports.hosts.apply, host, document, words, self.settings.apply_s
        )

    def _finish(self, observation: SlurmObservation) -> None:
        """Finish changes that were interrupted, for example because the controller was killed, on their nodes."""
        for node_state in observation.state.node_states:
            known = self._known.get(node_state.name)
            waits = observation.now < node_state.retry_at
            if known and known.facts and known.facts.unfinished and node_state.name not in self._work and not waits:
                self._ports.log(f"{node_state.name}: a change was interrupted there; finishing it")
                finish = self._ports.hosts.finish
                self._ports.observer.on_change_started(node_state.name, observation.now)
                self._work[node_state.name] = self._ports.threads.submit(finish, node_state.host, self.settings.apply_s)

    def collect(self) -> None:
        """Record changes that have ended."""
        now = self._ports.clock.now()
        for name in [n for n, work in self._work.items() if work.done()]:
            outcome = self._work.pop(name).result()
            self._known.pop(name, None)
            self._ports.observer.on_change_ended(name, now, outcome.done)
            if outcome.done:
                self._ports.log(f"{name} is ready")
                self.history = self.history.with_success(name)
                self._races.pop(name, None)
            elif outcome.lost_race and self._races.get(name, 0) < RACES:
                self._races[name] = self._races.get(name, 0) + 1
                self._ports.log(f"{name}: jobs were faster than the change ({outcome.sentence}); looking again")
            else:
                self._ports.log(f"{name} could not be changed: {outcome.sentence}")
                self.history = self.history.with_failure(now, name, outcome.sentence)
            self._keep(self.history)

    def wait(self, stop: Event, seconds: float, *, poll_hints: bool = False) -> None:
        """Wait until the next observation: this many seconds, or less if a change ends or ``stop`` is set.

        With ``poll_hints``, polls the jobs and also returns on news, and an idle controller waits longer. Then raises
        SlurmError if Slurm does not answer.
        """
        had = len(self._work)

        def change_ended() -> bool:
            return sum(not w.done() for w in self._work.values()) < had

        poll = (lambda: self._ports.slurm.queue(details=False)) if poll_hints else None
        self._poll_hint.wait(stop, seconds, change_ended, poll, self._ports.wake)


def revision(jobs: Sequence[int]) -> str:
    """Return the text of a change that Slurm shows as the node's Extra and, after "changing to", in its reason."""
    named = ", ".join(map(str, jobs[:_MOST_NAMED_JOBS]))
    return f"a layout for job {named}" + (" and more" if len(jobs) > _MOST_NAMED_JOBS else "")


def _jobs_by_node(jobs: tuple[SlurmJob, ...]) -> dict[str, list[SlurmJob]]:
    """Return the jobs that have resources on each node."""
    found: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        for name in job.nodes if not job.pending else ():
            found.setdefault(name, []).append(job)
    return found
