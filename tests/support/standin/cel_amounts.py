"""CEL's quantities and semantic versions."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from support.standin.quantity import amount

_SEMVER = re.compile(r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$")


class Quantity(msgspec.Struct, frozen=True):
    """The value of ``quantity("40Gi")``."""

    value: Decimal


class SemanticVersion(msgspec.Struct, frozen=True):
    """The value of ``semver("1.2.3-rc.1")``; build metadata is dropped, because it does not count in comparisons."""

    numbers: tuple[int, int, int]
    prerelease: tuple[str, ...] = ()

    def rank(self) -> tuple[Any, ...]:
        """Return what orders versions: a release is above its pre-releases, and words are above numbers in these."""
        parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.prerelease]
        return (self.numbers, not self.prerelease, parts)


def quantity(text: str) -> Quantity:
    """Parse a quantity.

    Raises:
        TypeError: it is not one
    """
    value = amount(text)
    if value is None:
        raise TypeError(text)
    return Quantity(value)


def semver(text: str) -> SemanticVersion:
    """Parse a version.

    Raises:
        TypeError: it is not one
    """
    found = _SEMVER.match(text)
    if found is None:
        raise TypeError(text)
    major, minor, patch = (int(part) for part in found.group(1, 2, 3))
    return SemanticVersion((major, minor, patch), tuple(found[4].split(".")) if found[4] else ())


def _compare(left: Any, right: Any) -> int:
    if type(left) is not type(right) or not isinstance(left, Quantity | SemanticVersion):
        raise TypeError("no such overload")
    if isinstance(left, Quantity):
        return int(left.value > right.value) - int(left.value < right.value)
    return int(left.rank() > right.rank()) - int(left.rank() < right.rank())


def _valid(parse: Callable[[str], Any], text: str) -> bool:
    try:
        parse(text)
    except TypeError:
        return False
    return True


def _number(position: int) -> Callable[[SemanticVersion], int]:
    def number(version: SemanticVersion) -> int:
        if not isinstance(version, SemanticVersion):
            raise TypeError("no such overload")
        return version.numbers[position]

    return number


def _integer(value: Quantity) -> int:
    if not isinstance(value, Quantity) or value.value != value.value.to_integral_value():
        raise TypeError("cannot convert value to integer")
    return int(value.value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": quantity,
    "isQuantity": lambda text: _valid(quantity, text),
    "semver": semver,
    "isSemver": lambda text: _valid(semver, text),
}
METHODS: dict[str, Callable[..., Any]] = {
    "compareTo": _compare,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "asInteger": _integer,
    "sign": lambda value: _compare(value, Quantity(Decimal(0))),
    "major": _number(0),
    "minor": _number(1),
    "patch": _number(2),
}
