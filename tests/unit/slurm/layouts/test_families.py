"""Layouts that can be features of one node, and conversion of their names both ways."""

from __future__ import annotations

import pytest

from aliquot.core.model import catalog
from aliquot.slurm.layouts import families as fam
from support.simnodes import Node

A100 = catalog.family("a100-40gb")


def layout(text: str) -> fam.FeatureLayout:
    return fam.parse_layout(A100, text)


@pytest.mark.parametrize("name", catalog.family_names())
def test_every_layout_of_every_gpu_has_a_name_that_slurm_takes_and_that_is_read_back(name: str) -> None:
    family = catalog.family(name)
    every = fam.maximal_layouts(family, attributes=True)
    assert every
    assert len({x.feature for x in every}) == len(every)
    for each in every:
        assert fam.is_valid_feature(each.feature), each
        assert fam.layout_of(family, each.feature) == each


def test_an_a100s_families_are_those_of_the_table() -> None:
    # peers: every maximal layout of the five base profiles, by its number of devices.
    base = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
    plain = [x for x in fam.maximal_layouts(A100) if set(x.profiles) <= base]
    assert {count: sorted(x.short for x in each) for count, each in fam.families(plain).items()} == {
        1: ["1x7g.40gb"],
        2: ["1x4g.20gb_1x3g.20gb", "2x3g.20gb"],
        3: ["1x3g.20gb_2x2g.10gb", "1x4g.20gb_1x2g.10gb_1x1g.5gb"],
        4: ["1x3g.20gb_1x2g.10gb_2x1g.5gb", "1x4g.20gb_3x1g.5gb", "3x2g.10gb_1x1g.5gb"],
        5: ["1x3g.20gb_4x1g.5gb", "2x2g.10gb_3x1g.5gb"],
        6: ["1x2g.10gb_5x1g.5gb"],
        7: ["7x1g.5gb"],
    }
    assert all(len([x for x in each if x.uniform]) <= 1 for each in fam.families(plain).values())


@pytest.mark.parametrize(
    "text",
    ["3g.20gb,3g.20gb", "2x3g.20gb", "3g.20gb:2", "mig_2x3g.20gb", " 3g.20gb, 3g.20gb", "1x3g.20gb_1x3g.20gb"],
)
def test_a_layout_is_typed_in_many_forms(text: str) -> None:
    assert layout(text) == fam.FeatureLayout(("3g.20gb", "3g.20gb"))


def test_attributes_are_written_in_slurms_alphabet() -> None:
    assert layout("1g.5gb+me,6x1g.5gb").feature == "mig_6x1g.5gb_1x1g.5gb.me"
    assert fam.encode_profile("1g.24gb-me") == "1g.24gb.no.me"
    assert not fam.is_valid_feature("1g.5gb+me")


@pytest.mark.parametrize("text", ["", "9g.99gb", "2x", "x3g.20gb", "3g.20gb:0", "3g.20gb:-1", "mig_", "3g.20gb;rm"])
def test_what_is_no_layout_is_refused_with_the_profiles_that_there_are(text: str) -> None:
    with pytest.raises(fam.FamilyError) as refused:
        layout(text)
    assert "3g.20gb" in refused.value.details[0]
    assert refused.value.next_step == "aliquot slurm families"


def test_a_misspelt_profile_of_a_layout_is_named_without_its_count_and_with_similar_ones() -> None:
    with pytest.raises(fam.FamilyError) as refused:
        layout("mig_2x3g.21gb")
    assert refused.value.brief.startswith("'3g.21gb' in the layout 'mig_2x3g.21gb' is not a profile of A100")
    assert refused.value.brief.endswith("(did you mean 3g.20gb or 4g.20gb or 2g.10gb?)")
    with pytest.raises(fam.FamilyError, match=r"'3g\.20gb:0' in the layout '3g\.20gb:0' has no count from 1 up"):
        layout("3g.20gb:0")


def test_layouts_of_differing_numbers_are_no_family() -> None:
    with pytest.raises(fam.FamilyError, match=r"2 x 3g\.20gb has 2; 7 x 1g\.5gb has 7"):
        fam.require_same_count(A100, (layout("2x3g.20gb"), layout("7x1g.5gb")))


def test_every_fault_of_a_family_is_reported_at_once() -> None:
    with pytest.raises(fam.FamilyError) as refused:
        fam.require_same_count(A100, (layout("8x1g.5gb"), layout("4g.20gb:2"), layout("4g.20gb:2")))
    message = "\n".join((refused.value.brief, *refused.value.details))
    assert "7 fit" in message
    assert "given 2 times" in message
    assert "2 x 4g.20gb requested, at most 1" in message
    assert "different numbers" in message


def test_a_family_of_one_number_is_taken() -> None:
    assert fam.require_same_count(A100, (layout("2x3g.20gb"), layout("4g.20gb,3g.20gb"))) == 2


def test_the_present_layout_is_reported_only_where_it_is_whole_and_the_same_everywhere() -> None:
    node = Node("a100-sxm4-40gb*2")
    assert fam.current_layout(A100, node.read()[0].gpus) is None
    node.cut("0-1", "3g.20gb,4g.20gb")
    assert fam.current_layout(A100, node.read()[0].gpus) == layout("4g.20gb,3g.20gb")
    node.cut("0", "3g.20gb,3g.20gb")
    assert fam.current_layout(A100, node.read()[0].gpus) is None
    assert fam.current_layout(A100, node.read()[0].gpus[:1]) == layout("2x3g.20gb")
    node.cut("0", "1c.3g.20gb,3g.20gb")
    assert fam.current_layout(A100, node.read()[0].gpus[:1]) is None
