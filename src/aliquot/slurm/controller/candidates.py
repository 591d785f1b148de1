"""Nodes that this round may repartition: what blocks each of them, and its layout with more jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from aliquot.core.planner.node_layout import Bounds, NodeLayout, NodeLayoutSearch
from aliquot.slurm.controller import limits as closed
from aliquot.slurm.controller import slot_boards as boards
from aliquot.slurm.controller import type_limits as keeping
from aliquot.slurm.controller.coverage import PromisedDevices
from aliquot.slurm.controller.job_demand import JobDemand
from aliquot.slurm.controller.layout_gpus import geometry
from aliquot.slurm.controller.long_waits import KeptGpus, cleared, kept_gpus, serves_empty, takes_drain
from aliquot.slurm.controller.models import Repartition, SlurmNodeState, SlurmState
from aliquot.slurm.controller.named_layouts import exact_layout
from aliquot.slurm.controller.placeholders import WORD
from aliquot.slurm.controller.settings import SlurmControllerSettings

Need = dict[str, int]
"""The devices that a job needs on a node, by GRES type."""


class RepartitionOption(msgspec.Struct, frozen=True):
    """A way to repartition a node so that it also serves a job."""

    node_name: str
    need: Need
    cost: tuple[int, ...]
    """The option with the lowest cost is the best."""
    layout: str = ""
    """The named layout that all GPUs get; "" if the job does not request one."""
    copies: int = 1
    """How many times the job can start there."""


class Candidates:
    """The nodes, and the repartitions chosen so far.

    ``promised`` are free devices that jobs are about to get. A job behind them in the queue may not have them
    repartitioned. A job before them may, because otherwise a job that never starts would keep them forever.
    """

    def __init__(
        self,
        state: SlurmState,
        demands: Sequence[JobDemand],
        settings: SlurmControllerSettings,
        now: float,
        promised: Mapping[str, Sequence[PromisedDevices]],
    ) -> None:
        self._state = state
        self._settings = settings
        self._now = now
        self._promised = promised
        self._first = {name: found[0].demand for name, found in promised.items()}
        self._kinds = tuple(dict.fromkeys(kind for demand in demands for kind in demand.need))
        self._searches: dict[str, NodeLayoutSearch] = {}
        self._node_states = {r.name: r for r in state.node_states}
        self._assigned: dict[str, list[tuple[int, Need]]] = {}
        self._named: dict[str, str] = {}
        self._joining: list[JobDemand] = []
        self._users = {demand.job: demand.user for demand in demands}
        known = frozenset(kind for each in state.node_states for kind in each.names)
        self._waiting_users = {demand.user for demand in demands if known.issuperset(demand.need)}
        self._batch_blocker = boards.batch_blocker(state.node_states, now)

    def blocker(self, node_state: SlurmNodeState, demand: JobDemand) -> str:
        """Return why a node is not repartitioned for a job now, or "" if it may be.

        The limits of the number of changes share the changes between users. They do not apply while only one waits.
        """
        shared = bool(self._waiting_users - {demand.user})
        return (
            closed.state_blocker(node_state)
            or (
                self._batch_blocker
                if node_state.board
                else closed.promise_blocker(node_state.name, self._first, demand)
            )
            or closed.rate_blocker(node_state, self._now, shared=shared)
            or self._cluster(node_state, shared=shared)
            or (self._share(node_state, demand) if shared else "")
        )

    def _share(self, node_state: SlurmNodeState, demand: JobDemand) -> str:
        """Return why a user may not cause another change: a quarter of them is reserved for other users."""
        if node_state.name in self._assigned or not demand.user:
            return ""
        mine = [name for name, user in self._state.causes if user == demand.user]
        mine += [name for name, jobs in self._assigned.items() if self._users.get(jobs[0][0]) == demand.user]
        node_changes, allowed = mine.count(node_state.name), node_state.host.limits.per_hour
        if node_changes >= closed.share(allowed):
            had = f"{demand.user} caused {node_changes} of its {allowed} changes per hour"
            return f"{had}: the others are reserved for other users"
        if len(mine) >= closed.share(self._settings.per_hour):
            return closed.user_share_text(demand.user, len(mine))
        return ""

    def _cluster(self, node_state: SlurmNodeState, *, shared: bool) -> str:
        if node_state.name in self._assigned:
            return ""
        more = len(self._assigned)
        if shared and self._state.recent + more >= self._settings.per_hour:
            return f"{self._state.recent + more} changes in the last hour, at most {self._settings.per_hour}"
        if not node_state.board and self._parallel() >= self._settings.at_once:
            return f"{self._settings.at_once} nodes are already being repartitioned (at-once)"
        bounded = {p for p in keeping.partitions(node_state) if keeping.is_counted(p, self._settings)}
        for other in self._assigned:
            if bounded & set(keeping.partitions(self._node_states[other])):
                return f"{other} of the same partition comes first, because the partition has keep or most"
        for each in self._node_states.values():
            # A node that Slurm lacks during its change may come back in any partition.
            common = bounded if each.node is None else bounded & set(keeping.partitions(each))
            if each.changing and each.name != node_state.name and common:
                return f"{each.name} is being repartitioned, and the partition has keep or most"
        return ""

    def _parallel(self) -> int:
        """Return how many nodes would change in parallel. Slot boards change one after the other."""
        boards_now = sum(each.board and each.changing for each in self._node_states.values())
        chosen = sum(not self._node_states[name].board for name in self._assigned)
        return self._state.active_changes - boards_now + chosen

    # -- options

    def option(self, node_state: SlurmNodeState, demand: JobDemand) -> tuple[RepartitionOption | None, str]:
        """Return the cheapest way for a node to serve a job as often as possible beside those already assigned.

        Otherwise returns why there is none.
        """
        why = self.blocker(node_state, demand) or keeping.refusal(node_state, demand.need)
        if why:
            return None, why
        if demand.layouts:
            return self._by_name(node_state, demand)
        if node_state.name in self._named:
            return None, f"it gets the layout {self._named[node_state.name]} for another job"
        most = self._room(node_state, demand)
        if not most:
            return None, "its CPUs or its memory are in use"
        search = self._search(node_state)
        requested = self._requested(node_state, demand)
        before = search.find(requested)
        for need in self._needs(node_state, demand):
            met = search.find([*requested, *[need] * most]).met
            copies = sum(met[len(requested) :])
            if copies and all(met[: len(requested)]):
                cost = _extra_cost(search.find([*requested, *[need] * copies]), before)
                return RepartitionOption(node_state.name, need, cost, copies=copies), ""
        return None, _no_layout_reason(node_state)

    def _room(self, node_state: SlurmNodeState, demand: JobDemand) -> int:
        """Return for how many copies of a job a layout is searched: no GPU has more instances than memory slices."""
        if demand.nodes > 1:
            return 1
        promised = sum(p.copies * p.demand.cpus for p in self._promised.get(node_state.name, ()))
        most = boards.room(node_state, demand, promised)
        return min(most, demand.copies, max(1, sum(gpu.family.memory_slices for gpu in node_state.gpus)))

    def _requested(self, node_state: SlurmNodeState, demand: JobDemand) -> list[Need]:
        """Return what a node offers for jobs before this one: free devices that are promised, then assigned ones."""
        promised = self._promised.get(node_state.name, ())
        before = [dict(p.demand.need) for p in promised if p.demand.rank <= demand.rank for _ in range(p.copies)]
        return [*before, *(need for _, need in self._assigned.get(node_state.name, []))]

    def _by_name(self, node_state: SlurmNodeState, demand: JobDemand) -> tuple[RepartitionOption | None, str]:
        """Return the cheapest of the layouts that a job accepts. Only jobs that accept the same one share a node."""
        found = []
        for name in demand.layouts:
            if node_state.name in self._assigned and self._named.get(node_state.name) != name:
                continue
            requested = Counter(dict(demand.need))
            for _, need in self._assigned.get(node_state.name, []):
                requested.update(need)
            made = exact_layout(node_state, name, self._settings, self._bounds(node_state))
            if made is not None and all(made.offered.get(kind, 0) >= n for kind, n in requested.items()):
                cost = (made.destroyed, 1, len(made.changed), made.created)
                left = {kind: made.offered.get(kind, 0) - requested[kind] for kind in demand.need}
                more = min((left[kind] // n for kind, n in demand.need.items() if n), default=demand.copies)
                copies = min(1 + more, demand.copies)
                found.append(RepartitionOption(node_state.name, dict(demand.need), cost, name, copies))
        if found:
            return min(found, key=lambda option: option.cost), ""
        if node_state.name in self._assigned:
            return None, "it is repartitioned in another way for another job"
        return None, _no_layout_reason(node_state)

    def would_serve(self, node_state: SlurmNodeState, demand: JobDemand) -> bool:
        """Report whether a busy node could serve a job after its own jobs have ended, if it may be drained."""
        needs = self._needs(node_state, demand)
        return takes_drain(node_state) and serves_empty(node_state, needs, self._bounds(node_state))

    def kept_for(self, node_state: SlurmNodeState, demand: JobDemand) -> KeptGpus | None:
        """Return the GPUs of a slot board that have room for a job the earliest; None if none ever have."""
        closed_now = closed.state_blocker(node_state) or keeping.refusal(node_state, demand.need)
        if not node_state.board or closed_now or demand.layouts or demand.spread:
            return None
        return kept_gpus(node_state, demand.job, demand.need, self._bounds(node_state), self._now)

    def cleared(self, node_state: SlurmNodeState, demand: JobDemand, kept: KeptGpus) -> Repartition | None:
        """Return the change that destroys what is idle on the GPUs kept for a job; None if there is none now."""
        left = cleared(node_state, kept.gpus, self._bounds(node_state).least)
        if not left or self.blocker(node_state, demand):
            return None
        gone = sum(len(g.placed or ()) - len(left[g.pci] or ()) for g in node_state.gpus if g.pci in left)
        return Repartition(node_state.name, left, (demand.job,), destroyed=gone, user=demand.user)

    def take(self, demand: JobDemand, options: Sequence[RepartitionOption]) -> int:
        """Choose the best options for a job. Returns how many of its copies they serve, or 0 if the limits allow none.

        A job of several nodes is served by as many options, all of them or none.
        """
        if demand.nodes > 1:
            best = sorted(options, key=lambda o: (o.cost, o.node_name))[: demand.nodes]
            fresh = [o for o in best if o.node_name not in self._assigned and not self._node_states[o.node_name].board]
            if self._parallel() + len(fresh) > self._settings.at_once:
                return 0
            for option in best:
                self._assign(demand, option, 1)
            return 1
        left, open_options = demand.copies, list(options)
        while left and open_options:
            # A node that serves all of them, the cheapest; else the one that serves the most.
            best_one = min(open_options, key=lambda o: (-min(o.copies, left), o.cost, o.node_name))
            open_options.remove(best_one)
            node_state = self._node_states[best_one.node_name]
            if not self._cluster(node_state, shared=bool(self._waiting_users - {demand.user})):
                left -= self._assign(demand, best_one, min(best_one.copies, left))
        return demand.copies - left

    def _assign(self, demand: JobDemand, option: RepartitionOption, copies: int) -> int:
        self._assigned.setdefault(option.node_name, []).extend([(demand.job, option.need)] * copies)
        if option.layout:
            self._named[option.node_name] = option.layout
        return copies

    def join(self, demand: JobDemand) -> None:
        """Register a job that may share a node that is repartitioned for others, if it has free slices."""
        if demand.nodes == 1:
            self._joining.append(demand)

    def repartitions(self) -> Iterator[Repartition]:
        """Yield the chosen repartitions, with joined jobs, and with remaining slices filled."""
        joined: Counter[int] = Counter()
        for name, pairs in self._assigned.items():
            node_state = self._node_states[name]
            if name in self._named:
                yield self._repartition(
                    node_state,
                    pairs,
                    exact_layout(node_state, self._named[name], self._settings, self._bounds(node_state)),
                )
                continue
            free = [p.demand.need for p in self._promised.get(name, ()) for _ in range(p.copies)]
            behind = list(self._behind(node_state, joined))
            found = self._search(node_state).find([*(need for _, need in pairs), *free, *(need for _, need in behind)])
            met = found.met[len(pairs) + len(free) :]
            joined.update(job for (job, _), served in zip(behind, met, strict=True) if served)
            yield self._repartition(node_state, pairs, found)

    def _behind(self, node_state: SlurmNodeState, joined: Mapping[int, int]) -> Iterator[tuple[int, Need]]:
        """Yield jobs that a node serves where there is room, and what they need; not those that have ``joined``."""
        for demand in self._joining:
            if not demand.partitions or set(demand.partitions) & set(keeping.partitions(node_state)):
                copies = min(self._room(node_state, demand), demand.copies - joined.get(demand.job, 0))
                yield from ((demand.job, need) for need in self._needs(node_state, demand)[:1] for _ in range(copies))

    # -- inner

    def _repartition(
        self, node_state: SlurmNodeState, pairs: Sequence[tuple[int, dict[str, int]]], found: NodeLayout | None
    ) -> Repartition:
        assert found is not None, "the layout existed when the node was chosen"
        return Repartition(
            node_name=node_state.name,
            placements={pci: found.placements[pci] for pci in found.changed or found.placements},
            jobs=tuple(dict.fromkeys(job for job, _ in pairs)),
            copies=dict(Counter(job for job, _ in pairs)),
            offered=found.offered,
            destroyed=found.destroyed,
            created=found.created,
            features=self._features(node_state, found),
            user=self._users.get(pairs[0][0], ""),
        )

    def _needs(self, node_state: SlurmNodeState, demand: JobDemand) -> list[dict[str, int]]:
        """Return the devices that a job needs on a node: one set, or one for each layout that it accepts."""
        if not demand.layouts:
            return [dict(demand.need)]
        out = []
        for name in demand.layouts:
            counts = Counter(demand.need)
            for kind, profile in node_state.names.items():
                every = self._settings.layouts.get(name, {}).get(profile, 0)
                counts[kind] = max(counts[kind], every * sum(kind in c.kinds for c in node_state.gpus))
            out.append(dict(+counts))
        return out

    def _search(self, node_state: SlurmNodeState) -> NodeLayoutSearch:
        if node_state.name not in self._searches:
            promised = self._promised.get(node_state.name, ())
            kinds = {
                *self._kinds,
                *(kind for each in promised for kind in each.demand.need),
                *(k for layout in self._settings.layouts.values() for k in keeping.counts_by_type(node_state, layout)),
            }
            self._searches[node_state.name] = NodeLayoutSearch(node_state.gpus, self._bounds(node_state), kinds)
        return self._searches[node_state.name]

    def _bounds(self, node_state: SlurmNodeState) -> Bounds:
        return keeping.bounds(node_state, self._node_states.values(), self._settings, self._kinds)

    def _features(self, node_state: SlurmNodeState, found: NodeLayout) -> tuple[str, ...] | None:
        """Return the node's features after the change, including those of its new layout, or None for no change."""
        layouts = self._settings.layouts
        if not layouts or node_state.node is None:
            return None
        shapes = [geometry(gpu, found.placements[gpu.pci]) for gpu in node_state.gpus]
        true = [name for name, counts in layouts.items() if all(shape == Counter(counts) for shape in shapes)]
        return (*(f for f in node_state.node.features if f not in layouts and WORD.fullmatch(f)), *true)


def _no_layout_reason(node_state: SlurmNodeState) -> str:
    text = "its GPUs cannot have that layout together with the instances that are held or must be kept"
    whole = [gpu.pci for gpu in node_state.gpus if gpu.placed is None and not gpu.mode_changeable]
    if not whole:
        return text
    return f"{text}; MIG is off on GPU {', '.join(whole)}, and 'modes: true' in the settings allows to turn it on"


def _extra_cost(after: NodeLayout, before: NodeLayout) -> tuple[int, ...]:
    """Return the extra cost of one more job: instances destroyed, nodes and GPUs changed, instances created."""
    return (
        after.destroyed - before.destroyed,
        int(not before.changed),
        len(after.changed) - len(before.changed),
        after.created - before.created,
    )
