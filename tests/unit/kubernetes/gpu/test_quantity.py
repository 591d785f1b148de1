"""Quantities in Kubernetes' notation."""

from __future__ import annotations

import pytest

from aliquot.kubernetes.gpu.quantity import read, total


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["24", "8"], "32"),
        (["1k", "1k"], "2k"),
        (["1k", "-1"], "999"),
        (["131858088Ki", "131858088Ki"], "263716176Ki"),
        (["64Gi", "64Gi"], "128Gi"),
        (["1Gi", "1"], "1073741825"),
        (["149527126718", "0"], "149527126718"),
        (["500m", "1500m"], "2"),
        (["1500m"], "1500m"),
        (["0.5"], "500m"),
        (["1e3"], "1k"),
        (["2", "1Ki"], "1026"),
        (["1Ki", "2Ki"], "3Ki"),
        (["100u"], "1m"),
        (["0"], "0"),
        (["rubbish", "1"], "1"),
        ([], "0"),
    ],
)
def test_sums_are_written_in_the_canonical_form(texts: list[str], expected: str) -> None:
    # The expected values are those of apimachinery's resource.Quantity.
    assert str(total(texts)) == expected


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1gi", "--1", "1e", "٣"])
def test_what_is_no_quantity(text: str) -> None:
    assert read(text) is None


def test_a_number_longer_than_python_converts_is_no_quantity() -> None:
    assert read("9" * 5000) is None
    assert read("0." + "9" * 5000 + "Gi") is None
