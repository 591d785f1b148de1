"""Layouts of one GPU by how many devices they make: what node_features/helpers can switch between, and what it cannot.

Slurm compares the number of devices that a node registers with the number that is configured, so only layouts of one
number can be features of one node. The names of features here say the whole layout (``mig_2x3g.20gb``,
``mig_1x4g.20gb_1x3g.20gb``), so that a helper program needs no table beside it. Slurm's alphabet for changeable
features: a letter, ``_`` or ``=``, then letters, digits, ``_``, ``.``, ``=``; so ``1g.5gb+me`` becomes ``1g.5gb.me``
and ``1g.5gb-me`` ``1g.5gb.no.me``. Source: slurm.schedmd.com/helpers.conf.html.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import Gpu
from aliquot.core.planner.placement_search import arrangements
from aliquot.core.planner.placement_table import PlacementTable, compiled_table
from aliquot.core.planner.rules import allowed, refusals
from aliquot.errors import ConfigError
from aliquot.foundation.decimals import decimal

PREFIX = "mig_"
"""What features that name a layout begin with."""
_FEATURE = re.compile(r"[A-Za-z_=][A-Za-z0-9_.=]*")
_PART = re.compile(r"([1-9]\d{0,8})x(.+)")


class FamilyError(ConfigError):
    """These layouts cannot be features of one node; ``details`` holds every reason."""

    code = "NO_FAMILY"


class FeatureLayout(msgspec.Struct, frozen=True, order=True):
    """What one GPU is cut into: profile names with repeats, widest first. Each instance is one device: it has one
    compute instance that covers it.
    """

    profiles: tuple[str, ...]

    @property
    def devices(self) -> int:
        """How many devices one GPU has in it."""
        return len(self.profiles)

    @property
    def uniform(self) -> bool:
        """Whether all its devices are alike, so that a job that asks for any one of them knows what it gets."""
        return len(set(self.profiles)) == 1

    @property
    def short(self) -> str:
        """``2x3g.20gb``, ``1x4g.20gb_1x3g.20gb``: the feature's name without its prefix."""
        return "_".join(f"{n}x{encode_profile(name)}" for name, n in Counter(self.profiles).items())

    @property
    def feature(self) -> str:
        """The name of the feature that stands for it."""
        return PREFIX + self.short

    def __str__(self) -> str:
        return " + ".join(f"{n} x {name}" for name, n in Counter(self.profiles).items())


def encode_profile(profile: str) -> str:
    """A profile's name in Slurm's alphabet. One name of a geometry table each, so that it can be read back."""
    return profile.replace("+", ".").replace("-", ".no.").replace(",", ".")


def is_valid_feature(name: str) -> bool:
    """Whether Slurm takes a name for a changeable feature."""
    return _FEATURE.fullmatch(name) is not None


def ordered_layout(family: Family, names: Iterable[str]) -> FeatureLayout:
    """A layout from profile names in any order. Raises KeyError for a name that the family's table lacks."""
    table = compiled_table(family)
    ids = table.canonical(family.by_name[name].id for name in names)
    return FeatureLayout(tuple(table.profiles[each].name for each in ids))


def parse_layout(family: Family, text: str) -> FeatureLayout:
    """A layout as a person types it: ``3g.20gb,3g.20gb``, ``2x3g.20gb``, ``3g.20gb:2`` or a feature's name.

    Raises FamilyError for a word that is no profile of these GPUs.
    """
    names: list[str] = []
    for word in text.removeprefix(PREFIX).replace("_", ",").replace(" ", "").split(","):
        name, _, after = word.partition(":")
        match = _PART.fullmatch(name)
        count = decimal(match.group(1) if match else after or "1")
        found = _profile(family, match.group(2) if match else name)
        if found is None or not count:
            known = ", ".join(p.name for p in family.profiles)
            raise FamilyError(f"{word!r} in the layout {text!r} is no profile of {family.title}", details=(known,))
        # No GPU has more instances than slices: an absurd count must not fill the memory.
        names += [found] * min(count, 2 * family.memory_slices)
    return ordered_layout(family, names)


def _profile(family: Family, word: str) -> str | None:
    """A profile by its name, its alias, or its name in Slurm's alphabet."""
    if word in family.by_name:
        return family.by_name[word].name
    return next((p.name for p in family.profiles if encode_profile(p.name) == word), None)


def layout_of(family: Family, feature: str) -> FeatureLayout:
    """What a feature asks for. Raises FamilyError for a name that says no layout of these GPUs."""
    if not feature.startswith(PREFIX):
        raise FamilyError(f"the feature {feature!r} names no layout: those begin with {PREFIX}")
    return parse_layout(family, feature)


