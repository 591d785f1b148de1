"""Answers that are kept from look to look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Kept(Generic[P, T]):
    """A function whose last ``most`` answers are kept, by arguments that are equal: what it is asked about has no hash,
    for a driver's own geometry table has none. What it raises is not kept.
    """

    def __init__(self, ask: Callable[P, T], most: int = 1) -> None:
        self._ask, self._most = ask, most
        self._answers: list[tuple[object, T]] = []

    def __call__(self, *args: P.args, **named: P.kwargs) -> T:
        about = args, named
        for former, answer in self._answers:
            if former == about:
                return answer
        answer = self._ask(*args, **named)
        self._answers = [(about, answer), *self._answers][: self._most]
        return answer
