"""Label names and values: the rules of Kubernetes, and the spelling of gpu-feature-discovery (GFD).

Kubernetes allows 63 characters: letters, digits, ``-``, ``_`` and ``.``, with a letter or digit at both ends. A value
may be empty. Sources: Kubernetes' rules for qualified names and label values; GFD's documentation and observed output.
"""

from __future__ import annotations

import re

LIMIT = 63
"""Maximum number of characters in a label value, and in a label or resource name after its prefix."""

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_OTHER = re.compile(r"[^A-Za-z0-9._ -]")

_FAMILIES = {7: "volta", 8: "ampere", 9: "hopper", 10: "blackwell", 11: "blackwell", 12: "blackwell", 13: "rubin"}


def is_name(text: str) -> bool:
    """Report whether the text is valid after the ``/`` of a label or resource name, or as a non-empty label value."""
    return len(text) <= LIMIT and _NAME.fullmatch(text) is not None


def value(text: str) -> str:
    """Convert a text to a valid label value: drop other characters, replace blanks by ``-``, truncate at a word."""
    return _truncate("-".join(_OTHER.sub("", text).split()), LIMIT)


def product_value(model: str, *parts: str) -> str:
    """Return ``<model>-MIG-1g.10gb`` in GFD's spelling.

    If this is longer than Kubernetes allows (long board names), the last words of the model are dropped, not the parts.
    """
    tail = "".join(f"-{value(part)}" for part in parts)
    head = _truncate(value(model), max(1, LIMIT - len(tail)))
    return _truncate(head + tail, LIMIT)


def _truncate(text: str, limit: int) -> str:
    if len(text) > limit:
        short = text[: limit + 1].rpartition("-")[0]
        text = short or text[:limit]
    return text.strip("-_.")


def profile_word(profile: str) -> str:
    """Return a profile as written in names and values: ``1g.5gb.me`` for ``1g.5gb+me``; ``1g.12gb-me`` as it is."""
    return value(re.sub(r"[+,]", ".", profile))


def subdomain(product: str) -> str:
    """Return a product as the first part of a label prefix, in lower case (``nvidia-a100-sxm4-40gb``)."""
    return "-".join(re.findall(r"[a-z0-9]+", value(product).lower()))


def version_parts(version: str) -> tuple[str, str, str]:
    """Split a driver version into major, minor and revision; a missing part is empty (``570.86`` has no revision)."""
    parts = [value(part) for part in version.split(".")]
    major, minor, revision = [*parts, "", "", ""][:3]
    return major, minor, revision


def family(capability: tuple[int, int]) -> str:
    """Return the architecture of a CUDA compute capability; ``undefined`` if it is unknown, as in GFD."""
    major, minor = capability
    if (major, minor) >= (7, 5) and major == 7:
        return "turing"
    if (major, minor) == (8, 9):
        return "ada-lovelace"
    return _FAMILIES.get(major, "undefined")
