"""Layouts as features, CLOUD nodes, and slurmctld's reports."""

from __future__ import annotations

import pytest

from aliquot.slurm.check.features import devices
from aliquot.slurm.check.finding import LiveState
from aliquot.slurm.client.models import Gres, SlurmNode, Version
from aliquot.slurm.files.managed_block import replace_block

from .judging import SLURM, findings, rules

HELPERS = SLURM + "NodeFeaturesPlugins=node_features/helpers\n"
OLD, NEW = Version(22, 5, 8), Version(24, 11, 5)
GOOD = "ExecTime=120\n"


def reported(
    helpers: str, nodes: str = "NodeName=n1\n", version: Version | None = NEW, head: str = HELPERS
) -> list[str]:
    return rules(nodes, "", head=head, helpers=helpers, version=version)


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("NodeName=n1 Feature=a,b Helper=/x Flags=rebootless\n", NEW, []),
        ("Feature=a Helper=/x\nFeature=b Helper=/x\n", OLD, []),
        ("NodeName=n1 Feature=a Helper=/x\n", OLD, ["error HELPERS_FORM helpers.conf:1"]),
        ("Feature=a,b Helper=/x\n", OLD, ["error HELPERS_FORM helpers.conf:1"]),
        ("Feature=a Helper=/x Flags=rebootless\n", Version(23, 11), ["error HELPERS_FORM helpers.conf:1"]),
        ("Feature=1g.5gb Helper=/x\n", NEW, ["error FEATURE_NAME helpers.conf:1"]),
        ("Feature=mig_1x1g.5gb+me Helper=/x\n", NEW, ["error FEATURE_NAME helpers.conf:1"]),
        ("Feature=mig_2x3g.20gb,mig_1x4g.20gb_1x3g.20gb Helper=/x\n", NEW, []),
        ("Feature=mig_2x3g.20gb,mig_7x1g.5gb Helper=/x\n", NEW, ["error FAMILY_COUNT helpers.conf:1"]),
        ("Feature=other Helper=/x\nMutuallyExclusive=mig_2x3g.20gb,other\n", NEW, []),
        ("MutuallyExclusive=mig_2x3g.20gb,mig_7x1g.5gb\n", OLD, ["error FAMILY_COUNT helpers.conf:1"]),
    ],
)
def test_helpers_conf(text: str, version: Version, expected: list[str]) -> None:
    assert reported(text + GOOD, version=version) == expected


def test_a_helper_has_time() -> None:
    assert reported("Feature=a Helper=/x\nExecTime=10\n") == ["warning EXEC_TIME helpers.conf:2"]
    assert reported("Feature=a Helper=/x\n") == ["warning EXEC_TIME helpers.conf"]
    assert reported("MutuallyExclusive=a,b\n") == []


def test_a_changeable_feature_is_no_static_one() -> None:
    nodes = "NodeName=n1 Feature=ib,mig_a\n"
    text = f"Feature=mig_a Helper=/x\n{GOOD}"
    assert reported(text, nodes) == ["error FEATURE_STATIC slurm.conf:6"]
    assert reported(text, nodes, OLD) == ["warning FEATURE_STATIC slurm.conf:6"]
    assert reported(text, head=SLURM) == ["warning NO_HELPERS_PLUGIN slurm.conf"]


def test_devices_of_a_layout() -> None:
    names = ("mig_2x3g.20gb", "mig_1x4g.20gb_1x3g.20gb", "mig_7x1g.5gb.me", "mig_small", "ib")
    assert [devices(each) for each in names] == [2, 2, 7, 0, 0]


CLOUD = "".join(
    f"NodeName=h-{kind} NodeHostname=h NodeAddr=h State=CLOUD Port={port} Gres=gpu:{kind}:1\n"
    for port, kind in ((7001, "a"), (7002, "b"))
)


def node(name: str, *states: str, **more: object) -> SlurmNode:
    return SlurmNode(name, frozenset(states), **more)  # type: ignore[arg-type]


