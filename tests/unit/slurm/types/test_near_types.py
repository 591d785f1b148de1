"""The type that a user means: exact words, and near misses."""

from __future__ import annotations

import pytest

from aliquot.slurm.types.near import match_types, plain_type

HERE = ("a100", "a100_1g.5gb", "a100_2g.10gb", "a100_3g.20gb", "a100_7g.40gb")


@pytest.mark.parametrize(
    "word",
    [
        *("a100_3g.20gb", "A100_3G.20GB", "3g.20gb", "nvidia_a100_3g.20gb", "gpu:a100_3g.20gb", "gpu:3g.20gb:2"),
        *("--gres=gpu:a100_3g.20gb:1", "--gpus=3g.20gb:4", "gres/gpu:a100_3g.20gb=1", "gres:gpu:a100_3g.20gb:1"),
    ],
)
def test_every_spelling_of_a_type_finds_it(word: str) -> None:
    assert match_types(word, HERE) == (("a100_3g.20gb",), ())


def test_a_profile_that_two_models_have_finds_both() -> None:
    assert match_types("3g.40gb", ("a100_3g.40gb", "h100_3g.40gb", "a100"))[0] == ("a100_3g.40gb", "h100_3g.40gb")


def test_a_whole_gpu_is_not_taken_for_its_parts() -> None:
    assert match_types("a100", HERE) == (("a100",), ())


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("a100_3g.40gb", ("a100_3g.20gb", "a100_2g.10gb", "a100_1g.5gb")),  # as many compute slices
        ("3g.40gb", ("a100_3g.20gb", "a100_2g.10gb", "a100_1g.5gb")),
        ("h100_3g.40gb", ("a100_3g.20gb", "a100_2g.10gb", "a100_1g.5gb")),
        ("a100_1g.10gb", ("a100_1g.5gb", "a100_2g.10gb", "a100_3g.20gb")),
        ("a100_6g.40gb", ("a100_7g.40gb", "a100_3g.20gb", "a100_2g.10gb")),
        ("a10", ("a100",)),
        ("pad", ()),
        ("", ()),
        ("x" * 10_000, ()),
    ],
)
def test_near_misses_come_in_the_order_of_their_distance(word: str, near: tuple[str, ...]) -> None:
    assert match_types(word, HERE) == ((), near)


@pytest.mark.parametrize(
    ("word", "plain"),
    [
        ("--gres=gpu:a100_1g.5gb:7", "a100_1g.5gb"),
        ("gpu:1", ""),
        ("gpu", ""),
        ("--gpus-per-task=2", ""),
        ("a100:1", "a100"),
        ("gres/gpu:a100=2", "a100"),
        ("gpu:a100:4K", "a100"),
    ],
)
def test_a_request_is_reduced_to_its_type(word: str, plain: str) -> None:
    assert plain_type(word) == plain
