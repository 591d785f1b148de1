"""Records that may be cut in this round: why each may not, and what it would become with one job more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from aliquot.controller.slurm.cards import geometry, makeable
from aliquot.controller.slurm.demands import Want
from aliquot.controller.slurm.exact import exact
from aliquot.controller.slurm.placeholders import WORD
from aliquot.controller.slurm.settings import Settings
from aliquot.controller.slurm.values import MARK, Record, Recut, World
from aliquot.planner.layout import Bounds, Layout, Search

HOUR_S = 3600.0


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
        return self._state(record, want) or self._limits(record) or self._share(record, want)

    def _state(self, record: Record, want: Want) -> str:
        node = record.node
        if record.host.rules.untouched:
            return "it is to be left untouched (settings)"
        if record.shut or node is None:
            return record.shut or "Slurm has no such node now"
        if not node.answers:
            return f"it is {'+'.join(sorted(node.states))} in Slurm ({node.reason or 'no reason given'})"
        if node.draining and not node.reason.startswith(MARK):
            return f"it was drained by somebody else ({node.reason or 'no reason given'})"
        if not record.cards:
            return "it has no GPU that can be cut"
        if record.jobs:
            return f"{record.jobs} {'job has' if record.jobs == 1 else 'jobs have'} resources on it"
        return promise(record.name, self._promised, want)

    def _limits(self, record: Record) -> str:
        limits, now = record.host.limits, self._now
        if now < record.retry_at:
            return f"the last change failed ({record.failure}); tried again in {record.retry_at - now:.0f} s"
        idle = now - record.idle_since
        if idle < limits.idle_s and not record.waiting:
            return f"idle for {idle:.0f} s only, {limits.idle_s:.0f} s are asked (idle)"
        since = now - record.last_cut
        if since < limits.between_s:
            return f"cut {since:.0f} s ago, {limits.between_s:.0f} s lie between two changes (between)"
        if record.recent >= limits.per_hour:
            return f"cut {record.recent} times in the last hour, at most {limits.per_hour} (changes-per-hour)"
        if record.name not in self._assigned:
            return self._cluster(record)
        return ""

    def _share(self, record: Record, want: Want) -> str:
        """The last quarter of an hour's changes is not for whoever has caused all the others."""
        if record.name in self._assigned or not want.user:
            return ""
        mine = [name for name, user in self._world.causes if user == want.user]
        mine += [name for name, jobs in self._assigned.items() if self._users.get(jobs[0][0]) == want.user]
        here, all_here = mine.count(record.name), record.host.limits.per_hour
        if here >= share(all_here):
            return f"{want.user} had it cut {here} times in the last hour: others may have it cut {all_here} times"
        if len(mine) >= share(self._settings.per_hour):
            return f"{want.user} has caused {len(mine)} changes in the last hour: the next ones are for others"
        return ""

    def _cluster(self, record: Record) -> str:
        more = len(self._assigned)
        if self._world.recent + more >= self._settings.per_hour:
            return f"{self._world.recent + more} changes in the last hour, at most {self._settings.per_hour}"
        if self._world.under_way + more >= self._settings.at_once:
            return f"{self._settings.at_once} records are being cut already (at-once)"
        bounded = {p for p in self._partitions(record) if self._rules_of(p)}
        for other in self._assigned:
            if bounded & set(self._partitions(self._records[other])):
                return f"{other} of the same partition is cut first, and counts are kept there"
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
            fits = [(w, n) for w, n in more if set(w.partitions) & set(self._partitions(record)) or not w.partitions]
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
                *(k for layout in self._settings.layouts.values() for k in self._types(record, layout)),
            }
            self._searches[record.name] = Search(record.cards, self._bounds(record), kinds)
        return self._searches[record.name]

    def _types(self, record: Record, counts: Mapping[str, int]) -> dict[str, int]:
        return {kind: counts[profile] for kind, profile in record.names.items() if profile in counts}

    def _bounds(self, record: Record) -> Bounds:
        """The record's own rules and what its partitions need of it, by type."""
        rules = record.host.rules
        least, most = Counter(self._types(record, rules.keep)), dict(self._types(record, rules.most))
        for name in self._partitions(record):
            for kind, asked in self._types(record, self._settings.partition(name).keep).items():
                least[kind] = max(least[kind], asked - self._elsewhere(record, name, kind))
            for kind, limit in self._types(record, self._settings.partition(name).most).items():
                most[kind] = min(most.get(kind, limit), max(0, limit - self._elsewhere(record, name, kind)))
        allowed = {name for card in record.cards for name in makeable(card.family, rules)}
        for kind, profile in record.names.items():
            if profile not in allowed:
                most[kind] = 0
        fill = (*self._kinds, *self._types(record, dict.fromkeys(rules.fill, 1)))
        return Bounds(dict(+least), most, tuple(dict.fromkeys(k for k in fill if k in record.names)))

    def _rules_of(self, partition: str) -> bool:
        rules = self._settings.partition(partition)
        return bool(rules.keep or rules.most)

    @staticmethod
    def _partitions(record: Record) -> tuple[str, ...]:
        return record.node.partitions if record.node else ()

    def _elsewhere(self, record: Record, partition: str, kind: str) -> int:
        """How many devices of a type the partition's other records have."""
        others = (r for r in self._records.values() if r.name != record.name and partition in self._partitions(r))
        return sum(r.node.count(kind) for r in others if r.node is not None and r.node.answers)

    def _features(self, record: Record, found: Layout) -> tuple[str, ...] | None:
        """The node's features with those that name what its GPUs become."""
        layouts = self._settings.layouts
        if not layouts or record.node is None:
            return None
        shapes = [geometry(card, found.cards[card.pci]) for card in record.cards]
        true = [name for name, counts in layouts.items() if all(shape == Counter(counts) for shape in shapes)]
        return (*(f for f in record.node.features if f not in layouts and WORD.fullmatch(f)), *true)


def share(limit: int) -> int:
    """How many of an hour's changes one user may cause."""
    return limit - limit // 4


def promise(name: str, promised: Mapping[str, Want], want: Want) -> str:
    """Why a job may not have promised slices cut; "" if nothing is promised, or to a job behind it."""
    first = promised.get(name)
    if first is None or (want.rank < first.rank and not want.follows):
        return ""
    return f"its free slices are promised to job {first.job}"


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
