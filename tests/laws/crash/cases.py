"""Small hosts and desired states whose plans are interrupted at every point."""

from __future__ import annotations

from aliquot.sim.client import SimClient
from laws.crash.bench import Case


def _repartition(node: SimClient) -> list[tuple[int, int]]:
    node.set_mode(0, True)
    held = node.create(0, "2g.12gb", 0)
    node.create(0, "1g.6gb", 2)
    node.create(0, "1g.6gb", 3)
    node.hold(0, held)
    return [(0, held)]


REPARTITION = Case(
    "a held instance next to a repartition",
    "a30",
    _repartition,
    "    - {gpus: {index: 0}, mig: {2g.12gb: 2}}",
    6,
)


def _mode(node: SimClient) -> list[tuple[int, int]]:
    node.set_mode(1, True)
    held = node.create(1, "3g.20gb", 4)
    node.hold(1, held)
    node.inject_fault("reset-pending", gpu=0)
    return [(1, held)]


MODE = Case(
    "MIG mode on Ampere with a reset, a held GPU beside it",
    "a100-sxm4-40gb*2",
    _mode,
    "    - {gpus: {index: 0}, mig: {3g.20gb: 1}}\n    - {gpus: {index: 1}, mig: {3g.20gb: 1}}",
    4,
)


def _split(node: SimClient) -> list[tuple[int, int]]:
    node.set_mode(0, True)
    held = node.create(0, "3g.20gb", 0)
    node.create(0, "3g.20gb", 4)
    node.hold(0, held)
    return [(0, held)]


SPLIT = Case(
    "compute instances in a kept instance, a held one beside it",
    "a100-sxm4-40gb",
    _split,
    "    - gpus: {index: 0}\n"
    "      mig: [{profile: 3g.20gb, placement: 0}, {profile: 3g.20gb, placement: 4, "
    "compute: [1c.3g.20gb, 1c.3g.20gb, 1c.3g.20gb]}]",
    4,
)


def _rebuild(node: SimClient) -> list[tuple[int, int]]:
    node.set_mode(0, True)
    for start in range(4):
        node.create(0, "1g.6gb", start)
    return []


REBUILD = Case(
    "a GPU rebuilt from the ground",
    "a30",
    _rebuild,
    "    - {gpus: {index: 0}, mig: {4g.24gb: 1}}",
    10,
)


def _pair(node: SimClient) -> list[tuple[int, int]]:
    for gpu in (0, 1):
        node.set_mode(gpu, True)
    node.create(0, "4g.24gb", 0)
    held = node.create(1, "1g.6gb", 1)
    kept = node.create(1, "1g.6gb", 0)
    node.create(1, "2g.12gb", 2)
    node.hold(1, held)
    return [(1, held), (1, kept)]


PAIR = Case(
    "two GPUs side by side, one of them held",
    "a30*2",
    _pair,
    "    - {gpus: {index: 0}, mig: {2g.12gb: 2}}\n    - {gpus: {index: 1}, mig: {1g.6gb: 4}}",
    12,
)


def _off(node: SimClient) -> list[tuple[int, int]]:
    node.set_mode(0, True)
    node.create(0, "3g.40gb", 0)
    return []


OFF = Case(
    "MIG mode off and on, on Hopper",
    "h100-80gb-hbm3*2",
    _off,
    "    - {gpus: {index: 0}, mig: disabled}\n    - {gpus: {index: 1}, mig: {7g.80gb: 1}}",
    6,
)

CLEAR = Case(
    "two idle instances go, a held one stays", "a30", _repartition, "    - {gpus: {index: 0}, mig: {2g.12gb: 1}}", 4
)

ALL = (REPARTITION, MODE, SPLIT, REBUILD, PAIR, OFF)
ONE_WORKER = (REPARTITION, MODE, SPLIT, REBUILD)
"""Cases whose calls have only one possible order."""
