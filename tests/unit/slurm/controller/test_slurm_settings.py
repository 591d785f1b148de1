"""Settings of the Slurm controller: read completely, or every error reported with its position."""

from __future__ import annotations

import pytest

from aliquot.errors import ConfigError
from aliquot.slurm.controller.settings_parser import load

GOOD = """
version: aliquot-slurm/v1
type-style: full
layouts: {mig_2x3g: {3g.20gb: 2}}
limits: {interval: 2.5, changes-per-hour: 7, at-once: 3, promise: 90}
records:
- nodes: gpu[01-02]
  reach: ssh -o BatchMode=yes root@{host}
  host: "{node}.cluster"
  options: [--conf-dir, /etc/slurm]
  profiles: [1g.5gb, 3g.20gb, whole]
  keep: {1g.5gb: 2}
  modes: true
  idle: 30
  patience: 600
- {nodes: [solo], patience: never, untouched: true, way: dynamic}
partitions:
  train: {profiles: [3g.20gb], most: {3g.20gb: 4}}
  "*": {demands: false}
"""


def test_a_whole_file() -> None:
    found = load(GOOD, "s.yaml")
    assert [h.name for h in found.hosts] == ["gpu01", "gpu02", "solo"]
    first, _, solo = found.hosts
    assert first.reach == ("ssh", "-o", "BatchMode=yes", "root@gpu01.cluster")
    assert first.options == ("--conf-dir", "/etc/slurm")
    assert first.rules.profiles == ("1g.5gb", "3g.20gb", "whole")
    assert (first.rules.keep, first.rules.modes) == ({"1g.5gb": 2}, True)
    assert (first.limits.idle_s, first.limits.patience_s) == (30.0, 600.0)
    assert (solo.reach, solo.limits.patience_s, solo.rules.untouched) == ((), None, True)
    assert (found.interval_s, found.per_hour, found.at_once, found.promise_s) == (2.5, 7, 3, 90.0)
    assert found.style == "full"
    assert found.partition("train").most == {"3g.20gb": 4}
    assert not found.partition("debug").demands
    assert found.layouts == {"mig_2x3g": {"3g.20gb": 2}}


def test_a_slot_board_has_limits_of_its_own_and_the_clusters_grow_with_its_nodes() -> None:
    text = (
        "version: aliquot-slurm/v1\nrecords:\n- {nodes: 'n[1-40]', slots: true}\n- {nodes: m, slots: true, between: 7}"
    )
    found = load(text, "s.yaml")
    assert all(host.slots for host in found.hosts)
    assert (found.hosts[0].limits.between_s, found.hosts[0].limits.per_hour) == (10.0, 120)
    assert (found.hosts[-1].limits.between_s, found.per_hour, found.at_once) == (7.0, 41 * 120, 10)
    assert not load(GOOD, "s.yaml").hosts[0].slots
    plain = load("version: aliquot-slurm/v1\nrecords:\n- nodes: n1", "s.yaml")
    assert (plain.per_hour, plain.at_once) == (60, 4)


def test_every_fault_is_reported_at_once_with_its_place() -> None:
    text = """
version: aliquot-slurm/v2
typestyle: full
limits: {interval: 0, at-once: many}
records:
- nodes: gpu[01-
- nodes: a
  reach: ssh {machine}
  profiles: [3g.20g]
  keep: {1g.5gb: -1}
  idle: soon
- {nodes: c, options: [--slots]}
- nodes: a
  options: --conf-dir /etc
  modes: yes please
- {way: cloud, nodes: [a, b]}
- reach: ""
partitions:
  train: {demand: true}
"""
    with pytest.raises(ConfigError) as raised:
        load(text, "s.yaml")
    message = "\n".join(raised.value.details)
    for sentence in (
        "s.yaml:2:10: the file must say version: aliquot-slurm/v1",
        "s.yaml:3:1: unknown key 'typestyle'",
        "did you mean type-style",
        "'interval' takes seconds, 0.1 or more",
        "'at-once' takes a whole number",
        "a bracket is not closed",
        "'reach' may contain {node} and {host}",
        "profile '3g.20g' (did you mean 3g.20gb",
        "the count of '1g.5gb' in 'keep' must be from 0 to 1024",
        "'idle' takes seconds",
        "Aliquot has no CLOUD records any more: make the host one node of slurm.conf with a slot board",
        "the node a is in two entries",
        "'options' must be a list of words",
        "use the key 'slots: true'",
        "'modes' is true or false",
        "lacks the key 'nodes'",
        "unknown key 'demand' in the partition 'train' (did you mean demands",
    ):
        assert sentence in message, (sentence, message)
    assert all(line.startswith("s.yaml:") for line in raised.value.details)


@pytest.mark.parametrize(
    "text", ["", "[]", "version: aliquot-slurm/v1", "version: aliquot-slurm/v1\nrecords: []", ": :"]
)
def test_what_is_no_settings_file(text: str) -> None:
    with pytest.raises(ConfigError):
        load(text, "s.yaml")
