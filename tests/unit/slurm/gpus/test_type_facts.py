"""Memory and compute slices of a GRES type, from its name and from the other types of its node."""

from __future__ import annotations

import pytest

from aliquot.core.model import catalog
from aliquot.slurm.gpus.type_facts import TypeFacts, facts_of_types, split_type


@pytest.mark.parametrize(
    ("text", "model", "profile"),
    [
        ("a100_3g.20gb", "a100", "3g.20gb"),
        ("nvidia_a100_3g.20gb", "a100", "3g.20gb"),
        ("a100_80gb_pcie_1g.10gb+me", "a100_80gb_pcie", "1g.10gb+me"),
        ("a100_1c.3g.20gb", "a100", "1c.3g.20gb"),
        ("3g.20gb", "", "3g.20gb"),
        ("mig-3g.20gb", "mig", "3g.20gb"),
        ("A100_3G.20GB", "a100", "3g.20gb"),
        ("nvidia_a100-sxm4-40gb", "a100-sxm4-40gb", ""),
        ("a100", "a100", ""),
        ("pad", "pad", ""),
        ("", "", ""),
    ],
)
def test_a_type_is_a_model_and_a_profile(text: str, model: str, profile: str) -> None:
    assert split_type(text) == (model, profile)


def test_a_mig_type_has_the_memory_and_the_slices_of_its_profile() -> None:
    found = facts_of_types([("a100_3g.20gb",)])["a100_3g.20gb"]
    assert found == TypeFacts("3g.20gb", 20096, 3, 7, 4, 8, ("a100-40gb",))


def test_a_compute_instance_has_the_memory_of_its_gpu_instance_and_its_own_compute() -> None:
    found = facts_of_types([("a100_1c.3g.20gb",)])["a100_1c.3g.20gb"]
    assert (found.memory_mib, found.compute_slices, found.memory_slices) == (20096, 1, 4)


def test_types_of_a_node_tell_gpus_of_one_name_apart() -> None:
    # A 40 GB and an 80 GB board are both called a100, and both have a 1g.10gb.
    alone = facts_of_types([("a100_1g.10gb", "a100")])
    assert alone["a100_1g.10gb"].families == ("a100-40gb", "a100-80gb")
    assert alone["a100_1g.10gb"].memory_mib == 9728  # at least
    assert alone["a100_1g.10gb"].memory_slices is None
    assert alone["a100"].memory_mib is None
    beside = facts_of_types([("a100_1g.10gb", "a100_3g.20gb", "a100")])
    assert beside["a100_1g.10gb"].families == ("a100-40gb",)
    assert beside["a100_1g.10gb"].memory_slices == 2
    assert beside["a100"].memory_mib == 40960


def test_a_type_on_two_kinds_of_nodes_has_what_every_one_of_them_has() -> None:
    found = facts_of_types([("a100_1g.10gb", "a100_3g.20gb"), ("a100_1g.10gb", "a100_3g.40gb")])["a100_1g.10gb"]
    assert found.families == ("a100-40gb", "a100-80gb")
    assert (found.compute_slices, found.of_compute) == (1, 7)
    assert found.memory_slices is None


def test_a_name_that_the_catalog_does_not_know_has_no_facts() -> None:
    found = facts_of_types([("gtx", "a100_9g.99gb", "pad", "")])
    assert set(found.values()) == {TypeFacts(), TypeFacts("9g.99gb")}


@pytest.mark.parametrize("family", catalog.family_names())
def test_every_profile_of_the_catalog_is_found_by_its_bare_name(family: str) -> None:
    every = tuple(p.name.lower() for p in catalog.family(family).profiles)
    found = facts_of_types([every])
    assert all(family in found[name].families for name in every)
    for profile in catalog.family(family).profiles:
        assert found[profile.name.lower()].compute_slices == profile.compute_slices
