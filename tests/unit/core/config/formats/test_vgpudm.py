"""Files of vgpu-device-manager: their meaning, refusals of its own reader, and further refusals of strict reading."""

from __future__ import annotations

from collections import Counter

import pytest

from aliquot.core.config.formats.vgpu_device_manager import product_of_type
from aliquot.core.config.load import load
from aliquot.errors import ConfigError
from unit.core.config.helpers import counts, desired_for, faults_of
from unit.core.config.vgpu_nodes import node

PRO = "RTX PRO 6000 Blackwell Server Edition"


def dm(*entries: str) -> str:
    """Build a file with one named config of these entries, each in flow style."""
    return "version: v1\nvgpu-configs:\n  c:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries)


def test_the_form() -> None:
    config = load(dm("devices: all, vgpu-devices: {A2-4Q: 4}"), "f")
    assert (config.schema, config.names) == ("vgpu-device-manager/v1", ("c",))
    (request,) = desired_for(dm("devices: all, vgpu-devices: {A2-4Q: 3, A2-4C: 1}"), node("A2")).gpus
    assert Counter(v.type for v in request.vgpus or ()) == {"NVIDIA A2-4Q": 3, "NVIDIA A2-4C": 1}
    assert (request.functions, request.mixed_size, request.source) == (True, None, "f:4:5")
    json = '{"version": "v1", "vgpu-configs": {"c": [{"devices": "all", "vgpu-devices": {"A2-4Q": 4}}]}}'
    assert len(desired_for(json, node("A2")).gpus) == 1


def test_indexes_and_filters() -> None:
    inventory = node("A2", "A16", "T4", "A2")

    def chosen(entry: str) -> list[str]:
        wanted = desired_for(dm(f"{entry}, vgpu-devices: {{}}"), inventory)
        assert wanted.failures == ()
        return [w.pci[5:7] for w in wanted.gpus]

    assert chosen("devices: [0, 2]") == ["10", "12"]
    assert chosen('devices: all, device-filter: "0x25B610DE"') == ["10", "11", "13"]
    assert chosen('devices: [1, 3], device-filter: ["0x25B610DE", "0x1EB810DE"]') == ["11", "13"]
    assert chosen('devices: all, device-filter: "0x25B610DE:0x14A910DE"') == ["11"]
    assert chosen('devices: all, device-filter: ["0x25B610DE:0x157E10DE", "0x1EB810DE"]') == ["10", "12", "13"]


def test_attributes_are_stripped_where_no_type_has_them() -> None:
    (request,) = desired_for(dm("devices: all, vgpu-devices: {DC-1-2QGFX: 48}"), node(PRO)).gpus
    assert {v.type for v in request.vgpus or ()} == {"NVIDIA RTX Pro 6000 Blackwell DC-1-2Q"}
    assert counts(request) == {"1g.24gb+gfx": 4}
    (request,) = desired_for(dm("devices: all, vgpu-devices: {A100X-1-5CME: 1}"), node("A100-SXM4-40GB")).gpus
    assert {v.type for v in request.vgpus or ()} == {"GRID A100X-1-5CME"}
    assert counts(request) == {"1g.5gb+me": 1}


def test_one_filter_for_two_boards() -> None:
    # The shipped file requests A16 types and A2 types under one PCI id, which both boards have.
    both = [f'devices: all, device-filter: "0x25B610DE", vgpu-devices: {{{t}: 2}}' for t in ("A16-8Q", "A2-8Q")]
    wanted = desired_for(dm(*both), node("A16", "A2"))
    assert wanted.failures == ()
    assert [(w.vgpus or ())[0].type for w in wanted.gpus] == ["NVIDIA A16-8Q", "NVIDIA A2-8Q"]
    mixed_up = both[0].replace("A16-8Q: 2", "A16-8Q: 1, L40S-8Q: 1")
    assert {f.rule for f in desired_for(dm(mixed_up, both[1]), node("A2")).failures} == {"WRONG_CARD"}
    alone = desired_for(dm(both[0]), node("A2"))
    assert [f.rule for f in alone.failures] == ["WRONG_CARD"]
    assert "NVIDIA A16 has it" in alone.failures[0].message


def test_two_requests_for_one_card() -> None:
    texts = [f"devices: all, vgpu-devices: {{A2-4Q: {n}}}" for n in (1, 2)]
    (line,) = faults_of(dm(*texts))
    assert line == "5:5: this entry and the one in line 4 request different states of the same GPU"
    (request,) = desired_for(dm(*texts), node("A2"), compat=True).gpus
    assert len(request.vgpus or ()) == 2
    (line,) = faults_of(dm(texts[0], "devices: all, vgpu-devices: {}"))
    assert line.startswith("5:5")
    pair = (texts[0], 'devices: all, device-filter: "0x25B610DE", vgpu-devices: {A2-8Q: 1}')
    assert [f.rule for f in desired_for(dm(*pair), node("A2")).failures] == ["OVERLAP"]


def test_what_only_the_node_tells() -> None:
    def rule(types: str, *gpus: str) -> list[str]:
        return [f.rule for f in desired_for(dm(f"devices: all, vgpu-devices: {{{types}}}"), node(*gpus)).failures]

    assert rule("A2-4Q: 1, A2-8Q: 1", "A2") == ["EQUAL_SIZE"]
    (two,) = desired_for(dm("devices: all, vgpu-devices: {A2-4Q: 1, A2-8Q: 1}"), node("A2")).failures
    assert "this format cannot express: use the native format" in two.message
    assert "write 'mixed-size" not in two.message
    assert rule("A2-4Q: 1", "A2", "T4") == ["WRONG_CARD"]
    assert rule("RTX5880-Ada-2Q: 1", "RTX 5880 Ada Generation") == ["TYPE_WITHOUT_ID"]
    assert rule("A2-4Q: 1") == ["NOTHING_MATCHES"]
    with pytest.raises(ConfigError) as raised:
        rule("A2-5Q: 1", "A2")
    assert "no GPU has a vGPU type A2-5Q (did you mean A2-" in raised.value.details[0]


