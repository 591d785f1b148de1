"""The allocator in ``support/draallocator`` decides as a real kube-scheduler did."""

from __future__ import annotations

import copy
import json
from collections import Counter
from typing import Any

import msgspec
import pytest

from support.schedulercases import RECORDED, State, Table

JSON = dict[str, Any]


@pytest.fixture(scope="module")
def recorded() -> JSON:
    found: JSON = json.loads(RECORDED.read_text())
    return found


@pytest.fixture(scope="module")
def tables(recorded: JSON) -> dict[str, Table]:
    return {name: msgspec.convert(table, Table) for name, table in recorded["tables"].items()}


def test_the_allocator_agrees_with_every_recorded_decision(recorded: JSON, tables: dict[str, Table]) -> None:
    disagreements = [
        f"{case['kind']} {case['number']}: {text}" for case in recorded["cases"] for text in State.replay(case, tables)
    ]
    assert disagreements == []


def test_the_recording_has_bound_and_refused_pods_of_every_kind(recorded: JSON) -> None:
    assert recorded["provenance"]["server"].startswith("kube-scheduler v1.36.")
    bound: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for case in recorded["cases"]:
        decisions = [step["decision"] for step in case["steps"] if step["do"] == "pod"]
        bound[case["kind"]] += sum("node" in decision for decision in decisions)
        refused[case["kind"]] += sum("refused" in decision for decision in decisions)
    assert bound.keys() == refused.keys()
    assert min(bound.values()) >= 3
    assert min(refused.values()) >= 2
    assert bound.total() + refused.total() >= 200


def test_a_changed_decision_is_noticed(recorded: JSON, tables: dict[str, Table]) -> None:
    case = copy.deepcopy(next(case for case in recorded["cases"] if case["kind"] == "profiles"))
    decision = next(step["decision"] for step in case["steps"] if step["do"] == "pod")
    (rows,) = decision["results"].values()
    rows[0]["device"] = "gpu-0-mig-other-0"
    assert list(State.replay(case, tables))
    decision.clear()
    decision["refused"] = "0/1 nodes are available: 1 cannot allocate all claims."
    assert list(State.replay(case, tables))
