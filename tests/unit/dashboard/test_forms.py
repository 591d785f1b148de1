"""Conversion of forms to requests: every field, every kind, and all errors at once."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.dashboard import change_requests as asks
from aliquot.dashboard.forms import MOST_ENTRIES, MOST_TEXT, form_of, parse_change_request
from aliquot.errors import ConfigError

GPU = "0000:07:00.0"
CUT = {"ask": "cut", "node": "n1", "gpu": GPU, "mig": "1g.5gb"}


def _form(**fields: str | list[str]) -> dict[str, list[str]]:
    return {name: [value] if isinstance(value, str) else value for name, value in fields.items()}


def _faults(**fields: str | list[str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_change_request(_form(**fields))
    return list(caught.value.details) or [caught.value.brief]


@pytest.mark.parametrize(
    ("fields", "ask"),
    [
        (CUT, asks.PartitionGpu(node="n1", gpu=GPU, mig="1g.5gb")),
        (
            {"ask": "cut", "node": "n1", "gpu": GPU, "how": "counts", "count.1g.5gb": "2", "count.2g.10gb": "1"},
            asks.PartitionGpu(node="n1", gpu=GPU, mig="1g.5gb*2,2g.10gb"),
        ),
        (
            {"ask": "cut", "node": "n1", "gpu": GPU, "how": "counts", "count.1g.5gb": "0"},
            asks.PartitionGpu(node="n1", gpu=GPU, mig="empty"),
        ),
        (
            {"ask": "make-room", "node": "n1", "gpu": GPU, "profile": "1g.5gb"},
            asks.FitInstance(node="n1", gpu=GPU, profile="1g.5gb"),
        ),
        ({"ask": "functions", "gpus": ["a", "b", "a"], "on": "on"}, asks.SwitchFunctions(gpus=("a", "b"), on=True)),
        ({"ask": "vgpus", "places": ["p"], "type": "A2-4Q"}, asks.SetVgpus(places=("p",), type="A2-4Q")),
        ({"ask": "vgpus", "places": ["p"], "clear": "on", "type": "A2-4Q"}, asks.SetVgpus(places=("p",), type="")),
        (
            {"ask": "layout", "node": "n1", "gpu": GPU, "count.1g.5gb": "7", "enabled": "yes"},
            asks.SetLayout(node="n1", gpu=GPU, counts={"1g.5gb": 7}, enabled=True),
        ),
        ({"ask": "config", "nodes": ["n1"], "config": "x"}, asks.UseConfig(nodes=("n1",), config="x")),
        ({"ask": "repair", "node": "n1"}, asks.Repair(node="n1")),
        (
            {"ask": "attach", "namespace": "a", "machine": "m", "node": "n", "devices": ["d"]},
            asks.AttachDevices(namespace="a", vm="m", node="n", devices=("d",)),
        ),
        (
            {"ask": "detach", "machine": "m", "devices": ["d", "e"]},
            asks.DetachDevices(namespace="", vm="m", node="", devices=("d", "e")),
        ),
    ],
    ids=lambda each: each["ask"] if isinstance(each, dict) else "",
)
def test_each_kind_is_read(fields: dict[str, Any], ask: asks.AnyChangeRequest) -> None:
    found: Any = parse_change_request(_form(**fields))
    expected: Any = ask
    assert type(found) is type(expected)
    for name in expected.__struct_fields__:
        if name not in ("policy", "timeout_s"):
            assert getattr(found, name) == getattr(expected, name), name
    assert (found.policy, found.timeout_s) == ("refuse", 60.0)
    again: dict[str, list[str]] = {}
    for name, value in form_of(found):
        again.setdefault(name, []).append(value)
    assert parse_change_request(again) == found


@pytest.mark.parametrize(
    ("word", "on"),
    [
        *(("on", True), ("TRUE", True), ("1", True), ("yes", True)),
        *(("off", False), ("False", False), ("0", False), ("no", False), ("", False)),
    ],
)
def test_a_flag(word: str, on: bool) -> None:
    found = parse_change_request(_form(ask="functions", gpus="a", on=word))
    assert isinstance(found, asks.SwitchFunctions)
    assert found.on is on


def test_what_is_in_use_is_treated_as_asked() -> None:
    found = parse_change_request(_form(**CUT, policy="wait", timeout_s="7.5"))
    assert (found.policy, found.timeout_s) == ("wait", 7.5)
    assert parse_change_request(_form(**CUT, timeout_s="86400")).timeout_s == 86400
    assert parse_change_request(_form(**CUT, timeout_s="0")).timeout_s == 0


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"ask": "nothing"}, "unknown kind of request 'nothing'"),
        ({}, "the kind of request is missing"),
        ({**CUT, "node": ["n1", "n2"]}, "the node has 2 different values"),
        ({**CUT, "node": "n" * (MOST_TEXT + 1)}, f"the node is longer than {MOST_TEXT} characters"),
        ({**CUT, "node": "n\x00"}, "the node has unprintable characters"),
        ({**CUT, "gpu": "nonsense"}, "the GPU: "),
        ({**CUT, "policy": "ask"}, "invalid policy 'ask' for held instances"),
        ({**CUT, "timeout_s": "-1"}, "invalid time to wait '-1'"),
        ({**CUT, "timeout_s": "86401"}, "invalid time to wait '86401'"),
        ({**CUT, "timeout_s": "soon"}, "invalid time to wait 'soon'"),
        ({"ask": "config", "config": "x"}, "no node is selected: select at least one"),
        (
            {"ask": "config", "config": "x", "nodes": [f"n{n}" for n in range(MOST_ENTRIES + 1)]},
            f"{MOST_ENTRIES + 1} entries are selected: select at most {MOST_ENTRIES}",
        ),
        ({"ask": "functions", "gpus": "a", "on": "maybe"}, "invalid value 'maybe' for virtual functions"),
        ({"ask": "layout", "node": "n", "gpu": GPU, "count.1g.5gb": "x"}, "invalid number of 1g.5gb 'x'"),
        ({"ask": "layout", "node": "n", "gpu": GPU, "count.1g.5gb": "-1"}, "invalid number of 1g.5gb '-1'"),
    ],
)
def test_a_fault_is_reported(fields: dict[str, Any], fault: str) -> None:
    (found,) = _faults(**fields)
    assert found.startswith(fault)


def test_as_much_as_fits_is_taken() -> None:
    found = parse_change_request(
        _form(ask="config", config="x" * MOST_TEXT, nodes=[f"n{n}" for n in range(MOST_ENTRIES)])
    )
    assert isinstance(found, asks.UseConfig)
    assert (len(found.config), len(found.nodes)) == (MOST_TEXT, MOST_ENTRIES)


def test_all_faults_are_reported_at_once() -> None:
    assert _faults(ask="cut", gpu="x", policy="ask")[:1] == ["the node is missing"]
    assert len(_faults(ask="cut", gpu="x", policy="ask")) == 4
