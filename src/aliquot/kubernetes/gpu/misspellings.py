"""Names that look like ones that count and do not, of labels, their values and resources: since nothing would happen
without a word.

NVIDIA's own documentation has one (``nvidia.con/mig.config``, GPU Operator with MIG, "Disabling MIG").
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
"""How the resource of a MIG profile begins, after its domain."""

_DOMAIN, _, _WANTED = names.CONFIG_LABEL.partition("/")
_OTHERS = ("mig.config.state", "mig.strategy", "mig.capable", "vgpu.config", "vgpu.config.state", "gpu.count")
"""Names of NVIDIA's own labels: what is nearer to one of them was meant to be that."""

_CLOSE_NAME = 0.8
_CLOSE_DOMAIN = 0.85
"""How alike two texts must be, 0 to 1, separators and case aside: a letter or two of either part."""

_LONGEST_DOMAIN = len("nvidia") + 4
_SHORTEST = 4
"""Letters below which one more or less makes another word."""
_DIGITS = re.compile("[0-9]+")
_MEMORY = re.compile(r"(?<=g[.])[0-9]+(?=gb)")


def near_misses(labels: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each label of a node that was surely meant to be ``nvidia.com/mig.config``; by name."""
    return tuple(
        f"label {name}={labels[name]} does nothing: {names.CONFIG_LABEL} was probably meant"
        for name in sorted(labels)
        if _is_near_miss(name)
    )


@lru_cache(maxsize=1024)
def _is_near_miss(label: str) -> bool:
    """Kept: likeness is dear to compute, and nodes have the same names again and again."""
    domain, slash, name = label.rpartition("/")
    if label == names.CONFIG_LABEL:
        return False
    if not slash:
        return _similarity(name, _WANTED) == 1
    if not _plain(domain).startswith("nvidia") and _similarity(domain, _DOMAIN) < _CLOSE_DOMAIN:
        return False
    similarity = _similarity(name, _WANTED)
    return similarity >= _CLOSE_NAME and all(_similarity(name, other) < similarity for other in _OTHERS)


def _similarity(one: str, other: str) -> float:
    return SequenceMatcher(None, _plain(one), _plain(other), autojunk=False).ratio()


def _plain(name: str) -> str:
    """A name without what people get wrong: case, separators of words."""
    return "".join(c for c in name.lower() if c not in "-_. ")


# -- what pods ask for


def nvidia_like(name: str) -> bool:
    """Whether a label or resource is NVIDIA's, or surely meant to be. Without a domain only one of GFD's labels is."""
    domain, slash, plain = name.rpartition("/")
    if not slash:
        return _ours(f"{_DOMAIN}/{plain}")
    short = _plain(domain)
    return (short.startswith("nvidia") and len(short) <= _LONGEST_DOMAIN) or _similarity(
        domain, _DOMAIN
    ) >= _CLOSE_DOMAIN


def near_label(requested: str, existing: str) -> bool:
    """Whether the label ``existing``, one of GFD's or the agent's, is what ``requested``, none of them, stands for."""
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
    """Whether two different values of a label are one but for the spelling. A named config may also lack a letter or
    have one too many, if it is named ``all-...``: other names are the owner's, ``team-a`` beside ``team-ab``.
    """
    if requested == existing or not requested:
        return False
    if label == names.PRODUCT_LABEL:
        return _product(requested) == _product(existing)
    if _plain(requested) == _plain(existing):
        return True
    return _is_typo(requested, existing) if label == names.STRATEGY_LABEL or _generated(label, existing) else False


def names_whole_product(requested: str, existing: str) -> bool:
    """Whether ``existing`` is the product ``requested`` with the MIG profile that strategy single adds."""
    product, mig, profile = existing.partition("-MIG-")
    return bool(mig) and profile != "INVALID" and _product(requested) == _product(product)


def near_resource(requested: str, existing: str) -> bool:
    """Whether a resource that is offered is what ``requested`` stands for: another domain or separator; for MIG devices
    a letter too many or too few, or another memory figure where no GPU has the profile that is asked for.
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
    """One letter too many or too few, or two that changed places; never a digit, which makes another thing."""
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
    """Every profile of the catalog, the smaller compute instances and other drivers' names among them, plainly."""
    found: set[str] = set()
    for table in map(catalog.family, catalog.family_names()):
        found |= {*table.by_name, *(compute.name for profile in table.profiles for compute in profile.compute)}
    return frozenset(_plain(profile_word(name)) for name in found)
