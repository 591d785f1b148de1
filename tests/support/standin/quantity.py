"""Resource quantities: ``1.5Gi`` is stored as ``1536Mi``."""

from __future__ import annotations

import re
from decimal import ROUND_UP, Decimal

_FORM = re.compile(r"^([+-]?\d+\.?\d*|[+-]?\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?$")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def amount(text: str) -> Decimal | None:
    """Return the value, or None if the text is not a quantity."""
    found = _FORM.match(text)
    if found is None:
        return None
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in _BINARY[1:]:
        return number * Decimal(1024) ** _BINARY.index(suffix)
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return number.scaleb(int(suffix[1:]))
    return number.scaleb(_DECIMAL[suffix])


def canonical(text: str) -> str | None:
    """Return the form that the server stores: no fraction, the largest suffix that keeps the value. None if it is not a
    quantity.
    """
    value = amount(text)
    if value is None:
        return None
    found = _FORM.match(text)
    suffix = (found[2] or "") if found else ""
    if suffix in _BINARY[1:] and abs(value) >= 1024 and value == value.to_integral_value():
        return _binary(int(value))
    exponent = suffix[:1] in ("e", "E") and len(suffix) > 1
    return _decimal(value, exponent=exponent)


def _binary(value: int) -> str:
    power = 0
    while value and value % 1024 == 0 and power < len(_BINARY) - 1:
        value, power = value // 1024, power + 1
    return f"{value}{_BINARY[power]}"


def _decimal(value: Decimal, *, exponent: bool) -> str:
    nano = int(value.scaleb(9).to_integral_value(rounding=ROUND_UP))
    if nano == 0:
        return "0"
    power = -9
    while nano % 1000 == 0 and power < 18:
        nano, power = nano // 1000, power + 3
    if exponent:
        return f"{nano}e{power}" if power else str(nano)
    return f"{nano}{next(name for name, p in _DECIMAL.items() if p == power)}"
