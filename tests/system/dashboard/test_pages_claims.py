"""The page of claims, and the claims on a node's page, with fixed observations."""

from __future__ import annotations

import re

import pytest

from aliquot.dashboard.claim_views import ClaimsView
from aliquot.dashboard.view_models import CLUSTER, NODE, SIMULATOR
from system.dashboard import stub
from system.dashboard.pagedraw import document, html
from system.dashboard.stub import StubSource


@pytest.fixture(scope="module")
def source() -> StubSource:
    return StubSource(stub.fleet(), claimed=stub.claims(), kind=CLUSTER)


def test_a_claim_is_shown_with_its_device_gpu_and_pods(source: StubSource) -> None:
    text = document(source, "/claims").text
    for part in ("ml/train", "3g.20gb at 4:4", "gpu-0-mig-3g20gb-9-4", "A100-SXM4-40GB", "train-0"):
        assert part in text, part
    assert "whole GPU, for administration" in text
    assert "no slice has it" in text
    assert 'href="/nodes/dgx-1/gpus/0000:07:00.0"' in html(source, "/claims")


def test_hostile_names_of_claims_are_text(source: StubSource) -> None:
    for path in ("/claims", "/nodes/dgx-1"):
        page = html(source, path)
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "\u202e" not in document(source, path).text


def test_claims_are_found_by_claim_node_profile_and_pod(source: StubSource) -> None:
    for text in ("ml/train", "3g.20gb", "train-0"):
        found = document(source, f"/claims?q={text}").text
        assert "ml/train" in found
        assert "ml/watch" not in found


def test_a_node_shows_its_claims_and_what_is_left_for_others(source: StubSource) -> None:
    text = document(source, "/nodes/dgx-1").text
    assert "1g.5gb: 3 or more, 3g.20gb: 1" in text
    assert "7g.40gb: claim ml/train has room that it needs" in text
    assert text.count("gpu-9 is allocated and not published") == 1, "a problem of a pool is said once"
    assert "What other claims can still get" not in document(source, "/claims").text
    assert "Devices of claims" not in document(StubSource(stub.fleet()), "/nodes/dgx-1").text


def test_without_claims_the_page_says_so_or_what_is_missing() -> None:
    assert "No claim has a GPU." in document(StubSource(stub.fleet(), kind=CLUSTER), "/claims").text
    lacking = ClaimsView(missing=("Claims cannot be read now: forbidden",))
    text = document(StubSource(stub.fleet(), claimed=lacking, kind=CLUSTER), "/claims").text
    assert "Claims cannot be read now: forbidden" in text
    assert "No claim has a GPU." not in text


@pytest.mark.parametrize(("kind", "listed"), [(CLUSTER, True), (SIMULATOR, False), (NODE, False)])
def test_only_a_cluster_has_claims_in_its_navigation(kind: str, listed: bool) -> None:
    page = html(StubSource(stub.fleet(), kind=kind), "/")
    assert bool(re.search(r'<a href="/claims"[^>]*>Claims</a>', page)) is listed