def current_layout(family: Family, gpus: Sequence[Gpu]) -> FeatureLayout | None:
    """The layout that some GPUs of one family are in; None where they differ, where MIG is off, or where an instance
    has not exactly one compute instance that covers it: no feature says that.
    """
    found: set[FeatureLayout] = set()
    for gpu in gpus:
        names = [i.profile for i in gpu.instances]
        whole = all([c.profile for c in i.compute_instances] == [i.profile] for i in gpu.instances)
        if not gpu.mig.enabled or not names or not whole or any(n not in family.by_name for n in names):
            return None
        found.add(ordered_layout(family, names))
    return found.pop() if len(found) == 1 else None


def maximal_layouts(family: Family, *, attributes: bool = False) -> tuple[FeatureLayout, ...]:
    """Every layout beside which nothing more fits, fewest devices first; of plain profiles unless ``attributes``
    (or a GPU has no others).
    """
    table = compiled_table(family)
    ids = table.canonical(p.id for p in (family.profiles if attributes else family.plain_profiles or family.profiles))
    legal = _legal(table, ids)
    full = (c for c in legal if c and not any(_with(c, each) in legal for each in ids))
    layouts = (
        FeatureLayout(tuple(table.profiles[p].name for p in ids for _ in range(dict(c).get(p, 0)))) for c in full
    )
    return tuple(
        sorted(layouts, key=lambda x: (x.devices, [-table.order[family.by_name[p].id][0] for p in x.profiles]))
    )


_Counts = frozenset[tuple[int, int]]


def _with(counts: _Counts, profile_id: int) -> _Counts:
    return frozenset((Counter(dict(counts)) + Counter((profile_id,))).items())


def _legal(table: PlacementTable, ids: Sequence[int]) -> set[_Counts]:
    """Every multiset of profiles that one GPU can have. What is legal stays legal when an instance is taken away."""
    found: set[_Counts] = {frozenset()}
    frontier: list[tuple[_Counts, int]] = [(frozenset(), 0)]
    while frontier:
        counts, first = frontier.pop()
        for n in range(first, len(ids)):
            bigger = _with(counts, ids[n])
            if bigger not in found and fits(table, dict(bigger)):
                found.add(bigger)
                frontier.append((bigger, n))
    return found


def fits(table: PlacementTable, counts: dict[int, int]) -> bool:
    """Whether one GPU can have these instances, at any placement."""
    return allowed(table, counts) and next(arrangements(table, counts), None) is not None


def families(layouts: Iterable[FeatureLayout]) -> dict[int, tuple[FeatureLayout, ...]]:
    """Layouts by the number of devices: those of one number can be features of one node."""
    found: dict[int, list[FeatureLayout]] = {}
    for each in layouts:
        found.setdefault(each.devices, []).append(each)
    return {count: tuple(found[count]) for count in sorted(found)}


def require_same_count(family: Family, layouts: Sequence[FeatureLayout]) -> int:
    """The number of devices per GPU that all these layouts have. Raises FamilyError with every reason why they cannot
    be features of one node: one that does not fit, twice the same, or numbers that differ.
    """
    errors = list(_family_errors(family, layouts))
    if errors:
        raise FamilyError(errors[0], details=tuple(errors[1:]), next_step="aliquot slurm families")
    return layouts[0].devices


def _family_errors(family: Family, layouts: Sequence[FeatureLayout]) -> Iterator[str]:
    if len(layouts) < 2:
        yield "a node that changes between layouts needs two of them at least"
    table = compiled_table(family)
    for each, n in Counter(layouts).items():
        counts = Counter(family.by_name[name].id for name in each.profiles)
        if n > 1:
            yield f"{each} is given {n} times"
        if not fits(table, counts):
            why = next((r.message for r in refusals(table, counts)), "its instances overlap wherever they are put")
            yield f"{each} does not fit on one GPU: {why}"
        if not is_valid_feature(each.feature):
            yield f"{each.feature}: Slurm takes no such name for a feature"
    if len(families(layouts)) > 1:
        counts_text = "; ".join(f"{each} makes {each.devices}" for each in layouts)
        yield (
            f"the layouts make different numbers of devices per GPU ({counts_text}): Slurm sets a node whose number "
            "falls INVALID and ends the job that it was changed for; use dynamic nodes or CLOUD records for these"
        )


__all__ = [
    "PREFIX",
    "FamilyError",
    "FeatureLayout",
    "current_layout",
    "encode_profile",
    "families",
    "fits",
    "is_valid_feature",
    "layout_of",
    "maximal_layouts",
    "ordered_layout",
    "parse_layout",
    "require_same_count",
]
