"""Admission: the plugins that may change or refuse a write before it is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from support.standin.call import Call

JSON = dict[str, Any]
Mutator = Callable[[Call, JSON, JSON | None], JSON]
Validator = Callable[[Call, JSON | None, JSON | None], None]
"""Called with the new and the old object. Raises ``RefusalError``."""


class Admission:
    """The plugins, in their order."""

    def __init__(self, mutators: Sequence[Mutator] = (), validators: Sequence[Validator] = ()) -> None:
        self._mutators, self._validators = tuple(mutators), tuple(validators)

    def mutate(self, call: Call, value: JSON, old: JSON | None) -> JSON:
        for mutator in self._mutators:
            value = mutator(call, value, old)
        return value

    def validate(self, call: Call, value: JSON | None, old: JSON | None) -> None:
        for validator in self._validators:
            validator(call, value, old)
