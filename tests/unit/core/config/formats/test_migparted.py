"""mig-parted files: the table of files that mig-parted accepts and refuses, and the further refusals of strict
reading.
"""

from __future__ import annotations

import pytest

from aliquot.core.config.load import load
from aliquot.core.config.text.node_reader import did_you_mean
from aliquot.errors import ConfigError
from unit.core.config.helpers import faults_of, parted

ON = "devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1}"
OFF = "devices: all, mig-enabled: false"

ACCEPTED = [
    parted(OFF),
    parted(ON),
    parted("devices: all, mig-enabled: true, mig-devices: {}"),
    parted("devices: all, mig-enabled: false, mig-devices: {}"),
    parted("devices: all, mig-enabled: false, mig-devices: ~"),
    parted("devices: [0, 2], mig-enabled: true, mig-devices: {1g.5gb: 1, 1c.3g.20gb: 2, 1g.5gb+me: 1}"),
    parted('devices: all, device-filter: "0x20B010DE", mig-enabled: false'),
    parted('devices: all, device-filter: ["0x20b010de", "0x20B110DE:0x134F10DE", "548409566"], mig-enabled: false'),
    parted("devices: all, mig-enabled: yes, mig-devices: {}"),
    parted("devices: all, mig-enabled: On, mig-devices: {}"),
    parted("devices: all, mig-enabled: off"),
    parted("devices: all, mig-enabled: n"),
    '{"version": "v1", "mig-configs": {"c": [{"devices": [1], "mig-enabled": true, "mig-devices": {"1g.5gb": 7}}]}}',
    "version: v1\nmig-configs: {no: [{devices: all, mig-enabled: no}], 7: [{devices: all, mig-enabled: no}]}\n",
]

REJECTED = [
    ("{}", "'version' is missing"),
    ("mig-configs: {c: []}", "'version' is missing"),
    ("version: v2\nmig-configs: {}", "unknown version"),
    ("version: 1\nmig-configs: {}", "unknown version"),
    ("version: v1\nmig-configs: {}", "at least one named config"),
    ("version: v1\nmig-configs: {c: []}", "at least one entry"),
    ("version: v1\nmig-configs: {c: ~}", "must be a list"),
    ("version: v1\nmig-configs: [c]", "must be a mapping"),
    ("version: v1\nmore: 1\nmig-configs: {c: [{devices: all, mig-enabled: false}]}", "unknown key 'more'"),
    (parted(OFF + ", foo: 1"), "unknown key 'foo'"),
    (parted("devices: all"), "lacks the key 'mig-enabled'"),
    (parted("mig-enabled: false"), "lacks the key 'devices'"),
    (parted("devices: 0, mig-enabled: false"), "'devices' must be all"),
    (parted("devices: ~, mig-enabled: false"), "'devices' must be all"),
    (parted("devices: some, mig-enabled: false"), "'devices' must be all"),
    (parted("devices: [a], mig-enabled: false"), "whole number"),
    (parted("devices: [1.5], mig-enabled: false"), "whole number"),
    (parted("devices: all, mig-enabled: maybe"), "must be true or false"),
    (parted('devices: all, mig-enabled: "yes"'), "must be true or false"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1.5}"), "whole number"),
    (parted('devices: all, mig-enabled: true, mig-devices: {1g.5gb: "1"}'), "whole number"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb: true}"), "whole number"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}"), "negative"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0, 2g.10gb: 0}"), "every count is zero"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g5gb: 1}"), "not a MIG profile name"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1G.5gb: 1}"), "not a MIG profile name"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb+1me: 1}"), "attributes"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb+me+gfx: 1}"), "attributes"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb+me-gfx: 1}"), "attributes"),
    (parted('devices: all, mig-enabled: true, mig-devices: {"1g.5gb+me,me": 1}'), "attributes"),
    (parted("devices: all, mig-enabled: true, mig-devices: [1g.5gb]"), "must be a mapping"),
    (parted("devices: all, mig-enabled: true"), "'mig-devices' is needed"),
    (parted("devices: all, mig-enabled: true, mig-devices: ~"), "'mig-devices' is needed"),
    (parted("devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}"), "'mig-enabled' is false"),
    (parted("devices: all, device-filter: 0x20B010DE, mig-enabled: false"), "in quotes"),
    (parted("devices: all, device-filter: 548409566, mig-enabled: false"), "in quotes"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1000000000000}"), "no GPU holds"),
    ("version: v1\nmig-configs: {c: [7]}", "must be a mapping"),
    ("version: v1\nvgpu-configs: {}", "at least one named config"),
    ("apiVersion: v1\nkind: ConfigMap\ndata: {config.yaml: x}", "Kubernetes object"),
]

