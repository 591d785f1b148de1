"""Plain YAML scalars by the core schema of YAML 1.2: ``0000:08:00.0`` is text, and so are ``no`` and ``on``.

Source: YAML 1.2.2, section 10.3.2. By YAML 1.1, PyYAML's default, that PCI address is the number 480.0.
"""

from __future__ import annotations

_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_STRANGE = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"}
_LONGEST_NUMBER = 18
"""Maximum digits of a number; a longer scalar stays text."""


def resolve(text: str) -> bool | int | float | str | None:
    """Return the value of a plain scalar. Anything that is not null, a boolean or a number is text."""
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first.isdigit() or first in "+-.":
        return _number(text)
    return text


def _number(text: str) -> int | float | str:
    body = text[1:] if text[0] in "+-" else text
    if len(body) > _LONGEST_NUMBER or not body.isascii():
        return text
    if body.isdigit():
        return int(text)
    for prefix, base, digits in (("0x", 16, "0123456789abcdefABCDEF"), ("0o", 8, "01234567")):
        if text.startswith(prefix):
            return int(text[2:], base) if text[2:] and not text[2:].strip(digits) else text
    if body in _STRANGE:
        return float(text.replace(".", "", 1))
    return float(text) if _is_float(body) else text


def _is_float(body: str) -> bool:
    mantissa, letter, exponent = body.replace("E", "e").partition("e")
    if letter and not (exponent[1:] if exponent[:1] in ("+", "-") else exponent).isdigit():
        return False
    whole, _, fraction = mantissa.partition(".")
    return (whole + fraction).isdigit()
