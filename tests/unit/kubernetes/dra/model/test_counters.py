"""Counters of rules that other limits imply in the catalog's families, and of tables that break the usual pattern."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family
from aliquot.core.planner.placement_table import compiled_table
from aliquot.core.planner.rules import allowed
from aliquot.kubernetes.dra.model.counters import family_counters, fits, taken


def check_sets(family: Family, most: int) -> tuple[int, int]:
    """Compare all sets of up to ``most`` instances with the planner's rules. Returns how many are refused and legal."""
    counters, table = family_counters(family), compiled_table(family)
    found = [0, 0]
    for size in range(2, most + 1):
        for chosen in combinations(counters.instances, size):
            masks = [table.masks[key] for key in chosen]
            overlap = sum(mask.bit_count() for mask in masks) != table.mask(chosen).bit_count()
            legal = not overlap and allowed(table, Counter(profile_id for profile_id, _ in chosen))
            assert fits(taken(counters.instances[key] for key in chosen), {}, counters.totals) == legal, chosen
            found[legal] += 1
    return found[0], found[1]


@pytest.mark.parametrize("family", ["rtx-pro-4500-32gb", "rtx-pro-5000-48gb", "a30-24gb", "thor-gb10b"])
def test_each_rule_has_a_counter_where_no_engine_implies_it(family: str) -> None:
    table = msgspec.structs.replace(catalog.family(family), engine_totals={})
    refused, legal = check_sets(table, 3)
    assert refused
    assert legal
    names = set(family_counters(table).totals)
    assert any(name.startswith(("at-most", "excludes")) for name in names)


def test_a_maximum_below_what_fits_side_by_side_has_a_counter() -> None:
    table = catalog.family("a30-24gb")
    profiles = [msgspec.structs.replace(p, max_instances=2) if p.name == "1g.6gb" else p for p in table.profiles]
    limited = msgspec.structs.replace(table, profiles=tuple(profiles))
    assert family_counters(limited).totals["instances-1g-6gb"] == 2
    assert "instances-1g-6gb" not in family_counters(table).totals
    check_sets(limited, 3)


def test_a_limit_of_nothing_implies_no_other() -> None:
    # A driver that reports no decoders, and a profile that needs one: it never fits. Others are not affected.
    table = catalog.family("a30-24gb")
    broken = msgspec.structs.replace(table, engine_totals=table.engine_totals | {"dec": 0})
    check_sets(broken, 2)
