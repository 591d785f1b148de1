"""The nodes of E8: their GPUs, and the sizes of their clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

import msgspec
from benchmarks.bench_agent import FIRST, Subject
from benchmarks.bench_cluster import ClusterServer, cluster

EIGHT, ONE = "dgx-a100", "a100"
SHAPES = ("all-1g.5gb", "all-balanced")
CHURN = 10.0
"""Changes of other nodes a second."""
ALONE, RAW = "alone", "raw"
T = TypeVar("T")


class Kind(msgspec.Struct, frozen=True):
    """GPUs, whether there is a kubelet, how many other nodes."""

    template: str
    plugin: bool
    others: int


KINDS = {
    ALONE: Kind(EIGHT, True, 0),
    "no-plugin": Kind(EIGHT, False, 0),
    "one-gpu": Kind(ONE, True, 0),
    "beside-100": Kind(EIGHT, True, 100),
    "beside-1000": Kind(EIGHT, True, 1000),
}


def title(name: str) -> str:
    kind = KINDS[name]
    beside = f", beside {kind.others:,} other nodes" if kind.others else ""
    gpus = "1 GPU" if kind.template == ONE else "8 GPUs"
    return f"{gpus}, {'with' if kind.plugin else 'without'} device plugin{beside}"


def subjects(stack: ExitStack, state: str) -> dict[str, Subject]:
    """Make a node of every kind in a cluster of its own, without starting its agent. The stack removes them."""
    made = {}
    for name, kind in KINDS.items():
        found = stack.enter_context(cluster(kind.plugin, kind.others))
        found.do(ClusterServer.label, FIRST)
        made[name] = Subject(name, found, state, plugin=kind.plugin)
        stack.callback(made[name].stop)
    return made


def all_at_once(subjects: Iterable[Subject], act: Callable[[Subject], T]) -> list[T]:
    """Run a function for each subject in a thread."""
    with ThreadPoolExecutor(len(KINDS)) as pool:
        return list(pool.map(act, subjects))
