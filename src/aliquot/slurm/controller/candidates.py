"""Records that may be cut in this round: why each may not, and what it would become with one job more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from aliquot.core.planner.node_layout import Bounds, Layout, Search
from aliquot.slurm.controller import limits as closed
from aliquot.slurm.controller import type_limits as keeping
from aliquot.slurm.controller.job_demand import Want
from aliquot.slurm.controller.layout_gpus import geometry
from aliquot.slurm.controller.models import Record, Recut, World
from aliquot.slurm.controller.named_layouts import exact
from aliquot.slurm.controller.placeholders import WORD
from aliquot.slurm.controller.settings import Settings


class Option(msgspec.Struct, frozen=True):
    """What a record would become with one job more. ``cost`` orders options: the least is the best. ``layout`` is the
    name of the one that all of its GPUs get then, "" where the job asks for none.
    """

    record: str
    need: dict[str, int]
    cost: tuple[int, ...]
    layout: str = ""


class Candidates:
    """The records, and what was chosen so far. ``promised`` are those whose free slices a job is about to have: no job
    behind it may have them cut, but one before it may, or a job that never starts would keep a record for ever.
    """

    def __init__(
        self, world: World, wants: Sequence[Want], settings: Settings, now: float, promised: Mapping[str, Want]
    ) -> None:
        self._world = world
        self._settings = settings
        self._now = now
        self._promised = promised
        self._kinds = tuple(dict.fromkeys(kind for want in wants for kind in want.need))
        self._searches: dict[str, Search] = {}
        self._records = {r.name: r for r in world.records}
        self._assigned: dict[str, list[tuple[int, dict[str, int]]]] = {}
        self._named: dict[str, str] = {}
        self._joining: list[Want] = []
        self._users = {want.job: want.user for want in wants}

    def closed(self, record: Record, want: Want) -> str:
        """Why a record is not cut now for a job; "" if it may be."""
        return (
            closed.state(record)
            or closed.promise(record.name, self._promised, want)
            or closed.limits(record, self._now)
            or self._cluster(record)
            or self._share(record, want)
        )

    def _share(self, record: Record, want: Want) -> str:
        """The last quarter of an hour's changes is not for whoever has caused all the others."""
        if record.name in self._assigned or not want.user:
            return ""
        mine = [name for name, user in self._world.causes if user == want.user]
        mine += [name for name, jobs in self._assigned.items() if self._users.get(jobs[0][0]) == want.user]
        here, all_here = mine.count(record.name), record.host.limits.per_hour
        if here >= closed.share(all_here):
            return f"{want.user} had it cut {here} times in the last hour: others may have it cut {all_here} times"
        if len(mine) >= closed.share(self._settings.per_hour):
            return f"{want.user} has caused {len(mine)} changes in the last hour: the next ones are for others"
        return ""

    def _cluster(self, record: Record) -> str:
        if record.name in self._assigned:
            return ""
        more = len(self._assigned)
        if self._world.recent + more >= self._settings.per_hour:
            return f"{self._world.recent + more} changes in the last hour, at most {self._settings.per_hour}"
        if self._world.under_way + more >= self._settings.at_once:
            return f"{self._settings.at_once} records are being cut already (at-once)"
        bounded = {p for p in keeping.partitions(record) if keeping.counted(p, self._settings)}
        for other in self._assigned:
            if bounded & set(keeping.partitions(self._records[other])):
                return f"{other} of the same partition is cut first, and counts are kept there"
        for each in self._records.values():
            # One that Slurm does not have during its change may come back into any partition.
            shared = bounded if each.node is None else bounded & set(keeping.partitions(each))
            if each.changing and each.name != record.name and shared:
                return f"{each.name} of the same partition is being cut, and counts are kept there"
        return ""

    # -- options

    def option(self, record: Record, want: Want) -> tuple[Option | None, str]:
        """The cheapest way to have a record serve a job beside those that it was chosen for, or why there is none."""
        why = self.closed(record, want)
        if why:
            return None, why
        if want.layouts:
            return self._by_name(record, want)
        if record.name in self._named:
            return None, f"it gets the layout {self._named[record.name]} for another job"
        search = self._search(record)
        asked = [need for _, need in self._assigned.get(record.name, [])]
        before = search.aim(asked)
        for need in self._needs(record, want):
            after = search.aim([*asked, need])
            if all(after.met) and _more(after, before):
                return Option(record.name, need, _more(after, before)), ""
        return None, _tight(record)

    def _by_name(self, record: Record, want: Want) -> tuple[Option | None, str]:
        """The cheapest of the layouts that a job takes, alone with jobs that take the same."""
        found = []
        for name in want.layouts:
            if record.name in self._assigned and self._named.get(record.name) != name:
                continue
            asked = Counter(dict(want.need))
            for _, need in self._assigned.get(record.name, []):
                asked.update(need)
            made = exact(record, name, self._settings, self._bounds(record))
            if made is not None and all(made.offered.get(kind, 0) >= n for kind, n in asked.items()):
                cost = (made.destroyed, 1, len(made.changed), made.created)
                found.append(Option(record.name, dict(want.need), cost, name))
        if found:
            return min(found, key=lambda option: option.cost), ""
        if record.name in self._assigned:
            return None, "it is cut otherwise for another job"
        return None, _tight(record)

    def would(self, record: Record, want: Want) -> bool:
        """Whether a busy record could serve a job once its jobs have ended."""
        node = record.node
        if node is None or record.host.rules.untouched or record.shut or not node.answers or not record.jobs:
            return False
        if node.draining and not record.waiting:
            return False
        empty = [msgspec.structs.replace(c, fixed=frozenset(), still=False) for c in record.cards]
        search = Search(empty, self._bounds(record), self._kinds)
        return bool(empty) and any(all(search.aim([need]).met) for need in self._needs(record, want))

    def take(self, want: Want, options: Sequence[Option]) -> bool:
        """Chooses the best for each node that a job needs. False if limits leave too few."""
        best = sorted(options, key=lambda o: (o.cost, o.record))[: want.nodes]
        fresh = [o for o in best if o.record not in self._assigned]
        if len(self._assigned) + len(fresh) + self._world.under_way > self._settings.at_once:
            return False
        for option in best:
            self._assigned.setdefault(option.record, []).append((want.job, option.need))
            if option.layout:
                self._named[option.record] = option.layout
        return True

    def join(self, want: Want) -> None:
        """A job that is served where a record is cut for others anyway, and room is left."""
        if want.nodes == 1:
            self._joining.append(want)

    def recuts(self) -> Iterator[Recut]:
        """What was chosen, with jobs that join and room left over filled."""
        joined: set[int] = set()
        for name, pairs in self._assigned.items():
            record = self._records[name]
            if name in self._named:
                yield self._recut(record, pairs, exact(record, self._named[name], self._settings, self._bounds(record)))
                continue
            more = [(w, n) for w in self._joining if w.job not in joined for n in self._needs(record, w)[:1]]
            fits = [(w, n) for w, n in more if set(w.partitions) & set(keeping.partitions(record)) or not w.partitions]
            found = self._search(record).aim([*(need for _, need in pairs), *(need for _, need in fits)])
            joined |= {w.job for (w, _), met in zip(fits, found.met[len(pairs) :], strict=True) if met}
            yield self._recut(record, pairs, found)

    # -- inner

    def _recut(self, record: Record, pairs: Sequence[tuple[int, dict[str, int]]], found: Layout | None) -> Recut:
        assert found is not None, "it was there when the record was chosen"
        return Recut(
            record=record.name,
            cards={pci: found.cards[pci] for pci in found.changed or found.cards},
            jobs=tuple(job for job, _ in pairs),
            offered=found.offered,
            destroyed=found.destroyed,
            created=found.created,
            features=self._features(record, found),
            user=self._users.get(pairs[0][0], ""),
        )

    def _needs(self, record: Record, want: Want) -> list[dict[str, int]]:
        """What a job needs of a record: one way, or one for each layout that it takes."""
        if not want.layouts:
            return [dict(want.need)]
        out = []
        for name in want.layouts:
            counts = Counter(want.need)
            for kind, profile in record.names.items():
                every = self._settings.layouts.get(name, {}).get(profile, 0)
                counts[kind] = max(counts[kind], every * sum(kind in c.kinds for c in record.cards))
            out.append(dict(+counts))
        return out

    def _search(self, record: Record) -> Search:
        if record.name not in self._searches:
            kinds = {
                *self._kinds,
                *(k for layout in self._settings.layouts.values() for k in keeping.types(record, layout)),
            }
            self._searches[record.name] = Search(record.cards, self._bounds(record), kinds)
        return self._searches[record.name]

    def _bounds(self, record: Record) -> Bounds:
        return keeping.bounds(record, self._records.values(), self._settings, self._kinds)

    def _features(self, record: Record, found: Layout) -> tuple[str, ...] | None:
        """The node's features with those that name what its GPUs become."""
        layouts = self._settings.layouts
        if not layouts or record.node is None:
            return None
        shapes = [geometry(card, found.cards[card.pci]) for card in record.cards]
        true = [name for name, counts in layouts.items() if all(shape == Counter(counts) for shape in shapes)]
        return (*(f for f in record.node.features if f not in layouts and WORD.fullmatch(f)), *true)


def _tight(record: Record) -> str:
    text = "its GPUs cannot be cut so beside what is in use there, or to be kept"
    whole = [card.pci for card in record.cards if card.placed is None and not card.modes]
    if not whole:
        return text
    return f"{text}; MIG is off on GPU {', '.join(whole)}, and 'modes: true' in the settings would turn it on"


def _more(after: Layout, before: Layout) -> tuple[int, ...]:
    """What one job more costs: records and GPUs touched, instances destroyed and made."""
    return (
        after.destroyed - before.destroyed,
        int(not before.changed),
        len(after.changed) - len(before.changed),
        after.created - before.created,
    )
