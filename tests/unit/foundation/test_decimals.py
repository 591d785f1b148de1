"""Parsing of numbers, and of text that only looks like one."""

from __future__ import annotations

import pytest

from aliquot.foundation.decimals import decimal


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("007", 7), ("999999999", 999_999_999)])
def test_a_few_digits_are_a_number(text: str, value: int) -> None:
    assert decimal(text) == value


@pytest.mark.parametrize(
    "text", ["", " 1", "1\n", "-1", "+1", "1_0", "1.0", "\u00b2", "\u0663", "1234567890", "9" * 5000]
)
def test_anything_else_is_none(text: str) -> None:
    assert decimal(text) is None


def test_the_caller_says_how_many_digits_there_may_be() -> None:
    assert (decimal("65535", 5), decimal("655350", 5)) == (65535, None)