STRICT_ONLY = [
    (parted("devices: [-1], mig-enabled: false"), "the GPU index -1 is not from 0 to 1023"),
    (parted("devices: [2000], mig-enabled: false"), "the GPU index 2000 is not from 0 to 1023"),
    (parted("devices: [1, 1], mig-enabled: false"), "listed twice"),
    (parted("devices: [], mig-enabled: false"), "lists no GPU"),
    (parted('devices: all, device-filter: "A100", mig-enabled: false'), "not a device filter"),
    (parted('devices: all, device-filter: ["0x20B010DE", "0x20B010DE:zz"], mig-enabled: false'), "not a device filter"),
    (parted('devices: all, device-filter: "0x120B010DE", mig-enabled: false'), "not a device filter"),
    (parted('devices: all, device-filter: "", mig-enabled: false'), "'device-filter' is empty"),
    (parted("devices: all, device-filter: [], mig-enabled: false"), "'device-filter' is empty"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1, 2g.10gb: 0}"), "is zero: leave it out"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1, 01g.5gb: 1}"), "already has"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1, 1c.1g.5gb: 1}"), "already has"),
    (parted("devices: all, devices: all, mig-enabled: false"), "written twice"),
    (parted("devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1, 1g.5gb: 2}"), "written twice"),
    (parted(OFF) + "  c: [{devices: all, mig-enabled: no}]\n", "written twice"),
    (parted(ON, OFF), "different states of the same GPU"),
    (parted(ON, "devices: [0], mig-enabled: false"), "different states of the same GPU"),
    (parted("devices: [0, 1], mig-enabled: false", ON.replace("all", "[1, 2]")), "different states of the same GPU"),
    ("version: v1\n", "'mig-configs' is missing"),
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted_by_both(text: str) -> None:
    assert faults_of(text) == ()
    assert faults_of(text, compat=True) == ()


@pytest.mark.parametrize(("text", "words"), REJECTED)
def test_rejected_by_both(text: str, words: str) -> None:
    for compat in (False, True):
        found = faults_of(text, compat=compat)
        assert any(words in line for line in found), found


@pytest.mark.parametrize(("text", "words"), STRICT_ONLY)
def test_silently_accepted_by_mig_parted(text: str, words: str) -> None:
    found = faults_of(text)
    assert any(words in line for line in found), found
    assert faults_of(text, compat=True) == ()


def test_entries_that_agree_may_overlap() -> None:
    assert faults_of(parted(ON, ON.replace("all", "[0]"))) == ()


def test_entries_for_different_chips_may_differ() -> None:
    other = ON.replace("devices: all", 'devices: all, device-filter: "0x20B710DE"')
    assert faults_of(parted('devices: all, device-filter: "0x20B010DE", mig-enabled: false', other)) == ()


def test_all_faults_at_once_in_order_with_line_and_column() -> None:
    text = """\
version: v1
mig-configs:
  c:
  - devices: [-1, 0, 0]
    mig-enabled: 1
    mig-devices:
      1g.5bg: 2
      2g.10gb: 1.5
    colour: red
  - mig-enabled: true
"""
    assert [line.split(": ")[0] for line in faults_of(text)] == [
        "4:15", "4:22", "5:18", "7:7", "8:16", "9:5", "10:5", "10:5",
    ]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        load(text, "gpus.yaml")
    assert caught.value.brief == "gpus.yaml has 8 errors"
    assert caught.value.details[0] == "gpus.yaml:4:15: the GPU index -1 is not from 0 to 1023"
    assert caught.value.exit_code == 2


def test_close_matches_of_a_misspelt_profile() -> None:
    (line,) = faults_of(parted("devices: all, mig-enabled: true, mig-devices: {1g.5bg: 1}"))
    assert "did you mean 1g.5gb" in line


def test_a_name_in_the_wrong_case_has_one_close_match() -> None:
    assert did_you_mean("a2-4q", ["L2-4Q", "A2-4Q", "A2-4C"]) == " (did you mean A2-4Q?)"
    assert did_you_mean("A2-4Q", ["L2-4Q", "A2-4Q"]) == ""


def test_names_keep_the_order_of_the_file() -> None:
    text = "version: v1\nmig-configs:\n" + "".join(f"  {n}: [{{devices: all, mig-enabled: no}}]\n" for n in "bac")
    assert load(text, "f").names == ("b", "a", "c")
