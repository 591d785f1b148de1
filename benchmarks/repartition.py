"""E3: one GPU from every placed state to every geometry, in destroyed instances, seconds, and calls of a refusal."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement
from statistics import median

from benchmarks import times
from benchmarks.clear_and_try import replay
from benchmarks.measure import Figure, Report, at_least, at_most, digest_files

from aliquot.core.model import catalog
from aliquot.core.model.actions import Create, Destroy
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan
from laws.oracle import mig_nodes, raw

GROUP = "E3 one-GPU repartition"
Geometry = tuple[tuple[str, int], ...]
Pair = tuple[raw.State, Geometry]


class Totals:
    """Sums over many pairs."""

    def __init__(self) -> None:
        self.pairs = 0
        self.ours = self.best = self.peer = 0
        self.worse = 0
        self.seconds = self.rebuild = self.peer_seconds = 0.0
        self.peer_failed = 0

    def add(self, family: str, pair: Pair, targets: tuple[raw.State, ...]) -> None:
        now, geometry = pair
        wanted = names(geometry)
        made = planned(family, now, wanted)
        table = times.of(family)
        gone = [a.profile for a in made.actions if isinstance(a, Destroy)]
        least = raw.least(now, frozenset(), targets)[1]
        peer = replay(family, now, wanted)
        self.pairs += 1
        self.ours += len(gone)
        self.best += least
        self.worse += len(gone) > least
        self.peer += len(peer.destroyed)
        self.peer_failed += not peer.done
        self.seconds += times.seconds(table, gone, [a.profile for a in made.actions if isinstance(a, Create)])
        self.rebuild += times.seconds(table, [n for n, _ in now], wanted)
        self.peer_seconds += times.seconds(table, peer.destroyed, peer.created)


def names(geometry: Geometry) -> list[str]:
    return [name for name, n in geometry for _ in range(n)]


def planned(family: str, now: raw.State, wanted: list[str]) -> Plan:
    table = catalog.family(family)
    return plan(mig_nodes.node(mig_nodes.gpu(table, now)), mig_nodes.desired_state(table, wanted))


def run(report: Report, quick: bool) -> None:
    files = [str(raw.CATALOG / "mig" / f"{f}.yaml") for f in raw.families()]
    report(Figure(GROUP, "inputs: reviewed tables of all families", f"sha256 {digest_files(files)}", "replayed"))
    plain = {"1g", "2g", "3g", "4g", "7g"}
    for family, wide in (
        ("a100-40gb", False),
        ("h100-80gb-sxm", False),
        ("a30-24gb", False),
        ("h100-80gb-sxm", True),
    ):
        chosen = [p["name"] for p in raw.table(family)["profiles"] if not p["attributes"]]
        if not wide:
            chosen = [n for n in chosen if not _double(family, n) and n[:2] in plain]
        states, geometries = states_of(family, frozenset(chosen))
        pairs = [(now, g) for now in states for g in geometries]
        title = f"{family}{', 1g with double memory too' if wide else ''}: {len(states)} x {len(geometries)}"
        if quick:
            pairs = random.Random(3).sample(pairs, min(400, len(pairs)))
        _report(report, title, family, pairs, geometries)
    _all_families(report, 40 if quick else 400)
    _infeasible(report)


def _double(family: str, name: str) -> bool:
    """Report whether a profile has one compute slice and two of a GPU's eight memory slices."""
    doc = raw.table(family)
    row = next(p for p in doc["profiles"] if p["name"] == name)
    return bool(row["compute_slices"] == 1 and row["placements"]["size"] == 2 and doc["geometry"]["memory_slices"] == 8)


def states_of(family: str, chosen: frozenset[str]) -> tuple[list[raw.State], dict[Geometry, tuple[raw.State, ...]]]:
    """Return the states and geometries that use only some profiles."""
    states = [s for s in raw.states(family) if all(n in chosen for n, _ in s)]
    geometries = {g: t for g, t in raw.by_geometry(family).items() if all(n in chosen for n, _ in g)}
    return states, geometries


