"""Requests over eight GPUs together: ``--mig ... --total`` and ``--add``, and what to remove if they do not fit.

As for plans, CPU time of one thread counts. The tables are cold, as in a command.
"""

from __future__ import annotations

import random
from collections import Counter
from statistics import median
from time import thread_time

import msgspec
from benchmarks.measure import Figure, Report, at_most, digest, load, spread
from benchmarks.plan import forget

from aliquot.core.config.select.instance_changes import add_and_remove, total
from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from laws.oracle import mig_nodes, raw

GROUP = "Requests over eight GPUs"
GOAL_MS = 100.0
SEED = 20
FAMILIES = ("a100-80gb", "h100-80gb-sxm", "b200-180gb")
GPUS = 8
REQUESTS = {"--total": 8, "--add": 3, "--add, most do not fit": 6}
"""How many full GPUs the request would take, by kind of request."""

_STATES = {"empty": "empty GPUs", "two": "GPUs in two states in turn", "mixed": "GPUs in different states"}

Request = tuple[Inventory, list[str]]


def run(report: Report, quick: bool) -> None:
    report(load(GROUP))
    each = 2 if quick else 12
    for how, full in REQUESTS.items():
        for state in _STATES if how == "--total" else ("mixed",):
            for kinds in (2, 4, 6):
                cases = [case(family, state, kinds, full, n) for family in FAMILIES for n in range(each)]
                _row(report, f"{how}, {kinds} kinds, {GPUS} {_STATES[state]}", how, cases)


def case(family: str, state: str, kinds: int, full: int, number: int) -> Request:
    """Return a node, and a request that fills this many GPUs with random geometries."""
    dice = random.Random(f"{SEED} {family} {state} {kinds} {full} {number}")
    table = catalog.family(family)
    gpus = []
    states = [sorted(dice.choice(raw.states(family))) for _ in range(2 if state == "two" else GPUS)]
    for n in range(GPUS):
        now = [] if state == "empty" else states[n % len(states)]
        held = [place for place in now if state == "mixed" and dice.random() < 0.1]
        gpu = mig_nodes.gpu(table, now, held, pci=f"0000:{n + 1:02x}:00.0")
        gpus.append(msgspec.structs.replace(gpu, index=n))
    while True:
        names = set(dice.sample([p.name for p in table.profiles], kinds))
        geometries = [g for g in raw.by_geometry(family) if g and {name for name, _ in g} <= names]
        wanted: Counter[str] = Counter()
        for _ in range(full):
            wanted.update(dict(dice.choice(geometries)))
        if len(wanted) == kinds:
            return mig_nodes.node(*gpus), [f"{name}*{n}" for name, n in sorted(wanted.items())]


def _resolve(how: str, request: Request) -> Desired:
    node, texts = request
    return total(["all"], texts, node) if how == "--total" else add_and_remove(["all"], texts, [], node)


def _row(report: Report, title: str, how: str, cases: list[Request]) -> None:
    found = []
    refused = 0
    for request in cases:
        forget()
        start = thread_time()
        desired = _resolve(how, request)
        found.append((thread_time() - start) * 1e3)
        refused += bool(desired.failures)
    code = digest(msgspec.json.encode([[node.fingerprint, texts] for node, texts in cases]))
    value = f"{max(found):.0f} ms CPU at most, {median(found):.0f} ms median"
    verdict = at_most(max(found), GOAL_MS)
    extent = f"{spread(found, '.0f', ' ms')}; {refused} do not fit; sha256 {code}"
    report(Figure(GROUP, title, value, "measured", f"<= {GOAL_MS:g} ms", verdict, extent))
