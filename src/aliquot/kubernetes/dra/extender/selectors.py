"""Selectors of device classes and claims, as far as they compare fields: the part of CEL that device classes use.

A selector is a conjunction of ``device.driver == 'DRIVER'`` and ``device.attributes['DOMAIN'].NAME == VALUE``. Other
expressions are not evaluated: the extender then gives no opinion about the pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from aliquot.kubernetes.dra.model.objects import DeviceAttribute

_ABSENT = DeviceAttribute()
_STRING = r"'[^'\\]*'|\"[^\"\\]*\""
_TERM = re.compile(
    rf"""\s*(?:device\.driver
      |device\.attributes\[(?P<domain>{_STRING})\](?:\.(?P<name>[A-Za-z_]\w*)|\[(?P<quoted>{_STRING})\]))
    \s*==\s*(?:(?P<text>{_STRING})|(?P<flag>true|false)|(?P<number>-?\d{{1,18}}))\s*""",
    re.VERBOSE | re.ASCII,
)
_MOST_CHARACTERS = 10_000


class UnknownRequestError(ValueError):
    """A pod requests devices in a way that the extender does not predict."""


class FieldCondition(msgspec.Struct, frozen=True):
    """A field of a device that must have a value."""

    domain: str
    """Of the attribute. Empty for the name of the driver."""
    name: str
    value: str | bool | int

    def holds(self, driver: str, attributes: dict[str, DeviceAttribute]) -> bool:
        if not self.domain:
            return driver == self.value
        found = attributes.get(f"{self.domain}/{self.name}", _ABSENT)
        if found is _ABSENT and self.domain == driver:
            found = attributes.get(self.name, _ABSENT)
        if isinstance(self.value, str):
            return found.string_value == self.value
        return (found.bool_value if isinstance(self.value, bool) else found.int_value) == self.value


def read_selectors(expressions: Iterable[str]) -> tuple[FieldCondition, ...]:
    """Return the conditions of several expressions, which must all hold. Raises UnknownRequestError."""
    return tuple(condition for text in expressions for condition in _read(text))


@lru_cache(maxsize=256)
def _read(expression: str) -> tuple[FieldCondition, ...]:
    conditions = []
    position = 0
    while len(expression) <= _MOST_CHARACTERS:
        found = _TERM.match(expression, position)
        if found is None:
            break
        conditions.append(_condition(found))
        position = found.end()
        if position == len(expression):
            return tuple(conditions)
        if not expression.startswith("&&", position):
            break
        position += 2
    raise UnknownRequestError(f"the selector {expression[:200]!r} is more than a comparison of attributes")


def _condition(found: re.Match[str]) -> FieldCondition:
    domain = (found["domain"] or "''")[1:-1]
    name = found["name"] or (found["quoted"] or "''")[1:-1]
    if found["text"]:
        return FieldCondition(domain, name, found["text"][1:-1])
    return FieldCondition(domain, name, int(found["number"]) if found["number"] else found["flag"] == "true")
