"""Memoization of functions with unhashable arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Memoized(Generic[P, T]):
    """A function that caches its last ``size`` results by equality of the arguments.

    The arguments have no hash, as they include a driver's geometry table. Exceptions are not cached.
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
