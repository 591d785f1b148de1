"""Detection of misspelled labels, label values and resources, which would otherwise have no effect without any error.

NVIDIA's own documentation has one (``nvidia.con/mig.config`` in GPU Operator with MIG, "Disabling MIG").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import cache, lru_cache

from aliquot.core.model import catalog
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gfd_labels import is_own_label
from aliquot.kubernetes.gpu.label_names import product_value, profile_word

MIG = "mig-"
"""Prefix of a MIG profile's resource name, after its domain."""

_DOMAIN, _, _ = names.CONFIG_LABEL.partition("/")
_KNOWN = (
    *("mig.config", "mig.config.state", "mig.strategy", "mig.capable"),
    *("vgpu.config", "vgpu.config.state", "gpu.count"),
)
"""Labels of NVIDIA: a name that is more similar to another one of them is not a misspelled config label."""

_CLOSE_NAME = 0.8
_CLOSE_DOMAIN = 0.85
"""Required similarity of two texts without case and separators, from 0 to 1: one or two letters may differ."""

_LONGEST_DOMAIN = len("nvidia") + 4
_SHORTEST = 4
"""Shortest word that may have a letter too many or too few; shorter words would become other words."""
_DIGITS = re.compile("[0-9]+")
_MEMORY = re.compile(r"(?<=g[.])[0-9]+(?=gb)")


def near_misses(labels: Mapping[str, str], intended: str = names.CONFIG_LABEL) -> tuple[str, ...]:
    """Return a sentence for each label of a node that is a misspelling of the label ``intended``, sorted by name."""
    return tuple(
        f"label {name}={labels[name]} has no effect: did you mean {intended}?"
        for name in sorted(labels)
        if _is_near_miss(name, intended)
    )


@lru_cache(maxsize=1024)
def _is_near_miss(label: str, intended: str) -> bool:
    """Report whether a label is a misspelling of another one. Cached, as similarity is slow and nodes share names."""
    domain, slash, name = label.rpartition("/")
    wanted = intended.rpartition("/")[2]
    if label == intended:
        return False
    if not slash:
        return _similarity(name, wanted) == 1
    if not _plain(domain).startswith("nvidia") and _similarity(domain, _DOMAIN) < _CLOSE_DOMAIN:
        return False
    similarity = _similarity(name, wanted)
    others = (_similarity(name, known) for known in _KNOWN if known != wanted)
    return similarity >= _CLOSE_NAME and all(other < similarity for other in others)


def _similarity(one: str, other: str) -> float:
    return SequenceMatcher(None, _plain(one), _plain(other), autojunk=False).ratio()


def _plain(name: str) -> str:
    """Return a name in lower case without separators."""
    return "".join(c for c in name.lower() if c not in "-_. ")


# -- requests of pods


def nvidia_like(name: str) -> bool:
    """Report whether a label or resource is NVIDIA's or a misspelling of one.

    Without a domain, only the name of a known label counts.
    """
    domain, slash, plain = name.rpartition("/")
    if not slash:
        return _ours(f"{_DOMAIN}/{plain}")
    short = _plain(domain)
    return (short.startswith("nvidia") and len(short) <= _LONGEST_DOMAIN) or _similarity(
        domain, _DOMAIN
    ) >= _CLOSE_DOMAIN


def near_label(requested: str, existing: str) -> bool:
    """Report whether ``requested`` is a misspelling of the label ``existing`` of GFD or the agent."""
    if (
        not _ours(existing)
        or _ours(requested)
        or requested.startswith(names.DEPLOY_PREFIX)
        or not nvidia_like(requested)
    ):
        return False
    name, wanted = requested.rpartition("/")[2], existing.rpartition("/")[2]
    return _plain(name) == _plain(wanted) or _is_typo(name, wanted)


def near_value(label: str, requested: str, existing: str) -> bool:
    """Report whether ``requested`` is a misspelling of ``existing`` as the value of a label.

    A missing or extra letter counts only for MIG strategies and for named configs that begin with ``all-``. Users
    choose other names, such as ``team-a`` and ``team-ab``.
    """
    if requested == existing or not requested:
        return False
    if label == names.PRODUCT_LABEL:
        return _product(requested) == _product(existing)
    if _plain(requested) == _plain(existing):
        return True
    return _is_typo(requested, existing) if label == names.STRATEGY_LABEL or _generated(label, existing) else False


def names_whole_product(requested: str, existing: str) -> bool:
    """Report whether ``existing`` is the product ``requested`` plus the MIG profile that strategy single appends."""
    product, mig, profile = existing.partition("-MIG-")
    return bool(mig) and profile != "INVALID" and _product(requested) == _product(product)


def near_resource(requested: str, existing: str) -> bool:
    """Report whether ``requested`` is a misspelling of the offered resource ``existing``.

    Domain and separators may differ. For MIG devices of a profile that no GPU has, one letter or the memory size may
    differ too.
    """
    if requested == existing or not nvidia_like(requested) or not existing.startswith(f"{_DOMAIN}/"):
        return False
    name, wanted = requested.rpartition("/")[2], existing.rpartition("/")[2]
    if _plain(name) == _plain(wanted):
        return True
    if not wanted.startswith(MIG) or _plain(name)[len(_plain(MIG)) :] in _profiles():
        return False
    memory = _MEMORY.sub("", name) == _MEMORY.sub("", wanted) and _MEMORY.search(name) is not None
    return _is_typo(name, wanted) or memory


def _generated(label: str, value: str) -> bool:
    return label == names.CONFIG_LABEL and value.startswith("all-")


def _ours(label: str) -> bool:
    return label in (names.CONFIG_LABEL, names.STATE_LABEL, names.PRESENT_LABEL) or is_own_label(label)


def _is_typo(one: str, other: str) -> bool:
    """Report whether two names differ by one extra letter or two swapped letters. Digits must be equal."""
    a, b = sorted((_plain(one), _plain(other)), key=len)
    if _DIGITS.findall(a) != _DIGITS.findall(b) or len(a) < _SHORTEST:
        return False
    same = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    if len(b) == len(a) + 1:
        return a[same:] == b[same + 1 :]
    return len(a) == len(b) and a[same : same + 2] == b[same : same + 2][::-1] and a[same + 2 :] == b[same + 2 :]


def _product(text: str) -> str:
    maker, dash, rest = product_value(text.replace("_", "-")).lower().partition("-")
    return rest if dash and _similarity(maker, "nvidia") >= _CLOSE_NAME else f"{maker}{dash}{rest}"


@cache
def _profiles() -> frozenset[str]:
    """Return all profiles of the catalog in lower case without separators.

    They include smaller compute instances and the names that other drivers use.
    """
    found: set[str] = set()
    for table in map(catalog.family, catalog.family_names()):
        found |= {*table.by_name, *(compute.name for profile in table.profiles for compute in profile.compute)}
    return frozenset(_plain(profile_word(name)) for name in found)
