"""Forms: requests survive the round trip, all errors are reported at once, and the pages' own forms are valid."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.dashboard.change_requests import (
    AnyChangeRequest,
    AttachDevices,
    DetachDevices,
    FitInstance,
    PartitionGpu,
    Repair,
    SetLayout,
    SetVgpus,
    SwitchFunctions,
    UseConfig,
)
from aliquot.dashboard.forms import form_of, parse_change_request
from aliquot.errors import ConfigError
from system.dashboard import stub
from system.dashboard.pagedraw import html
from system.dashboard.stub import StubSource

PCI = "0000:07:00.0"
name = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=30)
names = st.lists(name, min_size=1, max_size=4, unique=True).map(tuple)
about = {
    "policy": st.sampled_from(["refuse", "wait", "force"]),
    "timeout_s": st.integers(0, 86400).map(float),
}
profiles = st.sampled_from(["1g.5gb", "1g.5gb+me", "2g.10gb", "3g.20gb", "1c.3g.20gb"])
asks: st.SearchStrategy[AnyChangeRequest] = st.one_of(
    st.builds(PartitionGpu, node=name, gpu=st.just(PCI), mig=name, **about),
    st.builds(FitInstance, node=name, gpu=st.just(PCI), profile=profiles, **about),
    st.builds(SwitchFunctions, gpus=names, on=st.booleans(), **about),
    st.builds(SetVgpus, places=names, type=st.one_of(st.just(""), name), **about),
    st.builds(
        SetLayout,
        node=name,
        gpu=st.just(PCI),
        counts=st.dictionaries(profiles, st.integers(1, 128)),
        enabled=st.booleans(),
        **about,
    ),
    st.builds(UseConfig, nodes=names, config=name, **about),
    st.builds(Repair, node=name, **about),
    st.builds(AttachDevices, namespace=name, vm=name, node=name, devices=names, **about),
    st.builds(DetachDevices, namespace=name, vm=name, node=name, devices=names, **about),
)


def sent(fields: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    """Group fields by name as a browser sends them."""
    form: dict[str, list[str]] = {}
    for field, value in fields:
        form.setdefault(field, []).append(value)
    return form


@given(asks)
def test_what_is_asked_is_read_back(ask: AnyChangeRequest) -> None:
    assert parse_change_request(sent(form_of(ask))) == ask


@given(
    st.dictionaries(
        st.one_of(st.sampled_from(["ask", "node", "gpu", "mig", "counts", "count.x"]), st.text()),
        st.lists(st.one_of(st.text(), st.sampled_from(["cut", "layout", "attach", "1"]))),
    )
)
def test_any_form_is_an_ask_or_a_sentence(form: dict[str, list[str]]) -> None:
    output = ""
    try:
        parse_change_request(form)
    except ConfigError as error:
        output = " ".join((error.brief, *error.details))
    assert "\n" not in output


def test_all_faults_come_at_once() -> None:
    form = {"ask": ["cut"], "gpu": ["GPU 0"], "policy": ["maybe"], "timeout_s": ["-1"]}
    with pytest.raises(ConfigError) as refused:
        parse_change_request(form)
    assert len(refused.value.details) == 5
    text = " ".join(refused.value.details)
    for word in ("node is missing", "not a PCI address", "geometry is missing", "'maybe'", "'-1'"):
        assert word in text


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ({}, "is missing"),
        ({"ask": ["destroy-all"]}, "unknown kind of request"),
        ({"ask": ["vgpus"], "type": ["A2-4Q"]}, "no place for a vGPU is selected"),
        ({"ask": ["vgpus"], "places": ["a/b"]}, "vGPU type is missing"),
        ({"ask": ["functions"], "gpus": ["a/b"], "on": ["perhaps"]}, "on or off"),
        ({"ask": ["layout"], "node": ["a"], "gpu": [PCI], "count.1g.5gb": ["many"]}, "'many': use 0 to"),
        ({"ask": ["layout"], "node": ["a"], "gpu": [PCI], "count.1g.5gb": ["999"]}, "'999': use 0 to"),
        ({"ask": ["layout"], "node": ["a"], "gpu": [PCI], "count.large": ["1"]}, "not a MIG profile name"),
        ({"ask": ["repair"], "node": ["a", "b"]}, "2 different values"),
        ({"ask": ["repair"], "node": ["a\nb"]}, "unprintable"),
        ({"ask": ["repair"], "node": ["a" * 3000]}, "longer than"),
        ({"ask": ["config"], "nodes": ["  "], "config": ["x"]}, "no node is selected"),
        ({"ask": ["repair"], "node": ["a"], "policy": ["wait"], "timeout_s": ["nan"]}, "'nan'"),
    ],
)
def test_bad_input_is_a_sentence(form: dict[str, list[str]], word: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_change_request(form)
    assert word in refused.value.brief


def test_counts_become_a_geometry() -> None:
    form = {"ask": ["cut"], "how": ["counts"], "node": ["n"], "gpu": ["0000:07:00.0"]}
    some = {"count.3g.20gb": ["1"], "count.1g.5gb": ["2"], "count.7g.40gb": ["0"], "count.2g.10gb": [""]}
    assert parse_change_request(form | some) == PartitionGpu(node="n", gpu=PCI, mig="3g.20gb,1g.5gb*2")
    assert parse_change_request(form) == PartitionGpu(node="n", gpu=PCI, mig="empty")


def forms(page: str) -> list[dict[str, list[str]]]:
    """Return the hidden and prefilled fields of each form that posts to ``/asks``."""
    found = []
    for body in re.findall(r'<form[^>]*action="/asks"[^>]*>(.*?)</form>', page, re.S):
        fields: dict[str, list[str]] = {}
        for field, value in re.findall(r'<input[^>]*name="([^"]*)" value="([^"]*)"', body):
            fields.setdefault(unescape(field), []).append(unescape(value))
        for field, options in re.findall(r'<select[^>]*name="([^"]*)"[^>]*>(.*?)</select>', body, re.S):
            first = re.search(r'<option value="([^"]*)"', options) or re.search(r"<option[^>]*>([^<]*)", options)
            fields[unescape(field)] = [unescape(first[1])] if first else []
        found.append(fields)
    return found


def test_every_form_of_every_page_can_be_sent() -> None:
    source = StubSource(stub.fleet(), stub.virtual(), configs=("train",))
    pci = [g.pci for g in stub.dgx().gpus]
    pages = ["/nodes/dgx-1", *(f"/nodes/dgx-1/gpus/{p}" for p in pci), "/nodes/edge-a2/gpus/0000:08:00.0"]
    pages += ["/mig", "/sriov", "/vgpus", "/machines"]
    pages += [f"/nodes/dgx-1/gpus/{p}?want={quote(w)}" for p in pci for w in ("1g.5gb", "3g.20gb")]
    kinds = set()
    for path in pages:
        for form in forms(html(source, path)):
            assert form.pop("csrf") == ["the-csrf"], path
            extra = {"gpus": ["n/g"], "places": ["n/p"], "devices": ["d"], "on": ["on"], "type": ["A2-4Q"]}
            if any("\x00" in v or "\n" in v or "\u202e" in v for values in form.values() for v in values):
                continue  # a VM with such a name cannot be requested
            if form.get("mig") == [""]:
                form["mig"] = ["empty"]  # a browser requires a value
            if form.get("type") == [""]:
                form["clear"] = ["on"]  # only the button that destroys vGPUs is enabled
            ask = parse_change_request({**extra, **form})
            kinds.add(type(ask))
    assert kinds == {
        PartitionGpu,
        FitInstance,
        SwitchFunctions,
        SetVgpus,
        SetLayout,
        UseConfig,
        Repair,
        AttachDevices,
        DetachDevices,
    }
