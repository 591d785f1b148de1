"""Counts and types, as slurmd and slurmctld interpret them."""

from __future__ import annotations

import pytest

from aliquot.core.model import catalog
from aliquot.slurm.client.models import Version
from aliquot.slurm.conf.counts import entries

from .judging import SLURM, cut, findings, rules

WHOLE = "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("gpu", [("", 1)]),
        ("gpu:2", [("", 2)]),
        ("gpu:a100", [("a100", 1)]),
        ("gpu:a100:2,gpu:a100_1g.5gb:7(S:0-1)", [("a100", 2), ("a100_1g.5gb", 7)]),
        ("gpu:no_consume:3,mps:200,shard:a:4", [("", 3)]),
        ("gpu:a:1k", [("a", 1024)]),
        ("gpu:a:2KB", [("a", 2000)]),
    ],
)
def test_counts_as_slurm_counts(value: str, expected: list[tuple[str, int]]) -> None:
    found = entries(value)
    assert [(e.type, e.count) for e in found] == expected
    assert not any(e.error for e in found)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("gpu:a100:x2", "'x2' is not a number: Slurm reads it as another type"),
        ("gpu:a100:2x", "'2x' is not a number: Slurm loses this GRES"),
        ("gpu:1g.5gb", "the type 1g.5gb needs a count after it"),
        ("gpu:a:b:2", "it has 2 types"),
        ("gpu:1g", "Slurm reads 1g as the number 1073741824"),
        ("gpu:a100:", "'' is not a number"),
    ],
)
def test_malformed_counts(value: str, says: str) -> None:
    (found,) = [f for f in findings(f"NodeName=n1 Gres={value}\n", WHOLE) if f.rule == "BAD_COUNT"]
    assert says in found.sentence
    assert str(found.location) == "/etc/slurm/slurm.conf:5"


@pytest.mark.parametrize(
    ("nodes", "gres", "expected"),
    [
        ("NodeName=n1 Gres=gpu:a100:2\n", WHOLE, ["error COUNT_MISMATCH slurm.conf:5"]),
        ("NodeName=n1 Gres=gpu:2\n", WHOLE, ["error COUNT_MISMATCH slurm.conf:5"]),
        ("NodeName=n1 Gres=gpu:1\n", WHOLE, []),
        ("NodeName=n1 Gres=gpu:a100:1\n", WHOLE + cut("s", 7, 1), ["warning EXTRA_DEVICES gres.conf:2"]),
        ("NodeName=n1 Gres=gpu:1\n", WHOLE + cut("s", 7, 1), ["warning EXTRA_DEVICES slurm.conf:5"]),
        ("NodeName=n1 Gres=gpu:s:1\n", cut("s", 7) + cut("s", 8), ["warning EXTRA_DEVICES slurm.conf:5"]),
        ("NodeName=n1 CPUs=2\n", WHOLE, ["warning EXTRA_DEVICES gres.conf:1"]),
        ("NodeName=n1 Gres=gpu:A100:1\n", WHOLE, ["error TYPE_CASE slurm.conf:5"]),
        ("NodeName=n1 Gres=gpu:a100:1,gpu:2\n", WHOLE, ["error MIXED_TYPES slurm.conf:5"]),
        ("NodeName=n1 Gres=gpu:2\n", WHOLE + "Name=gpu File=/dev/nvidia1\n", ["error MIXED_TYPES gres.conf:2"]),
        ("NodeName=n1 Gres=gpu:a100:2\n", WHOLE + "Name=gpu Type=a100\n", ["error MIXED_FILES gres.conf:2"]),
        ("NodeName=n1 Gres=gpu:1\n", "Name=gpu Count=2 File=/dev/nvidia0\n", ["error BAD_COUNT gres.conf:1"]),
        ("NodeName=n1 Gres=gpu:1\n", "Name=gpu Count=one File=/dev/nvidia0\n", ["error BAD_COUNT gres.conf:1"]),
        ("NodeName=n1 Gres=gpu:1\n", "Name=gpu MultipleFiles=/dev/nvidia0\n", ["error ONE_FILE gres.conf:1"]),
        (
            "NodeName=n1 Gres=gpu:1\n",
            "Name=gpu File=/dev/nvidia0 MultipleFiles=/dev/nvidia1,/dev/nvidia2\n",
            ["error TWO_FILES gres.conf:1"],
        ),
        ("NodeName=n1 Gres=gpu:2000\n", None, ["error NO_GRES_CONF slurm.conf:5", "error TOO_MANY slurm.conf:5"]),
    ],
)
def test_two_files_against_each_other(nodes: str, gres: str | None, expected: list[str]) -> None:
    assert rules(nodes, gres) == expected


def test_alike_nodes_are_one_finding_and_a_default_line_is_named() -> None:
    nodes = "NodeName=DEFAULT Gres=gpu:a100:2\nNodeName=n[1-300] CPUs=1\n"
    (found,) = findings(nodes, "NodeName=n[1-300] Name=gpu Type=a100 File=/dev/nvidia0\n")
    assert (found.rule, str(found.location), len(found.nodes)) == ("COUNT_MISMATCH", "/etc/slurm/slurm.conf:5", 300)


