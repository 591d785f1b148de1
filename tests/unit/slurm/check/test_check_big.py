"""Files of big clusters: the cost of a check grows linearly with them."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from aliquot.slurm.check.api import check
from aliquot.slurm.check.finding import CheckInput
from support.factory import inventory

from .judging import cut, given

SHARED = " NodeHostname=h{n}"


def cluster(nodes: int, words: str) -> CheckInput:
    names = [f"n{n}" for n in range(nodes)]
    lines = "".join(
        f"NodeName={name} Gres=gpu:a100_3g.20gb:1{words.format(n=n // 2)}\n" for n, name in enumerate(names)
    )
    return given(
        lines,
        "".join(cut("a100_3g.20gb", 1, n % 2, name) for n, name in enumerate(names)),
        inventories=dict.fromkeys(names, inventory("a100-sxm4-40gb*2")),
    )


def calls(looked_at: CheckInput) -> int:
    """Return the number of calls and returns of functions, including C functions and each step of a generator."""
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(counted)
    try:
        check(looked_at)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("words", ["", SHARED], ids=["a host each", "two on a host"])
def test_twice_the_nodes_cost_twice_as_much(words: str) -> None:
    calls(cluster(5, words))  # warms up the caches
    small, big = calls(cluster(60, words)), calls(cluster(120, words))
    assert big < 2.2 * small