def resting(kind: str, files: str) -> str:
    return f"NodeName=h-{kind} Name=gpu Type={kind} {files}\n"


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        (resting("a", "File=/dev/nvidia0") + resting("b", "File=/dev/nvidia0"), []),
        (resting("a", "File=/dev/nvidia0") + resting("b", "Count=1"), ["error CLOUD_NO_FILE slurm.conf:6"]),
        (resting("a", "File=/dev/nvidia0"), ["error CLOUD_NO_FILE slurm.conf:6"]),
        (None, ["error CLOUD_NO_FILE slurm.conf:5", "error CLOUD_NO_FILE slurm.conf:6"]),
        ("AutoDetect=nvml\n", ["error AUTODETECT_CLOUD gres.conf:1"]),
        (
            resting("a", "File=/dev/nvidia[0-1]") + resting("b", "File=/dev/nvidia0"),
            ["warning EXTRA_DEVICES slurm.conf:5"],
        ),
    ],
)
def test_slurmctld_counts_a_cloud_records_devices_by_files(gres: str | None, expected: list[str]) -> None:
    assert [f for f in rules(CLOUD, gres) if "FENCED" not in f] == expected


NODE = "NodeName=n1 Gres=gpu:a100:2\n"
GRES = "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"
TWO = (Gres("gpu", "a100", 2),)


def live(
    nodes: str, *now: SlurmNode, changed: int = 0, version: Version = NEW, gres: str = GRES
) -> list[tuple[str, str]]:
    return [(f.rule, f.command) for f in findings(nodes, gres, live=LiveState(now, changed), version=version)]


def test_a_node_that_is_as_the_files_say() -> None:
    assert live(NODE, node("n1", "IDLE", gres=TWO, slurmd_start=20), changed=10) == []
    assert live("NodeName=n1 Gres=gpu:2\n", node("n1", "IDLE", gres=TWO)) == []


def test_a_node_out_of_work() -> None:
    invalid = node("n1", "IDLE", "DRAIN", "INVALID_REG", gres=TWO, reason="gres/gpu count reported lower")
    assert live(NODE, invalid) == [("NODE_INVALID", "aliquot slurm check --live")]
    (drained,) = live(NODE, node("n1", "IDLE", "DRAIN", gres=TWO))
    assert drained == ("NO_REASON", 'scontrol update nodename=n1 reason="why, and who"')
    assert live(NODE, node("n1", "IDLE", "DRAIN", gres=TWO, reason="disk")) == []


def test_files_that_slurmctld_has_not_read() -> None:
    old = node("n1", "IDLE", gres=(Gres("gpu", "a100", 1),))
    assert live(NODE, old) == [("STALE_CONTROLLER", "scontrol reconfigure")]
    assert live(NODE, old, version=OLD) == [("STALE_CONTROLLER", "systemctl restart slurmctld")]
    dynamic = node("n1", "IDLE", "DYNAMIC_NORM", gres=(Gres("gpu", "a100", 1),))
    assert [rule for rule, _ in live(NODE, dynamic)] == ["REGISTERED"]


def test_a_slurmd_that_is_older_than_its_files() -> None:
    late = node("n1", "IDLE", gres=TWO, slurmd_start=5)
    assert live(NODE, late, changed=10) == [("STALE_SLURMD", "scontrol reconfigure")]
    assert live(NODE, late, changed=10, version=OLD) == [("STALE_SLURMD", "aliquot slurm apply --node-name n1")]
    unavailable = node("n1", "DOWN", gres=TWO, slurmd_start=5)
    assert live(NODE, unavailable, changed=10) == []


def test_a_dynamic_node_that_registered_with_something_else() -> None:
    right = node("n1", "IDLE", "DYNAMIC_NORM", gres=TWO)
    nodes = "MaxNodeCount=9\n"
    assert live(nodes, right) == []
    wrong = node("n1", "IDLE", "DYNAMIC_NORM", gres=(Gres("gpu", "a100", 1),))
    assert live(nodes, wrong) == [("REGISTERED", "aliquot slurm apply --node-name n1")]


def test_a_node_whose_managed_block_was_edited_registers_again_by_force() -> None:
    edited = replace_block("", "n1", tuple(GRES.splitlines())).replace("a100", "a101")
    wrong = node("n1", "IDLE", "DYNAMIC_NORM", gres=(Gres("gpu", "a100", 1),))
    found = live("MaxNodeCount=9\n", wrong, gres=edited)
    assert ("REGISTERED", "aliquot slurm apply --node-name n1 --force") in found
