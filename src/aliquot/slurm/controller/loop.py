"""One look at the cluster, one decision, and what follows from it; again and again.

Nothing is carried over from round to round but what ``history`` holds: a controller that is killed and started again
goes on from what Slurm and the nodes say. A change that was cut off on a node is finished there before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from threading import Event
from time import monotonic
from typing import Protocol

import msgspec

from aliquot.slurm.client.models import Job, SlurmNode
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller import cloud_switch as swapping
from aliquot.slurm.controller import drains
from aliquot.slurm.controller.decide import decide, types_text
from aliquot.slurm.controller.history import History
from aliquot.slurm.controller.job_demand import Queue, demands
from aliquot.slurm.controller.layout_gpus import cards, names, wish
from aliquot.slurm.controller.log_once import Telling
from aliquot.slurm.controller.models import Decision, Record, Recut, World
from aliquot.slurm.controller.observer import Told, Untold
from aliquot.slurm.controller.placeholder_sync import Placing
from aliquot.slurm.controller.poll_hint import GLANCE_S, Glances
from aliquot.slurm.controller.remote_nodes import Facts, Hosts, Outcome, UnreachableError
from aliquot.slurm.controller.settings import Host, Settings

FRESH_S = 300.0
"""What a node said of itself is asked again after this long, or when its record in Slurm is another."""
AGAIN_S = 30.0
"""A node that did not answer, or had something in use, is asked again after this long."""


_TOLD = 12
"""As many jobs are named in what Slurm shows of a node."""


class Clock(Protocol):
    def now(self) -> float:
        """Seconds of the epoch."""
        ...


class Known(msgspec.Struct, frozen=True):
    """What a node said, when, and what its record in Slurm was then. ``busy``: jobs were on it, so that what they had
    was in use. ``trouble``: why it said nothing.
    """

    when: float
    seen: tuple[object, ...]
    busy: bool
    facts: Facts | None = None
    trouble: str = ""

    def old(self, now: float, seen: tuple[object, ...], busy: bool) -> bool:
        """Whether it may be true no more."""
        used = self.facts is None or any(i.held for gpu in self.facts.inventory.gpus for i in gpu.instances)
        ended = self.busy and not busy
        return ended or seen != self.seen or now - self.when > (AGAIN_S if used and not busy else FRESH_S)


class Ports(msgspec.Struct, frozen=True):
    """What the controller works through. ``say`` takes a sentence; ``threads`` run what takes long; ``told`` counts."""

    slurm: Slurm
    hosts: Hosts
    clock: Clock
    threads: Executor
    say: Callable[[str], None]
    told: Told = Untold()


class Look(msgspec.Struct, frozen=True):
    """The cluster as it was found, before anything is decided. ``running`` are jobs that have resources."""

    world: World
    queue: Queue
    nodes: tuple[SlurmNode, ...]
    now: float
    running: frozenset[int] = frozenset()


class Controller:
    """``history`` is what is to be kept; whoever runs the controller writes it whenever it changed (``keep``)."""

    def __init__(self, settings: Settings, ports: Ports, history: History, keep: Callable[[History], None]) -> None:
        self.settings = settings
        self.history = history
        self._ports = ports
        self._keep = keep
        self._known: dict[str, Known] = {}
        self._work: dict[str, Future[Outcome]] = {}
        self._glances = Glances()
        self._telling = Telling(ports.say)
        self._placing = Placing(ports.slurm, self._telling)

    @property
    def working(self) -> bool:
        """Whether changes are under way."""
        return bool(self._work)

    # -- looking

    def look(self) -> Look:
        """Read Slurm and the nodes. Raises SlurmError where Slurm does not answer."""
        now = self._ports.clock.now()
        self.collect()
        nodes = self._ports.slurm.nodes()
        jobs = self._ports.slurm.jobs()
        self._glances.looked(jobs)
        partitions = self._ports.slurm.partitions()
        by_name = {n.name: n for n in nodes}
        busy = _busy(jobs)
        self._ask(by_name, busy, now)
        groups = swapping.groups(self.settings, by_name, busy, self.history, now)
        records = [self._record(h, by_name.get(h.name), busy.get(h.name, 0), now) for h in self.settings.hosts]
        queue = demands(jobs, partitions, self.settings.layouts, now)
        idle = [r.name for r in records if not r.jobs and not r.shut and r.node is not None and r.node.answers]
        idle += [g.host for g in groups if not g.jobs]
        self.history = self.history.looked(now, idle, {j.id for j in jobs if j.pending})
        world = World(
            records=(*(self._aged(r) for r in records), *swapping.records(groups, busy)),
            promised=self.history.promised,
            stuck=self.history.stuck,
            recent=self.history.recent(now),
            under_way=len(self._work),
            groups=swapping.groups(self.settings, by_name, busy, self.history, now),
            causes=self.history.causes(now),
            cutting=self._cutting(now),
        )
        return Look(world, queue, nodes, now, frozenset(j.id for j in jobs if not j.pending))

    def decide(self, look: Look) -> Decision:
        return decide(look.world, look.queue, self.settings, look.now)

    def _ask(self, nodes: Mapping[str, SlurmNode], busy: Mapping[str, int], now: float) -> None:
        """Nodes say what they have, side by side, where that is not known."""
        asked: dict[str, tuple[Future[Facts], tuple[object, ...]]] = {}
        for host in self.settings.hosts:
            node = nodes.get(host.name)
            seen: tuple[object, ...] = (node.slurmd_start, node.gres, node.answers) if node else ()
            known = self._known.get(host.name)
            old = known is None or known.old(now, seen, host.name in busy)
            if old and host.name not in self._work:
                asked[host.name] = self._ports.threads.submit(self._ports.hosts.facts, host), seen
        for name, (answer, seen) in asked.items():
            try:
                self._known[name] = Known(now, seen, name in busy, answer.result())
                self._telling.tell(f"node {name}", "")
            except UnreachableError as error:
                trouble = error.brief.removeprefix(f"{name}: ")
                self._known[name] = Known(now, seen, name in busy, None, trouble)
                self._telling.tell(f"node {name}", trouble)

    def _cutting(self, now: float) -> dict[int, tuple[str, ...]]:
        """The records that are being cut for each job. What an earlier controller began is known from the history; a
        change of the node's administrator is not for the jobs of a cut that is long over.
        """
        found: dict[int, tuple[str, ...]] = {}
        for host in self.settings.hosts:
            cut = self.history.last_cut(host.name)
            if cut and self._changing(host.name) and now - cut.when <= self.settings.apply_s:
                found |= {job: (*found.get(job, ()), host.name) for job in cut.jobs}
        return found

    def _changing(self, name: str) -> bool:
        """Whether a change of a record is under way, this controller's or another's."""
        known = self._known.get(name)
        return name in self._work or bool(known and known.facts and known.facts.unfinished)

    def _record(self, host: Host, node: SlurmNode | None, jobs: int, now: float) -> Record:
        known = self._known.get(host.name)
        facts = known.facts if known else None
        failure = self.history.failures.get(host.name)
        recent, changing = self.history.recent(now, host.name), self._changing(host.name)
        record = Record(host=host, node=node, jobs=jobs, recent=recent, changing=changing)
        if failure is not None:
            record = msgspec.structs.replace(record, failure=failure.why, retry_at=failure.retry_at)
        if facts is None:
            return msgspec.structs.replace(record, shut=f"it says nothing: {known.trouble if known else 'not asked'}")
        return msgspec.structs.replace(
            record,
            cards=cards(facts.inventory, facts.gpus, host.rules, self.settings.style),
            names=names(facts.inventory, self.settings.style),
            shut="a change of it is under way" if changing else "",
        )

    def _aged(self, record: Record) -> Record:
        """With what the history knows of it."""
        since = self.history.idle.get(record.name, self._ports.clock.now())
        return msgspec.structs.replace(record, idle_since=since, last_cut=self.history.last(record.name))

    # -- acting

    def round(self) -> Decision:
        """Look, decide and act. Raises SlurmError where Slurm does not answer, StorageError where nothing is kept."""
        began = monotonic()
        look = self.look()
        self._glances.took = monotonic() - began
        if self.settings.placeholders:
            places = [r for r in look.world.records if not r.cloud]
            self._placing.hold(places, look.nodes, self.settings.layouts, look.now)
        self._finish(look)
        decision = self.decide(look)
        self._glances.decided(look.running, bool(decision.verdicts))
        self.history = self.history.decided(look.now, decision.covered, self.settings.promise_s)
        drains.act(decision, self._ports.slurm, self._telling, self._ports.say)
        for recut in decision.recuts:
            self._begin(recut, look.now)
        for swap in decision.swaps:
            self._ports.say(f"{swap.record} is opened for job {', '.join(map(str, swap.jobs))}")
            self.history = self.history.swapped(look.now, swap.host, swap.record, swap.jobs, swap.user)
        swapping.act(look.world.groups, self._ports.slurm, self._telling)
        self._keep(self.history)
        self._telling.forget("job ", {f"job {v.job}" for v in decision.verdicts})
        for verdict in decision.verdicts:
            self._telling.tell(f"job {verdict.job}", f"{verdict.state}: {verdict.sentence}")
        self._ports.told.looked(look, decision)
        return decision

    def _begin(self, recut: Recut, now: float) -> None:
        """A change is on disk before it begins, so that a controller that is killed does not forget its limits."""
        host = self.settings.host(recut.record)
        facts = self._known[recut.record].facts
        assert host is not None
        assert facts is not None
        self.history = self.history.cut(now, recut.record, recut.jobs, recut.user)
        self._ports.told.began(recut.record, now)
        self._keep(self.history)
        jobs = ", ".join(map(str, recut.jobs))
        self._ports.say(f"{recut.record} is cut for job {jobs}: {types_text(recut.offered) or 'nothing'}")
        words = ["--jobs", "refuse", "--revision", revision(recut.jobs)]
        for feature in recut.features or ():
            words += ["--feature", feature]
        document = wish(recut.cards, facts.inventory)
        self._work[recut.record] = self._ports.threads.submit(
            self._ports.hosts.apply, host, document, words, self.settings.apply_s
        )

    def _finish(self, look: Look) -> None:
        """Changes that were cut off with an earlier controller, or by somebody's kill, are finished where they were."""
        for record in look.world.records:
            known = self._known.get(record.name)
            waits = look.now < record.retry_at
            if known and known.facts and known.facts.unfinished and record.name not in self._work and not waits:
                self._ports.say(f"{record.name}: a change was cut off there; it is finished")
                finish = self._ports.hosts.finish
                self._ports.told.began(record.name, look.now)
                self._work[record.name] = self._ports.threads.submit(finish, record.host, self.settings.apply_s)

    def collect(self) -> None:
        """Takes up changes that have ended."""
        now = self._ports.clock.now()
        for name in [n for n, work in self._work.items() if work.done()]:
            outcome = self._work.pop(name).result()
            self._known.pop(name, None)
            self._ports.told.ended(name, now, outcome.done)
            if outcome.done:
                self._ports.say(f"{name} is ready")
                self.history = self.history.done(name)
            else:
                self._ports.say(f"{name} could not be changed: {outcome.sentence}")
                self.history = self.history.failed(now, name, outcome.sentence)
            self._keep(self.history)

    def wait(self, stop: Event, seconds: float, *, glances: bool = False) -> None:
        """Until the next look: so long, or shorter where a change ends, or ``stop`` is set; with ``glances`` also where
        there is news. Raises SlurmError where Slurm does not answer a glance.
        """
        deadline = monotonic() + seconds
        every = self._glances.pause(seconds)
        glance = monotonic() + every if glances else deadline
        had = len(self._work)
        while not stop.wait(min(0.1, max(0.0, deadline - monotonic()))) and monotonic() < deadline:
            if sum(not w.done() for w in self._work.values()) < had:
                return
            if glance <= monotonic() < deadline - GLANCE_S / 2:
                if self._glances.news(self._ports.slurm.jobs()):
                    return
                glance = monotonic() + every


def revision(jobs: Sequence[int]) -> str:
    """What Slurm shows of a change, as the node's Extra and, after "changing to", in its reason."""
    told = ", ".join(map(str, jobs[:_TOLD]))
    return f"a layout for job {told}" + (" and more" if len(jobs) > _TOLD else "")


def _busy(jobs: tuple[Job, ...]) -> dict[str, int]:
    """How many jobs have resources on a node."""
    counts: dict[str, int] = {}
    for job in jobs:
        for name in job.nodes if not job.pending else ():
            counts[name] = counts.get(name, 0) + 1
    return counts
