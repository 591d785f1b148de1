"""Cores= of gres.conf against the cores of slurm.conf, and syntax that older releases cannot read."""

from __future__ import annotations

import pytest

from aliquot.slurm.client.models import Version

from .judging import cut, rules

LINE = "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0 Cores="
BAD = ["error BAD_CORES gres.conf:1"]


@pytest.mark.parametrize(
    ("node", "cores", "expected"),
    [
        ("CPUs=4", "0-3", []),
        ("CPUs=4", "4", BAD),
        ("CPUs=4", "0,2-4", BAD),
        ("CPUs=4", "[0-3]", []),
        ("CPUs=4", "ALL", []),
        ("CPUs=4", "x", BAD),
        ("CPUs=4", "0-", BAD),
        ("CPUs=4 ThreadsPerCore=2", "0-1", []),
        ("CPUs=4 ThreadsPerCore=2", "2", BAD),
        ("CPUs=64 CoresPerSocket=16 ThreadsPerCore=2", "0-31", []),
        ("CPUs=64 CoresPerSocket=16 ThreadsPerCore=2", "0-63", BAD),
        ("CPUs=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2", "2-3", []),
        ("CPUs=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2", "4", BAD),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=8", "31", []),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=8", "32", BAD),
        ("Sockets=2", "99", []),
        ("", "99", []),
    ],
)
def test_cores_are_those_of_the_node(node: str, cores: str, expected: list[str]) -> None:
    found = rules(f"NodeName=n1 Gres=gpu:a100:1 {node}\n", f"{LINE}{cores}\n")
    assert found == expected


def test_cores_of_a_default_line_count_and_nodes_are_judged_one_by_one() -> None:
    nodes = "NodeName=DEFAULT CPUs=2\nNodeName=n1 Gres=gpu:a100:1\nNodeName=n2 Gres=gpu:a100:1 CPUs=8\n"
    gres = f"{LINE}0-3\n".replace("n1", "n[1-2]")
    assert rules(nodes, gres) == BAD
    assert rules(nodes.replace("CPUs=2", "CPUs=4"), gres) == []
    assert rules("MaxNodeCount=9\n", gres) == [], "a dynamic node says itself what it has"


def test_several_files_of_one_device_came_with_21_08() -> None:
    nodes = "NodeName=n1 Gres=gpu:a100_1g.5gb:1\n"
    assert "error OLD_SLURM gres.conf:1" in rules(nodes, cut("a100_1g.5gb", 7), version=Version(20, 11, 9))
    for version in (Version(21, 8), Version(24, 11), None):
        assert not any("OLD_SLURM" in f for f in rules(nodes, cut("a100_1g.5gb", 7), version=version))
