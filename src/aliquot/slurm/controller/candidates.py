"""Nodes that this round may repartition: what blocks each of them, and its layout with one more job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from aliquot.core.planner.node_layout import Bounds, NodeLayout, NodeLayoutSearch
from aliquot.slurm.controller import limits as closed
from aliquot.slurm.controller import type_limits as keeping
from aliquot.slurm.controller.job_demand import JobDemand
from aliquot.slurm.controller.layout_gpus import geometry
from aliquot.slurm.controller.models import Repartition, SlurmNodeState, SlurmState
from aliquot.slurm.controller.named_layouts import exact_layout
from aliquot.slurm.controller.placeholders import WORD
from aliquot.slurm.controller.settings import SlurmControllerSettings


class RepartitionOption(msgspec.Struct, frozen=True):
    """A way to repartition a node so that it also serves a job."""

    node_name: str
    need: dict[str, int]
    """The devices that the job needs, by GRES type."""
    cost: tuple[int, ...]
    """The option with the lowest cost is the best."""
    layout: str = ""
    """The named layout that all GPUs get; "" if the job does not request one."""


class Candidates:
    """The nodes, and the repartitions chosen so far.

    ``promised`` are nodes whose free devices a job is about to get. A job behind it in the queue may not have them
    repartitioned. A job before it may, because otherwise a job that never starts would keep a node forever.
    """

    def __init__(
        self,
        state: SlurmState,
        demands: Sequence[JobDemand],
        settings: SlurmControllerSettings,
        now: float,
        promised: Mapping[str, JobDemand],
    ) -> None:
        self._state = state
        self._settings = settings
        self._now = now
        self._promised = promised
        self._kinds = tuple(dict.fromkeys(kind for demand in demands for kind in demand.need))
        self._searches: dict[str, NodeLayoutSearch] = {}
        self._node_states = {r.name: r for r in state.node_states}
        self._assigned: dict[str, list[tuple[int, dict[str, int]]]] = {}
        self._named: dict[str, str] = {}
        self._joining: list[JobDemand] = []
        self._users = {demand.job: demand.user for demand in demands}

    def blocker(self, node_state: SlurmNodeState, demand: JobDemand) -> str:
        """Return why a node is not repartitioned for a job now, or "" if it may be."""
        return (
            closed.state_blocker(node_state)
            or closed.promise_blocker(node_state.name, self._promised, demand)
            or closed.rate_blocker(node_state, self._now)
            or self._cluster(node_state)
            or self._share(node_state, demand)
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

    def _cluster(self, node_state: SlurmNodeState) -> str:
        if node_state.name in self._assigned:
            return ""
        more = len(self._assigned)
        if self._state.recent + more >= self._settings.per_hour:
            return f"{self._state.recent + more} changes in the last hour, at most {self._settings.per_hour}"
        if self._state.active_changes + more >= self._settings.at_once:
            return f"{self._settings.at_once} nodes are already being repartitioned (at-once)"
        bounded = {p for p in keeping.partitions(node_state) if keeping.is_counted(p, self._settings)}
        for other in self._assigned:
            if bounded & set(keeping.partitions(self._node_states[other])):
                return f"{other} of the same partition comes first, because the partition has keep or most"
        for each in self._node_states.values():
            # A node that Slurm lacks during its change may come back in any partition.
            shared = bounded if each.node is None else bounded & set(keeping.partitions(each))
            if each.changing and each.name != node_state.name and shared:
                return f"{each.name} is being repartitioned, and the partition has keep or most"
        return ""

    # -- options

    def option(self, node_state: SlurmNodeState, demand: JobDemand) -> tuple[RepartitionOption | None, str]:
        """Return the cheapest way for a node to serve a job beside those already assigned, or why there is none."""
        why = self.blocker(node_state, demand) or keeping.refusal(node_state, demand.need)
        if why:
            return None, why
        if demand.layouts:
            return self._by_name(node_state, demand)
        if node_state.name in self._named:
            return None, f"it gets the layout {self._named[node_state.name]} for another job"
        search = self._search(node_state)
        requested = [need for _, need in self._assigned.get(node_state.name, [])]
        before = search.find(requested)
        for need in self._needs(node_state, demand):
            after = search.find([*requested, need])
            if all(after.met) and _extra_cost(after, before):
                return RepartitionOption(node_state.name, need, _extra_cost(after, before)), ""
        return None, _no_layout_reason(node_state)

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
                found.append(RepartitionOption(node_state.name, dict(demand.need), cost, name))
        if found:
            return min(found, key=lambda option: option.cost), ""
        if node_state.name in self._assigned:
            return None, "it is repartitioned in another way for another job"
        return None, _no_layout_reason(node_state)

    def would_serve(self, node_state: SlurmNodeState, demand: JobDemand) -> bool:
        """Report whether a busy node could serve a job after its own jobs have ended."""
        node = node_state.node
        if (
            node is None
            or node_state.host.rules.untouched
            or node_state.shut
            or not node.answers
            or not node_state.jobs
        ):
            return False
        if node.draining and not node_state.waiting:
            return False
        empty = [msgspec.structs.replace(c, fixed=frozenset(), locked=False) for c in node_state.gpus]
        search = NodeLayoutSearch(empty, self._bounds(node_state), self._kinds)
        return bool(empty) and any(all(search.find([need]).met) for need in self._needs(node_state, demand))

    def take(self, demand: JobDemand, options: Sequence[RepartitionOption]) -> bool:
        """Choose the best options for the nodes that a job needs. Returns False if the limits allow too few."""
        best = sorted(options, key=lambda o: (o.cost, o.node_name))[: demand.nodes]
        fresh = [o for o in best if o.node_name not in self._assigned]
        if len(self._assigned) + len(fresh) + self._state.active_changes > self._settings.at_once:
            return False
        for option in best:
            self._assigned.setdefault(option.node_name, []).append((demand.job, option.need))
            if option.layout:
                self._named[option.node_name] = option.layout
        return True

    def join(self, demand: JobDemand) -> None:
        """Register a job that may share a node that is repartitioned for others, if it has free slices."""
        if demand.nodes == 1:
            self._joining.append(demand)

    def repartitions(self) -> Iterator[Repartition]:
        """Yield the chosen repartitions, with joined jobs, and with remaining slices filled."""
        joined: set[int] = set()
        for name, pairs in self._assigned.items():
            node_state = self._node_states[name]
            if name in self._named:
                yield self._repartition(
                    node_state,
                    pairs,
                    exact_layout(node_state, self._named[name], self._settings, self._bounds(node_state)),
                )
                continue
            more = [(w, n) for w in self._joining if w.job not in joined for n in self._needs(node_state, w)[:1]]
            fits = [
                (w, n) for w, n in more if set(w.partitions) & set(keeping.partitions(node_state)) or not w.partitions
            ]
            found = self._search(node_state).find([*(need for _, need in pairs), *(need for _, need in fits)])
            joined |= {w.job for (w, _), met in zip(fits, found.met[len(pairs) :], strict=True) if met}
            yield self._repartition(node_state, pairs, found)

    # -- inner

    def _repartition(
        self, node_state: SlurmNodeState, pairs: Sequence[tuple[int, dict[str, int]]], found: NodeLayout | None
    ) -> Repartition:
        assert found is not None, "the layout existed when the node was chosen"
        return Repartition(
            node_name=node_state.name,
            placements={pci: found.placements[pci] for pci in found.changed or found.placements},
            jobs=tuple(job for job, _ in pairs),
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
            kinds = {
                *self._kinds,
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
