"""Label names and values: what Kubernetes allows, and how gpu-feature-discovery (GFD) spells products and versions.

Sources: Kubernetes' rules for qualified names and label values (63 characters; letters, digits, ``-``, ``_``, ``.``,
with a letter or digit at both ends; a value may be empty); GFD's documentation and observed output for the rest.
"""

from __future__ import annotations

import re

LIMIT = 63
"""Characters of a label value, and of a label or resource name after its prefix."""

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_OTHER = re.compile(r"[^A-Za-z0-9._ -]")

_FAMILIES = {7: "volta", 8: "ampere", 9: "hopper", 10: "blackwell", 11: "blackwell", 12: "blackwell", 13: "rubin"}


def is_name(text: str) -> bool:
    """Whether this may stand after the ``/`` of a label or resource name, or be a label value that is not empty."""
    return len(text) <= LIMIT and _NAME.fullmatch(text) is not None


def value(text: str) -> str:
    """The text as a legal label value: other characters are dropped, blanks become ``-``, a long one ends at a word."""
    return _truncate("-".join(_OTHER.sub("", text).split()), LIMIT)


def product_value(model: str, *parts: str) -> str:
    """``<model>-MIG-1g.10gb``. GFD's spelling; where it would be longer than Kubernetes takes (long board names), the
    model loses its last words and the parts stay whole.
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
    """A profile as it stands in names and values: ``1g.5gb+me`` is ``1g.5gb.me``; ``1g.12gb-me`` stays."""
    return value(re.sub(r"[+,]", ".", profile))


def subdomain(product: str) -> str:
    """A product as the first part of a label's prefix: its value in lower case (``nvidia-a100-sxm4-40gb``)."""
    return "-".join(re.findall(r"[a-z0-9]+", value(product).lower()))


def version_parts(version: str) -> tuple[str, str, str]:
    """Major, minor and revision of a driver version, "" where there is none: ``570.86`` has no revision."""
    parts = [value(part) for part in version.split(".")]
    major, minor, revision = [*parts, "", "", ""][:3]
    return major, minor, revision


def family(capability: tuple[int, int]) -> str:
    """The architecture's name by CUDA compute capability; ``undefined`` for one that is not known, as in GFD."""
    major, minor = capability
    if (major, minor) >= (7, 5) and major == 7:
        return "turing"
    if (major, minor) == (8, 9):
        return "ada-lovelace"
    return _FAMILIES.get(major, "undefined")
