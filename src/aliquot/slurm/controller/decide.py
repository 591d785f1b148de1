"""Which records are cut anew, for which jobs: a pure function of the cluster, the queue and the settings.

Jobs are taken in their order. One that free slices suit has them promised, and nobody cuts them for a while. For one
that none suit, an idle record is looked for that can be cut so: the one where the least is destroyed. No record that
has a job is ever cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from aliquot.slurm.controller import cloud_records as cloud
from aliquot.slurm.controller import limits as closed
from aliquot.slurm.controller.candidates import Candidates
from aliquot.slurm.controller.cloud_records import Swap
from aliquot.slurm.controller.job_demand import Queue, Want
from aliquot.slurm.controller.models import (
    ALONE,
    COVERED,
    CUT,
    DRAINED,
    STUCK,
    WAITS,
    Decision,
    Drain,
    Record,
    Recut,
    Verdict,
    World,
)
from aliquot.slurm.controller.settings import Host, Settings


def decide(world: World, queue: Queue, settings: Settings, now: float) -> Decision:
    """What to do now (seconds of the epoch)."""
    return _Round(world, queue, settings, now).decision()


def types_text(need: dict[str, int]) -> str:
    """``a100_3g.20gb:2,a100_1g.5gb``: as jobs ask for it."""
    return ",".join(kind if n == 1 else f"{kind}:{n}" for kind, n in need.items())


class _Round:
    def __init__(self, world: World, queue: Queue, settings: Settings, now: float) -> None:
        self.world = world
        self.queue = queue
        self.settings = settings
        self.now = now
        self.verdicts: dict[int, Verdict] = {}
        self.covered: list[int] = []
        self.drains: list[Drain] = []
        self.swaps: list[Swap] = []

    def decision(self) -> Decision:
        for each in self.queue.alone:
            self._say(each.job, ALONE, each.why)
        open_wants = self._uncovered(self._allowed())
        chosen = Candidates(self.world, open_wants, self.settings, self.now, self._promised)
        later = []
        for want in open_wants:
            if want.follows:
                later.append(want)
            else:
                self._serve(want, chosen)
        self._follow(later, chosen)
        recuts = tuple(chosen.recuts())
        for recut in recuts:
            for job in recut.jobs:
                self._cut(job, recut)
        kept = {d.record for d in self.drains} | {r.record for r in recuts}
        resume = tuple(r.name for r in self.world.records if r.waiting and not r.shut and r.name not in kept)
        ordered = tuple(self.verdicts[job] for job in sorted(self.verdicts))
        return Decision(recuts, tuple(self.swaps), tuple(self.drains), resume, tuple(self.covered), ordered)

    def _say(self, job: int, state: str, sentence: str, records: Iterable[str] = (), why: Iterable[str] = ()) -> None:
        self.verdicts[job] = Verdict(job, state, sentence, tuple(records), tuple(why))

    def _allowed(self) -> list[Want]:
        """Wants of partitions that may bring about a change."""
        fine = []
        for want in self.queue.wants:
            rules = [self.settings.partition(p) for p in want.partitions] or [self.settings.partition("")]
            wanted = {name for r in self.world.records for kind, name in r.names.items() if kind in want.need}
            if not any(r.demands for r in rules):
                self._say(want.job, ALONE, f"nothing is cut for jobs of partition {','.join(want.partitions)}")
            elif not any(r.demands and (r.profiles is None or wanted <= set(r.profiles)) for r in rules):
                text = ", ".join(sorted(wanted))
                self._say(want.job, ALONE, f"partition {','.join(want.partitions)} is not allowed {text}")
            else:
                fine.append(want)
        return fine

    # -- what is there

    def _uncovered(self, wants: list[Want]) -> list[Want]:
        """Wants that no free slices suit. Those that some do have them promised, in their order."""
        free = {r.name: r.free for r in self.world.records}
        self._promised: dict[str, Want] = {}
        self._suited: dict[int, int] = {}
        left = []
        for want in wants:
            suits = [r for r in self.world.records if not unsuited(r, want) and self._has(r, want, free[r.name])]
            self._suited[want.job] = len(suits)
            if len(suits) < want.nodes:
                left.append(want)
                continue
            self.covered.append(want.job)
            since = self.world.promised.get(want.job, self.now)
            if self.now - since > self.settings.promise_s:
                text = f"free slices suit it for {self.now - since:.0f} s, and Slurm does not start it ({want.reason})"
                self._say(want.job, STUCK, text, (r.name for r in suits[: want.nodes]))
                continue
            best = sorted(suits, key=lambda r: (r.name not in self._promised, sum(free[r.name].values()), r.name))
            for record in best[: want.nodes]:
                free[record.name] -= Counter(want.need)
                self._promised.setdefault(record.name, want)
            where = [r.name for r in best[: want.nodes]]
            self._say(want.job, COVERED, f"free slices of {', '.join(where)} suit it", where)
        return left

    def _has(self, record: Record, want: Want, free: Counter[str]) -> bool:
        node = record.node
        if node is None or node.draining or record.shut:
            return False
        if want.layouts and not set(want.layouts) & set(node.features):
            return False
        return all(free[kind] >= n for kind, n in want.need.items())

    # -- what could be

    def _serve(self, want: Want, chosen: Candidates) -> None:
        if self.now - self.world.stuck.get(want.job, float("-inf")) < 5 * self.settings.promise_s:
            self._say(want.job, STUCK, f"slices were cut for it, and Slurm did not start it ({want.reason})")
            return
        soon = self.world.cutting.get(want.job, ())
        if soon and len(soon) + self._suited[want.job] >= want.nodes:
            # Another record beside it would be cut for nothing; should the change fail, it is looked at again.
            self._say(want.job, CUT, f"{', '.join(soon)} {'is' if len(soon) == 1 else 'are'} being cut for it", soon)
            return
        cut = [r for r in self.world.records if not r.cloud]
        why: dict[str, str] = {r.name: unsuited(r, want) for r in cut}
        options = []
        for record in cut:
            if not why[record.name]:
                option, why[record.name] = chosen.option(record, want)
                if option is not None:
                    options.append(option)
        lines = tuple(f"{name}: {text}" for name, text in why.items() if text)
        if len(options) >= want.nodes and chosen.take(want, options):
            return
        lines += self._swap(want)
        if want.job not in self.verdicts:
            self._patience(want, chosen, lines)

    def _swap(self, want: Want) -> tuple[str, ...]:
        """Another CLOUD record of a host is opened for a job; or why none is."""
        taken = {s.host for s in self.swaps}
        groups = [g for g in self.world.groups if g.host not in taken]
        soon = cloud.coming(groups, want)
        if soon and want.nodes == 1:
            self._say(want.job, CUT, f"{soon} is being opened, and suits it", (soon,))
            return ()
        found: list[Swap] = []
        why = []
        for group in groups:
            nodes = [n for n in group.nodes if n.name != group.target and cloud.offers(n, want)]
            suits = [n for n in nodes if not unsuited(Record(Host(n.name), n), want)]
            kept = [name for name in self._promised if closed.promise(name, self._promised, want)]
            reason = cloud.closed(group, kept, self.now) if suits else "none of its records suits the job"
            if reason:
                why.append(f"{group.host}: {reason}")
            else:
                found.append(Swap(group.host, min(n.name for n in suits), (want.job,), want.user))
        mine = sum(user == want.user for _, user in self.world.causes) + sum(s.user == want.user for s in self.swaps)
        if want.user and mine + want.nodes > closed.share(self.settings.per_hour):
            return (*why, f"{want.user} has caused {mine} changes in the last hour: the next ones are for others")
        if len(found) >= want.nodes and self.world.recent + len(self.swaps) + want.nodes <= self.settings.per_hour:
            self.swaps += found[: want.nodes]
            names = [s.record for s in found[: want.nodes]]
            self._say(want.job, CUT, f"{', '.join(names)} is opened for it", names)
        return tuple(why)

    def _patience(self, want: Want, chosen: Candidates, lines: tuple[str, ...]) -> None:
        """A busy record stops taking jobs for one that has waited long; no more at a time than may be cut at a time, or
        one user's queue would close the cluster.
        """
        waited = self.now - max(want.submitted, want.eligible)
        more = len(self.drains) < self.settings.at_once
        for record in sorted(self.world.records if more else (), key=lambda r: (not r.waiting, r.jobs, r.name)):
            patience = record.host.limits.patience_s
            taken = any(d.record == record.name for d in self.drains)
            if patience is None or waited < patience or want.nodes > 1 or unsuited(record, want) or taken:
                continue
            if chosen.would(record, want):
                self.drains.append(Drain(record.name, want.job))
                text = f"{record.name} takes no new jobs; when the {record.jobs} that it has have ended, it is cut"
                self._say(want.job, DRAINED, text, (record.name,), lines)
                return
        text = f"no record can be cut for {types_text(want.need) or ' or '.join(want.layouts)} now"
        known = {kind for r in self.world.records for kind in r.names}
        if not known & set(want.need) and not want.layouts:
            text = f"no GPU of the records can have {types_text(want.need)}"
        self._say(want.job, WAITS, text, (), lines)

    def _follow(self, later: list[Want], chosen: Candidates) -> None:
        """Jobs whose turn it is not yet: they bring about a change only where nothing that could be served stands
        before them in their partition, and they take part in changes made for others.
        """
        before = {p for v in self.queue.wants if not v.follows and self._moves(v) for p in v.partitions}
        for want in later:
            if before & set(want.partitions):
                self._say(want.job, WAITS, "other jobs are before it (Priority)")
                chosen.join(want)
            else:
                self._serve(want, chosen)
                before |= set(want.partitions) if self._moves(want) else set()

    def _moves(self, want: Want) -> bool:
        """Whether something happens for a job, so that those behind it may wait for it."""
        verdict = self.verdicts.get(want.job)
        return verdict is None or verdict.state in (COVERED, CUT, DRAINED)

    def _cut(self, job: int, recut: Recut) -> None:
        known = self.verdicts.get(job)
        records = sorted({*(known.records if known and known.state == CUT else ()), recut.record})
        self._say(job, CUT, f"{', '.join(records)} is cut for it", records)


def unsuited(record: Record, want: Want) -> str:
    """Why a job cannot run on a record whatever its GPUs are; "" if it can."""
    node = record.node
    if node is None:
        return "Slurm has no such node now"
    if want.partitions and not set(want.partitions) & set(node.partitions):
        return f"not in partition {','.join(want.partitions)}"
    if (want.required and record.name not in want.required) or record.name in want.excluded:
        return "the job asks for other nodes"
    missing = [f for f in want.features if f not in node.features]
    if missing:
        return f"has no feature {', '.join(missing)}"
    if want.cpus > node.cpus or want.memory_mib > node.memory_mib:
        return f"too small: {node.cpus} CPUs, {node.memory_mib} MiB"
    return ""