@pytest.mark.parametrize(
    "name",
    ["A16-8Q", "A16-8A", "A16-8B", "A16-8C", "A100-5C", "A100-1-5C", "A100-1-5CME", "A100-1-5CNOME", "A100-1-5CMEALL",
     "A100-1-5CGFX", "M60-0Q", "RTX6000-Ada-2Q"],
)  # fmt: skip
def test_names_of_the_format(name: str) -> None:
    assert faults_of(dm(f"devices: all, vgpu-devices: {{{name}: 1}}")) == ()


@pytest.mark.parametrize(
    "name",
    ["", "A16-8E", "bogus", " A100-5C", "A100 -5C", "A100- 5C", "A100-5C ", " A100-1-5C", "A100-1- 5C", "A100-1-5 C",
     "A100-1-5Cme", "A100-1-5C ME", "A100-1-5Cab", "A100-5c", "A100-05C", "A100-0-5C", "NVIDIA A2-4Q", "A100-5CME",
     "RTX6000-Ada-1-2Q", "A2-4Q\n"],
)  # fmt: skip
def test_names_that_the_format_refuses(name: str) -> None:
    quoted = '"' + name.replace("\n", "\\n") + '"'
    for compat in (False, True):
        (line,) = faults_of(dm(f"devices: all, vgpu-devices: {{{quoted}: 1}}"), compat=compat)
        assert "is not a vGPU type of this format" in line
    assert product_of_type(name) == ""


BY_BOTH = [
    ("devices: all", "lacks the key 'vgpu-devices'"),
    ("vgpu-devices: {A2-4Q: 1}", "lacks the key 'devices'"),
    ("devices: some, vgpu-devices: {}", "'devices' must be all or a list"),
    ("devices: [a], vgpu-devices: {}", "a GPU index is a whole number"),
    ("devices: 0, vgpu-devices: {}", "'devices' must be all or a list"),
    ("devices: all, device-filter: 632688862, vgpu-devices: {}", "must be text"),
    ("devices: all, device-filter: [1], vgpu-devices: {}", "must be text"),
    ("devices: all, vgpu-devices: {A2-4Q: 0}", "must be 1 or more, not 0"),
    ("devices: all, vgpu-devices: {A2-4Q: -3}", "must be 1 or more, not -3"),
    ("devices: all, vgpu-devices: {A2-4Q: many}", "whole number"),
    ("devices: all, vgpu-devices: {A2-4Q: 1.5}", "whole number"),
    ("devices: all, vgpu-devices: [A2-4Q]", "'vgpu-devices' must be a mapping"),
    ("devices: all, vgpu-devices: {A100-5C: 1, A100-1-5C: 1}", "time-sliced and MIG-backed"),
    ("devices: all, vgpu-devices: {A100-1-5C: 1, A100-5C: 1, A100-8C: 1}", "time-sliced and MIG-backed"),
    ("devices: all, vgpu-devices: {}, mig-enabled: true", "unknown key 'mig-enabled'"),
    ("devices: all, vgpu-devices: {A2-4Q: 65}", "no GPU holds 65 vGPUs"),
]


@pytest.mark.parametrize(("entry", "words"), BY_BOTH)
def test_refused_by_both(entry: str, words: str) -> None:
    for compat in (False, True):
        found = faults_of(dm(entry), compat=compat)
        assert any(words in line for line in found), found
        assert all(line.startswith("4:") for line in found)


STRICT = [
    ("devices: [0, 0], vgpu-devices: {}", "listed twice"),
    ("devices: [-1], vgpu-devices: {}", "the GPU index -1 is not from 0 to 1023"),
    ("devices: [], vgpu-devices: {}", "lists no GPU"),
    ("devices: all, device-filter: A2, vgpu-devices: {}", "not a device filter"),
    ('devices: all, device-filter: "", vgpu-devices: {}', "'device-filter' is empty"),
    ("devices: all, vgpu-devices: ~", "'vgpu-devices' holds nothing"),
    ("devices: all, vgpu-devices: {A2-4Q: 1, A2-4Q: 2}", "written twice"),
]


@pytest.mark.parametrize(("entry", "words"), STRICT)
def test_refused_by_strict_reading_only(entry: str, words: str) -> None:
    assert any(words in line for line in faults_of(dm(entry)))
    assert faults_of(dm(entry), compat=True) == ()


def test_the_file_around() -> None:
    assert "the key 'version' is missing (write version: v1)" in faults_of("vgpu-configs: {c: []}")[0]
    assert "unknown version" in faults_of("version: v2\nvgpu-configs: {c: []}")[0]
    assert "at least one named config" in faults_of("version: v1\nvgpu-configs: {}")[0]
    assert "must have at least one entry" in faults_of("version: v1\nvgpu-configs: {c: []}")[0]
    both = faults_of("version: v1\nmig-configs: {}\nvgpu-configs: {c: [{devices: all, vgpu-devices: {}}]}")
    assert "unknown key 'mig-configs'" in both[0]
    assert "unknown key 'vgpu-configs'" in faults_of("version: aliquot/v1\nvgpu-configs: {}")[-1]


def test_every_fault_at_once() -> None:
    found = faults_of(dm("devices: x, vgpu-devices: {A2-4E: 0, A2-4Q: -1}", "vgpu-devices: {A2-4Q: 1, A2-1-4Q: 1}"))
    assert [line.split(":")[0] for line in found] == ["4", "4", "4", "4", "5", "5"]
