"""Layouts of one GPU by their number of devices: node_features/helpers can only switch within one number.

Slurm compares the number of devices that a node registers with the configured one, so only layouts with the same number
of devices can be features of one node. The names of features contain the whole layout (``mig_2x3g.20gb``,
``mig_1x4g.20gb_1x3g.20gb``), so a helper program needs no table. Changeable features start with a letter, ``_`` or
``=``, and continue with letters, digits, ``_``, ``.``, ``=``. So ``1g.5gb+me`` becomes ``1g.5gb.me``, and ``1g.5gb-me``
becomes ``1g.5gb.no.me``. Source: slurm.schedmd.com/helpers.conf.html.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from aliquot.core.config.text.node_reader import did_you_mean
from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import Gpu
from aliquot.core.planner.placement_search import arrangements
from aliquot.core.planner.placement_table import PlacementTable, compiled_table
from aliquot.core.planner.rules import allowed, refusals
from aliquot.errors import ConfigError
from aliquot.foundation.decimals import decimal

PREFIX = "mig_"
"""The prefix of features that name a layout."""
_FEATURE = re.compile(r"[A-Za-z_=][A-Za-z0-9_.=]*")
_PART = re.compile(r"([1-9]\d{0,8})x(.+)")


class FamilyError(ConfigError):
    """These layouts cannot be features of one node; ``details`` holds every reason."""

    code = "NO_FAMILY"


class FeatureLayout(msgspec.Struct, frozen=True, order=True):
    """The layout of one GPU. Each instance is one device: one compute instance fills it."""

    profiles: tuple[str, ...]
    """Profile names with repetitions, widest first."""

    @property
    def devices(self) -> int:
        """The number of devices of one GPU."""
        return len(self.profiles)

    @property
    def uniform(self) -> bool:
        """True if all devices are alike, so that a job that requests any one of them knows what it gets."""
        return len(set(self.profiles)) == 1

    @property
    def short(self) -> str:
        """``2x3g.20gb``, ``1x4g.20gb_1x3g.20gb``: the feature's name without its prefix."""
        return "_".join(f"{n}x{encode_profile(name)}" for name, n in Counter(self.profiles).items())

    @property
    def feature(self) -> str:
        """The name of its feature."""
        return PREFIX + self.short

    def __str__(self) -> str:
        return " + ".join(f"{n} x {name}" for name, n in Counter(self.profiles).items())


def encode_profile(profile: str) -> str:
    """Encode a profile name in Slurm's alphabet. Within a geometry table the result is unique and can be decoded."""
    return profile.replace("+", ".").replace("-", ".no.").replace(",", ".")


def is_valid_feature(name: str) -> bool:
    """Report whether Slurm accepts a name as a changeable feature."""
    return _FEATURE.fullmatch(name) is not None


def ordered_layout(family: Family, names: Iterable[str]) -> FeatureLayout:
    """Build a layout from profile names in any order. Raises KeyError for a name that the family's table lacks."""
    table = compiled_table(family)
    ids = table.canonical(family.by_name[name].id for name in names)
    return FeatureLayout(tuple(table.profiles[each].name for each in ids))


def parse_layout(family: Family, text: str) -> FeatureLayout:
    """Parse a layout as a user types it: ``3g.20gb,3g.20gb``, ``2x3g.20gb``, ``3g.20gb:2`` or a feature's name.

    Raises FamilyError for a word that is not a profile of these GPUs.
    """
    names: list[str] = []
    for word in text.removeprefix(PREFIX).replace("_", ",").replace(" ", "").split(","):
        name, _, after = word.partition(":")
        match = _PART.fullmatch(name)
        count = decimal(match.group(1) if match else after or "1")
        typed = match.group(2) if match else name
        found = _profile(family, typed)
        if found is None or not count:
            known = [p.name for p in family.profiles]
            where = f"in the layout {text!r}"
            sentence = f"{typed!r} {where} is not a profile of {family.title}{did_you_mean(typed, known)}"
            if found is not None:
                sentence = f"{word!r} {where} has no count from 1 up"
            raise FamilyError(sentence, details=(f"it has {', '.join(known)}",), next_step="aliquot slurm families")
        # A GPU cannot have more instances than slices, and a huge count must not exhaust the memory.
        names += [found] * min(count, 2 * family.memory_slices)
    return ordered_layout(family, names)


def _profile(family: Family, word: str) -> str | None:
    """Find a profile by its name, its alias, or its encoded name."""
    if word in family.by_name:
        return family.by_name[word].name
    return next((p.name for p in family.profiles if encode_profile(p.name) == word), None)


def layout_of(family: Family, feature: str) -> FeatureLayout:
    """Return the layout of a feature. Raises FamilyError for a name that is not a layout of these GPUs."""
    if not feature.startswith(PREFIX):
        raise FamilyError(f"the feature {feature!r} does not name a layout: use a name that begins with {PREFIX}")
    return parse_layout(family, feature)


def current_layout(family: Family, gpus: Sequence[Gpu]) -> FeatureLayout | None:
    """Return the current layout of GPUs of one family.

    Returns None if no feature describes it: the GPUs differ, MIG is off, or an instance is not filled by exactly one
    compute instance.
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
    """Return every layout to which no further instance can be added, fewest devices first.

    Uses only plain profiles unless ``attributes`` is set or the GPU has no plain ones.
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
    """Return every multiset of profiles that fits on one GPU. A subset of one that fits always fits."""
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
    """Report whether one GPU can have these instances in some placement."""
    return allowed(table, counts) and next(arrangements(table, counts), None) is not None


def families(layouts: Iterable[FeatureLayout]) -> dict[int, tuple[FeatureLayout, ...]]:
    """Group layouts by their number of devices: those with the same number can be features of one node."""
    found: dict[int, list[FeatureLayout]] = {}
    for each in layouts:
        found.setdefault(each.devices, []).append(each)
    return {count: tuple(found[count]) for count in sorted(found)}


def require_same_count(family: Family, layouts: Sequence[FeatureLayout]) -> int:
    """Return the number of devices per GPU of these layouts.

    Raises FamilyError with every reason why they cannot be features of one node: a layout does not fit or occurs twice,
    or the numbers differ.
    """
    errors = list(_family_errors(family, layouts))
    if errors:
        raise FamilyError(errors[0], details=tuple(errors[1:]), next_step="aliquot slurm families")
    return layouts[0].devices


def _family_errors(family: Family, layouts: Sequence[FeatureLayout]) -> Iterator[str]:
    if len(layouts) < 2:
        yield "a node that switches between layouts needs at least two of them"
    table = compiled_table(family)
    for each, n in Counter(layouts).items():
        counts = Counter(family.by_name[name].id for name in each.profiles)
        if n > 1:
            yield f"{each} is given {n} times"
        if not fits(table, counts):
            why = next((r.message for r in refusals(table, counts)), "its instances overlap in every placement")
            yield f"{each} does not fit on one GPU: {why}"
        if not is_valid_feature(each.feature):
            yield f"{each.feature}: Slurm does not accept this name for a feature"
    if len(families(layouts)) > 1:
        counts_text = "; ".join(f"{each} has {each.devices}" for each in layouts)
        yield (
            f"the layouts have different numbers of devices per GPU ({counts_text}): if the number decreases, Slurm "
            "sets the node INVALID and ends the job that it was changed for; use dynamic nodes or CLOUD records instead"
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
