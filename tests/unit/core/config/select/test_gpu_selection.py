"""GPU selection: every command parses the words that name GPUs in the same way."""

from __future__ import annotations

import pytest

from aliquot.core.config.select.gpu_selection import parse_gpu_words, select_gpus
from aliquot.errors import NoSuchGpuError
from support.factory import inventory

NODE = inventory("a100-sxm4-40gb*3", "tesla-t4")
PCIS = [gpu.pci for gpu in NODE.gpus]


@pytest.mark.parametrize(
    ("words", "indexes"),
    [
        (["0"], [0]),
        (["0-2"], [0, 1, 2]),
        (["0,2-3"], [0, 2, 3]),
        (["3", "0"], [0, 3]),
        (["1,1", "0-1"], [0, 1]),
        (["all"], [0, 1, 2, 3]),
        ([PCIS[1]], [1]),
        ([PCIS[1].partition(":")[2].upper()], [1]),
        ([f"0000{PCIS[1]}"], [1]),
        ([f"{PCIS[0]},{NODE.gpus[2].uuid.upper()}"], [0, 2]),
        (["A100-SXM4-40GB"], [0, 1, 2]),
        (["NVIDIA A100-SXM4-40GB"], [0, 1, 2]),
        (["tesla-t4, 0"], [0, 3]),
    ],
)
def test_words_select_gpus_in_the_order_of_the_node(words: list[str], indexes: list[int]) -> None:
    assert [gpu.index for gpu in select_gpus(NODE, words)] == indexes


@pytest.mark.parametrize("word", ["9", "0-9", "h100-80gb-hbm3", "", "3-1", "0,,1", "GPU-0", "0000:ff:00.0"])
def test_a_word_that_selects_nothing_is_refused_by_name(word: str) -> None:
    with pytest.raises(NoSuchGpuError, match="not found on this node"):
        select_gpus(NODE, [word])


def test_a_range_names_the_indexes_that_are_absent() -> None:
    with pytest.raises(NoSuchGpuError, match=r"GPU '4' not found on this node"):
        select_gpus(NODE, ["2-5"])


def test_a_word_without_a_meaning_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="foo"):
        parse_gpu_words("0,foo", NODE)