def test_slurm_leaves_gpus_out_that_gres_types_does_not_name() -> None:
    nodes = "NodeName=n1 Gres=gpu:a100:1\n"
    assert rules(nodes, WHOLE, head=SLURM.replace("gpu", "shard")) == ["error NO_GRES_TYPES slurm.conf:2"]
    assert rules(nodes, WHOLE, head=SLURM.replace("GresTypes=gpu\n", "")) == ["error NO_GRES_TYPES slurm.conf"]
    assert rules("NodeName=n1\n", "", head="ClusterName=x\n") == []


@pytest.mark.parametrize(
    ("head", "cgroup", "expected"),
    [
        (SLURM, "ConstrainDevices=no\n", ["error OPEN_DEVICES cgroup.conf:1"]),
        (SLURM, None, ["error OPEN_DEVICES cgroup.conf"]),
        (SLURM, "CgroupPlugin=disabled\nconstraindevices=YES\n", ["error OPEN_DEVICES cgroup.conf:1"]),
        (SLURM.replace("task/cgroup,", ""), "ConstrainDevices=yes\n", ["error OPEN_DEVICES slurm.conf:4"]),
        (SLURM.replace("tres", "res"), "ConstrainDevices=yes\n", ["warning NO_GPU_SELECTION slurm.conf:3"]),
    ],
)
def test_jobs_are_fenced_in(head: str, cgroup: str | None, expected: list[str]) -> None:
    nodes = "NodeName=n1 Gres=gpu:s:1\n"
    assert rules(nodes, cut("s", 7), head=head, cgroup=cgroup) == expected
    lighter = [each.replace("error", "warning") for each in expected]
    assert rules("NodeName=n1 Gres=gpu:a100:1\n", WHOLE, head=head, cgroup=cgroup) == lighter


def test_open_devices_are_reported_before_there_are_lines_for_gpus() -> None:
    head = "ClusterName=x\nGresTypes=gpu\nTaskPlugin=task/none\n"
    found = rules("NodeName=n1\n", None, head=head, cgroup=None)
    assert found == ["warning OPEN_DEVICES cgroup.conf", "warning OPEN_DEVICES slurm.conf:3"]
    assert rules("NodeName=n1\n", None, head=head.replace("gpu", "nic"), cgroup=None) == []


def test_an_old_slurm_selects_no_gpus_by_default() -> None:
    head = SLURM.replace("SelectType=select/cons_tres\n", "")
    assert head != SLURM
    for version, expected in (
        (Version(22, 5, 8), ["warning NO_GPU_SELECTION slurm.conf"]),
        (Version(24, 11), []),
        (None, []),
    ):
        found = rules("NodeName=n1 Gres=gpu:a100:1\n", WHOLE, head=head, version=version)
        assert [each for each in found if "SELECTION" in each] == expected


def test_nodes_that_stand_there_twice_or_start_drained_without_a_word() -> None:
    nodes = "NodeName=n[1-3] State=DRAIN\nNodeName=n3 State=DRAIN Reason=mine\n"
    assert rules(nodes) == ["error NODE_TWICE slurm.conf:6", "warning NO_REASON slurm.conf:5"]


def test_an_unread_line() -> None:
    gres = WHOLE + "NodeName=n9 Name=gpu Type=a100 File=/dev/nvidia0\n"
    assert rules("NodeName=n1 Gres=gpu:a100:1\n", gres) == ["warning UNKNOWN_NODE gres.conf:2"]
    assert rules("MaxNodeCount=9\nNodeName=n1 Gres=gpu:a100:1\n", gres) == []


def test_what_slurm_cannot_read_is_a_finding() -> None:
    assert rules("NodeName=n1 x\n", "Name=gpu Typ=a File=/dev/nvidia0\n")[:2] == [
        "error UNREADABLE gres.conf:1",
        "error UNREADABLE slurm.conf:5",
    ]


def test_types_that_slurm_takes_for_each_other() -> None:
    # The two forms of H100 with 94 and with 96 GB in one cluster have such a pair.
    pair = "NodeName=n1 Gres=gpu:h100_4g.47gb:1\nNodeName=n2 Gres=gpu:h100_3g.48gb:2\n"
    (found,) = [f for f in findings(pair, "") if f.rule == "SAME_TYPE_ID"]
    assert found.sentence.startswith("Slurm does not distinguish the types h100_3g.48gb and h100_4g.47gb")
    assert str(found.location) == "/etc/slurm/slurm.conf:6"
    fine = "NodeName=n1 Gres=gpu:h100_4g.47gb:1\nNodeName=n2 Gres=gpu:h100_3g.47gb:2,gpu:h100_4g.47gb:1\n"
    assert not [f for f in findings(fine, "") if f.rule == "SAME_TYPE_ID"]


@pytest.mark.parametrize("family", catalog.family_names())
@pytest.mark.parametrize("model", ["a100", "gh200", "a30", "h100nv"])
def test_slurm_distinguishes_the_types_of_one_product(family: str, model: str) -> None:
    profiles = catalog.family(family).profiles
    types = {f"{model}_{name}" for p in profiles for name in (p.name, *(c.name for c in p.compute))} | {model, "pad"}
    nodes = "".join(f"NodeName=n{n} Gres=gpu:{each}:1\n" for n, each in enumerate(sorted(types)))
    assert not [f for f in findings(nodes, "") if f.rule == "SAME_TYPE_ID"]
