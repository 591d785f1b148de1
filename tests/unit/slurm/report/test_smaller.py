"""The smallest profile that would do for a job's peak."""

from __future__ import annotations

import pytest

from aliquot.core.model import catalog
from aliquot.slurm.gpus.type_facts import TypeFacts, facts_of_types
from aliquot.slurm.report.smaller import smaller_profile

A100 = facts_of_types([("a100_1g.5gb", "a100_2g.10gb", "a100_3g.20gb", "a100_7g.40gb", "a100")])


def named(kind: str, peak_mib: int, compute: float | None = None) -> str:
    found = smaller_profile(A100[kind], peak_mib, compute)
    return found.profile if found else ""


@pytest.mark.parametrize(
    ("kind", "peak_mib", "profile"),
    [
        ("a100_3g.20gb", 4000, "1g.5gb"),
        ("a100_3g.20gb", 4600, "2g.10gb"),  # 5 % must be spare; of two with that memory, the one with more compute
        ("a100_3g.20gb", 9500, ""),
        ("a100_7g.40gb", 12000, "4g.20gb"),
        ("a100", 12000, "4g.20gb"),
        ("a100", 20000, ""),
        ("a100_1g.5gb", 10, ""),
    ],
)
def test_the_memory_decides(kind: str, peak_mib: int, profile: str) -> None:
    assert named(kind, peak_mib) == profile


def test_compute_that_was_measured_must_fit_too() -> None:
    assert named("a100_7g.40gb", 1000, 0.1) == "1g.5gb"
    assert named("a100_7g.40gb", 1000, 0.25) == "2g.10gb"
    assert named("a100_7g.40gb", 1000, 0.99) == ""


def test_the_saving_is_the_difference_of_billing_shares() -> None:
    found = smaller_profile(A100["a100_3g.20gb"], 4000, None)
    assert found is not None
    assert (found.profile, found.memory_mib, round(found.saved, 4)) == ("1g.5gb", 4864, 0.3571)


def test_nothing_is_suggested_where_the_boards_of_a_type_differ_or_are_unknown() -> None:
    assert smaller_profile(TypeFacts(), 100, None) is None
    (facts,) = facts_of_types([("a100",)]).values()  # 40 or 80 GB
    assert len(facts.families) > 1
    assert smaller_profile(facts, 4000, None) is None


@pytest.mark.parametrize("family", catalog.family_names())
def test_a_suggestion_is_smaller_cheaper_and_holds_the_peak_on_every_family(family: str) -> None:
    table = catalog.family(family)
    for profile in table.plain_profiles:
        facts = TypeFacts(profile=profile.name.lower(), families=(family,))
        for peak in range(1, profile.memory_mib or 1, 1500):
            found = smaller_profile(facts, peak, None)
            if found is not None:
                assert peak < found.memory_mib < (profile.memory_mib or 0)
                assert found.saved > 0
                assert table.by_name[found.profile].size < profile.size