def _report(
    report: Report, title: str, family: str, pairs: list[Pair], geometries: dict[Geometry, tuple[raw.State, ...]]
) -> None:
    totals = Totals()
    for pair in pairs:
        totals.add(family, pair, geometries[pair[1]])
    _print_report(report, title, totals)


def _print_report(report: Report, title: str, t: Totals) -> None:
    over = f"{t.worse} of {t.pairs} pairs above it"
    report(
        Figure(
            GROUP,
            f"{title}: instances destroyed over the brute-force optimum",
            f"{t.ours / t.best:.3f}x",
            "replayed",
            "1.00x",
            at_most(t.ours / t.best, 1.0) if not t.worse else "missed",
            over,
        )
    )
    gain = t.rebuild / t.seconds
    value = f"{gain:.2f}x less ({t.seconds / t.pairs:.2f} s against {t.rebuild / t.pairs:.2f} s in the mean)"
    goal = 1.58
    report(
        Figure(
            GROUP,
            f"{title}: hardware time, full rebuild over ours",
            value,
            "replayed",
            f">= {goal}x",
            at_least(gain, goal),
        )
    )
    failed = f", {t.peer_failed} of {t.pairs} failed" if t.peer_failed else ""
    value = f"{t.peer / t.ours:.2f}x destroyed, {t.peer_seconds / t.seconds:.2f}x hardware time{failed}"
    report(Figure(GROUP, f"{title}: clear-and-try over ours", value, "replayed"))


def _all_families(report: Report, samples: int) -> None:
    totals = Totals()
    for family in raw.families():
        dice = random.Random(f"{family}/3")
        states, geometries = raw.states(family), raw.by_geometry(family)
        for _ in range(samples):
            geometry = dice.choice(list(geometries))
            totals.add(family, (dice.choice(states), geometry), geometries[geometry])
    _print_report(
        report, f"all {len(raw.families())} families, every profile, {samples} pairs each (seed family/3)", totals
    )


def _infeasible(report: Report) -> None:
    """Measure requests that no placement can meet although they have seven compute slices at most."""
    family = "h100-80gb-sxm"
    calls: list[int] = []
    seconds: list[float] = []
    attempts: list[int] = []
    ours = 0
    for wanted in infeasible(family):
        peer = replay(family, frozenset(), wanted)
        assert not peer.done
        calls.append(peer.calls)
        attempts.append(peer.attempts)
        seconds.append(times.seconds(times.of(family), peer.destroyed, peer.created))
        made = planned(family, frozenset(), wanted)
        assert made.blocked
        ours += len(made.actions)
    title = f"{len(calls)} infeasible requests on {family}"
    report(Figure(GROUP, f"{title}: calls before our no", str(ours), "replayed", "0", at_most(ours, 0)))
    value = (
        f"up to {max(calls)} calls, {max(attempts)} orders, {max(seconds):.0f} s of hardware "
        f"(median {median(calls):.0f} calls, {median(seconds):.0f} s)"
    )
    report(Figure(GROUP, f"{title}: calls before the peer's no", value, "replayed"))


def infeasible(family: str) -> Iterator[list[str]]:
    """Yield multisets of 1g, 1g with double memory, 2g, 3g, 4g and 7g that have no placement.

    They fit by compute slices and by the maximum of each profile.
    """
    rows = [p for p in raw.table(family)["profiles"] if not p["attributes"]]
    possible = raw.by_geometry(family)
    for size in range(1, 8):
        for chosen in combinations_with_replacement(rows, size):
            if sum(p["compute_slices"] for p in chosen) > 7:
                continue
            counts = Counter(p["name"] for p in chosen)
            if any(counts[p["name"]] > p["max_instances"] for p in chosen):
                continue
            if tuple(sorted(counts.items())) not in possible:
                yield [p["name"] for p in chosen]
