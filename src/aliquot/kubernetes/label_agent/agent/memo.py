"""Answers that are kept from look to look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Memoized(Generic[P, T]):
    """A function whose last ``size`` answers are kept, by arguments that are equal: what it is asked about has no hash,
    for a driver's own geometry table has none. What it raises is not kept.
    """

    def __init__(self, function: Callable[P, T], size: int = 1) -> None:
        self._function, self._size = function, size
        self._answers: list[tuple[object, T]] = []

    def __call__(self, *args: P.args, **named: P.kwargs) -> T:
        arguments = args, named
        for known_arguments, answer in self._answers:
            if known_arguments == arguments:
                return answer
        answer = self._function(*args, **named)
        self._answers = [(arguments, answer), *self._answers][: self._size]
        return answer
