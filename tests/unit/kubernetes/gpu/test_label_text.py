"""Texts that Kubernetes accepts, spelled as gpu-feature-discovery spells them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.model import catalog
from aliquot.kubernetes.gpu import label_names as text

LEGAL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
"""The pattern in the API server's own error message."""


@pytest.mark.parametrize(
    ("model", "value"),
    [
        ("NVIDIA A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB"),
        ("NVIDIA  H100 80GB   HBM3", "NVIDIA-H100-80GB-HBM3"),
        ("NVIDIA A100X (rev/2) ", "NVIDIA-A100X-rev2"),
        ("Tesla T4", "Tesla-T4"),
        ("Gerät_1.0", "Gert_1.0"),
        ("", ""),
        ("(...)", ""),
    ],
)
def test_products(model: str, value: str) -> None:
    assert text.product_value(model) == value


def test_a_long_product_keeps_its_profile() -> None:
    board = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
    assert text.product_value(board) == board.replace(" ", "-")
    assert text.product_value(board, "MIG", "4g.96gb") == (
        "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-MIG-4g.96gb"
    )
    assert len(text.product_value("x" * 100, "MIG", "1g.5gb")) == text.LIMIT


@given(st.text(), st.text(max_size=80))
def test_every_value_is_legal(model: str, part: str) -> None:
    for value in (text.value(model), text.product_value(model), text.product_value(model, "MIG", part)):
        assert LEGAL.fullmatch(value)
        assert len(value) <= 63


@given(st.text(max_size=70))
def test_a_name_is_legal_exactly_where_the_pattern_says(word: str) -> None:
    assert text.is_name(word) == bool(word and len(word) <= 63 and LEGAL.fullmatch(word))


@pytest.mark.parametrize(
    ("profile", "word"),
    [
        ("1g.5gb", "1g.5gb"),
        ("1g.5gb+me", "1g.5gb.me"),
        ("1g.12gb-me", "1g.12gb-me"),
        ("1g.24gb+me.all", "1g.24gb.me.all"),
    ],
)
def test_profiles(profile: str, word: str) -> None:
    assert text.profile_word(profile) == word


def test_profiles_of_the_catalog_have_names_of_their_own() -> None:
    for name in catalog.family_names():
        words = {c.name for p in catalog.family(name).profiles for c in p.compute}
        assert len({text.profile_word(word) for word in words}) == len(words)
        assert all(text.is_name(f"mig-{text.profile_word(word)}.sharing-strategy") for word in words)


def test_products_of_the_catalog_have_prefixes_of_their_own() -> None:
    products = {device.name.partition(" (")[0] for device in catalog.devices()}
    assert len(products) > 50
    prefixes = {text.subdomain(product): product for product in products}
    assert len(prefixes) == len(products)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", prefix) for prefix in prefixes)


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        *(((7, 0), "volta"), ((7, 5), "turing"), ((8, 0), "ampere"), ((8, 6), "ampere"), ((8, 9), "ada-lovelace")),
        *(
            ((9, 0), "hopper"),
            ((10, 3), "blackwell"),
            ((12, 0), "blackwell"),
            ((13, 0), "rubin"),
            ((99, 0), "undefined"),
        ),
    ],
)
def test_families(capability: tuple[int, int], family: str) -> None:
    assert text.family(capability) == family


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        ("570.158.01", ("570", "158", "01")),
        ("570.86", ("570", "86", "")),
        ("535", ("535", "", "")),
        ("1.2.3.4", ("1", "2", "3")),
        ("", ("", "", "")),
    ],
)
def test_versions(version: str, parts: tuple[str, str, str]) -> None:
    assert text.version_parts(version) == parts
