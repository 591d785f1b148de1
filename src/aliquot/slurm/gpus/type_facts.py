"""Facts about GRES types: the profile in a type's name, and its memory and compute slices from the catalog.

Slurm knows only names. A 40 GB and an 80 GB board are both called ``a100``, and their ``1g.10gb`` differ. So the types
of a node are considered together: they belong to the boards that have all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from functools import cache

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family, Profile

_PROFILE = re.compile(r"(?:(?P<model>.*)[_:-])?(?P<profile>(?:\d+c\.)?\d+g\.\d+gb(?:[+-][a-z0-9.,]+)*)", re.DOTALL)
_COMPUTE = re.compile(r"(\d+)c\.(.+)")
_VENDOR = "nvidia_"


class TypeFacts(msgspec.Struct, frozen=True):
    """The catalog's knowledge of a type. None is unknown, or differs between the boards that may have the type."""

    profile: str = ""
    """"" for a whole GPU, and for a name without a profile."""
    memory_mib: int | None = None
    """For a MIG device on several kinds of boards, the least of them in MiB."""
    compute_slices: int | None = None
    of_compute: int | None = None
    """Compute slices of the GPU."""
    memory_slices: int | None = None
    of_memory: int | None = None
    """Memory slices of the GPU."""
    families: tuple[str, ...] = ()
    """Names of the geometry tables of the boards, ascending."""


class TypeShare(msgspec.Struct, frozen=True):
    """The part of a GPU that a type has on one kind of board."""

    memory_slices: int
    of_memory: int
    compute_slices: int
    of_compute: int
    part: int = 1
    """Compute slices of a compute instance, of ``of_part`` of its GPU instance."""
    of_part: int = 1

    @property
    def share(self) -> Fraction:
        """The larger of the shares of memory slices and compute slices."""
        larger = max(Fraction(self.memory_slices, self.of_memory), Fraction(self.compute_slices, self.of_compute))
        return larger * Fraction(self.part, self.of_part)


def split_type(text: str) -> tuple[str, str]:
    """Return model and profile of a type in lower case: ``a100`` and ``3g.20gb``; ``a100`` and "" for a whole GPU.

    Longer texts than any type have no profile.
    """
    lower = text.lower().removeprefix(_VENDOR)
    match = _PROFILE.fullmatch(lower) if len(lower) <= 128 else None
    return (match["model"] or "", match["profile"]) if match else (lower, "")


def facts_of_types(nodes: Iterable[Iterable[str]]) -> dict[str, TypeFacts]:
    """Return the facts of each type. ``nodes`` has the types of each node."""
    found: dict[str, set[str]] = {}
    for types in {frozenset(each) for each in nodes}:
        for text, families in _families_on_node(types).items():
            found.setdefault(text, set()).update(families)
    return {text: _facts(text, tuple(sorted(families))) for text, families in found.items()}


def shares_of(facts: TypeFacts) -> tuple[TypeShare, ...]:
    """Return the share of each kind of board that may have the type, different ones only, the largest first."""
    found = {_share(catalog.family(name), facts.profile) for name in facts.families}
    return tuple(sorted((each for each in found if each), key=lambda each: (-each.share, each.of_memory)))


def _share(family: Family, profile: str) -> TypeShare | None:
    if not profile:
        return TypeShare(family.memory_slices, family.memory_slices, family.compute_slices, family.compute_slices)
    match, found = _COMPUTE.fullmatch(profile), _profile(family, profile)
    if found is None:
        return None
    part = (int(match[1]), found.compute_slices) if match else (1, 1)
    return TypeShare(found.size, family.memory_slices, found.compute_slices, family.compute_slices, *part)


def _families_on_node(types: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the families that have a type and all others of its model on the node; if none has, those of the type."""
    own = {text: _candidates(*split_type(text)) for text in types}
    found = {}
    for text, families in own.items():
        model = split_type(text)[0]
        beside = [others for other, others in own.items() if others and split_type(other)[0] == model]
        found[text] = families.intersection(*beside) or families
    return found


@cache
def _candidates(model: str, profile: str) -> frozenset[str]:
    """Return the families whose boards have the profile and, as far as the catalog knows it, the model."""
    if not model and not profile:
        return frozenset()
    having = [f for f in map(catalog.family, catalog.family_names()) if not profile or _profile(f, profile) is not None]
    named = frozenset(f.name for f in having if any(model in _spellings(p.name) for p in f.products))
    if not named and profile:
        named = frozenset(f.name for f in having if not _is_model(model))
    return named


@cache
def _spellings(product: str) -> tuple[str, str]:
    """Return the names that Slurm's NVML plugin has for a board: for its MIG devices, and for the whole GPU."""
    whole = product.lower().replace(" ", "_").removeprefix(_VENDOR)
    return whole.partition("-")[0], whole


@cache
def _is_model(text: str) -> bool:
    """Report whether a board of the catalog has that name. Others are a site's own words (``mig``)."""
    families = map(catalog.family, catalog.family_names())
    return any(text in _spellings(product.name) for family in families for product in family.products)


def _profile(family: Family, profile: str) -> Profile | None:
    """Return the GPU instance profile of a name in lower case, also for a compute instance's name."""
    match = _COMPUTE.fullmatch(profile)
    name = match[2] if match else profile
    return next((p for key, p in family.by_name.items() if key.lower() == name), None)


def _facts(text: str, names: tuple[str, ...]) -> TypeFacts:
    profile = split_type(text)[1]
    families = [catalog.family(name) for name in names]
    if not profile:
        return _whole_gpu(text, families)
    found = [(f, p) for f in families if (p := _profile(f, profile)) is not None]
    match = _COMPUTE.fullmatch(profile)
    memory = [p.memory_mib for _, p in found if p.memory_mib]
    return TypeFacts(
        profile=profile,
        memory_mib=min(memory, default=None),
        compute_slices=_common(int(match[1]) if match else p.compute_slices for _, p in found),
        of_compute=_common(f.compute_slices for f, _ in found),
        memory_slices=_common(p.size for _, p in found),
        of_memory=_common(f.memory_slices for f, _ in found),
        families=names,
    )


def _whole_gpu(text: str, families: list[Family]) -> TypeFacts:
    model = split_type(text)[0]
    boards = {p.memory_mib for f in families for p in f.products if model in _spellings(p.name)}
    compute, memory = _common(f.compute_slices for f in families), _common(f.memory_slices for f in families)
    return TypeFacts("", _common(boards), compute, compute, memory, memory, tuple(f.name for f in families))


def _common(values: Iterable[int | None]) -> int | None:
    """Return the only value, or None if there are several."""
    different = set(values)
    return different.pop() if len(different) == 1 else None
