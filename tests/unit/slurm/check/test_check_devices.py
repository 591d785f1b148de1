"""Device files of gres.conf: each GRES has one MIG device or one whole GPU, and each device is used once."""

from __future__ import annotations

import pytest

from .judging import GPU, cap, cut, findings, rules

SEED_GRES = """\
# Standard Physical GPU
# NodeName=compute-01 Name=gpu Type=a100 File=/dev/nvidia0

# MIG Instances
# Map specific MIG device files (created by driver) to SLURM GRES
NodeName=compute-01 Name=gpu Type=1g.5gb File=/dev/nvidia-caps/nvidia-cap1
NodeName=compute-01 Name=gpu Type=1g.5gb File=/dev/nvidia-caps/nvidia-cap2
# ...
"""


def test_the_seed_document_has_each_of_its_errors_by_name() -> None:
    found = rules("NodeName=compute-01 Gres=gpu:a100:1,gpu:1g.5gb:7\n", SEED_GRES, cgroup=None)
    assert found == [
        "error OPEN_DEVICES cgroup.conf",
        "error ADMIN_CAPABILITY gres.conf:6",
        "error LONE_CAPABILITY gres.conf:6",
        "error ADMIN_CAPABILITY gres.conf:7",
        "error LONE_CAPABILITY gres.conf:7",
        "error COUNTED_TWICE slurm.conf:5",
        "error COUNT_MISMATCH slurm.conf:5",
        "error COUNT_MISMATCH slurm.conf:5",
    ]


def test_right_files_have_no_finding() -> None:
    nodes = "NodeName=n1 Gres=gpu:a100_1g.5gb:2,gpu:a100:1\n"
    gres = cut("a100_1g.5gb", 7) + cut("a100_1g.5gb", 8) + "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia1\n"
    assert rules(nodes, gres) == []


def test_two_compute_instances_of_one_gpu_instance_are_two_devices() -> None:
    files = f"{GPU},{cap(66)}"
    gres = f"Name=gpu Type=1c.2g MultipleFiles={files},{cap(67)}\nName=gpu Type=1c.2g MultipleFiles={files},{cap(68)}\n"
    assert rules("NodeName=n1 Gres=gpu:1c.2g:2\n", gres) == []


@pytest.mark.parametrize(
    ("files", "rule", "says"),
    [
        (f"{GPU},{cap(66)}", "HALF_INSTANCE", "the compute instance is missing: GPU instance 7 on /dev/nvidia0"),
        (f"{GPU},{cap(67)}", "HALF_INSTANCE", "the GPU instance is missing: compute instance 0 of GPU instance"),
        (f"{cap(66)},{cap(67)}", "NO_GPU_NODE", "the GPU's device node is missing"),
        (f"{GPU},{cap(66)},{cap(76)}", "WRONG_MINOR", "nvidia-cap76 is compute instance 0 of GPU instance 8"),
        (f"/dev/nvidia1,{cap(66)},{cap(67)}", "WRONG_MINOR", "nvidia-cap66 is GPU instance 7 on /dev/nvidia0, not on"),
        (f"{GPU},{cap(66)},{cap(67)},{cap(75)},{cap(76)}", "MIXED_INSTANCES", "it offers several instances as one"),
        (f"{GPU},/dev/nvidia1,{cap(66)},{cap(67)}", "MIXED_INSTANCES", "it offers several GPUs"),
        (f"{GPU},{cap(1)},{cap(66)},{cap(67)}", "ADMIN_CAPABILITY", "nvidia-cap1 is mig/config"),
        (f"{GPU},{cap(66)},{cap(67)},{cap(2)}", "ADMIN_CAPABILITY", "nvidia-cap2 is mig/monitor"),
        (f"{GPU},{cap(66)},{cap(67)},{cap(4400)}", "WRONG_MINOR", "nvidia-cap4400 does not belong to an instance"),
    ],
)
def test_a_slice_is_its_gpu_and_both_its_instances(files: str, rule: str, says: str) -> None:
    (found,) = findings("NodeName=n1 Gres=gpu:x:1\n", f"Name=gpu Type=x MultipleFiles={files}\n")
    assert (found.rule, found.severity, str(found.location)) == (rule, "error", "/etc/slurm/gres.conf:1")
    assert found.sentence.startswith(says)


def test_a_wrong_minor_is_reported_with_the_right_one() -> None:
    found = findings("NodeName=n1 Gres=gpu:x:1\n", f"Name=gpu Type=x MultipleFiles=/dev/nvidia1,{cap(201)},{cap(67)}\n")
    assert next((f.rule, f.fix) for f in found) == ("WRONG_MINOR", "there it would be nvidia-cap202")


def test_a_capability_by_itself_is_no_device() -> None:
    found = findings("NodeName=n1 Gres=gpu:x:2\n", "Name=gpu Type=x File=/dev/nvidia-caps/nvidia-cap[66-67]\n")
    assert [f.rule for f in found] == ["LONE_CAPABILITY", "LONE_CAPABILITY"]
    assert found[0].fix.startswith("use MultipleFiles=/dev/nvidia0 ")


def test_a_gpu_is_counted_once() -> None:
    nodes = "NodeName=n1 Gres=gpu:a100:1,gpu:1g.5gb:1\n"
    gres = "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0\n" + cut("1g.5gb", 7)
    assert rules(nodes, gres) == ["error COUNTED_TWICE gres.conf:1", "error COUNTED_TWICE slurm.conf:5"]


def test_another_node_may_have_the_same_files() -> None:
    nodes = "NodeName=n1 Gres=gpu:a100:1\nNodeName=n2 Gres=gpu:1g.5gb:1\n"
    assert rules(nodes, "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0\n" + cut("1g.5gb", 7, node="n2")) == []


def test_no_device_is_offered_twice() -> None:
    twice = cut("1g.5gb", 7) + cut("1g.5gb", 7)
    assert rules("NodeName=n1 Gres=gpu:1g.5gb:2\n", twice) == ["error SAME_DEVICE gres.conf:2"]
    whole = "Name=gpu Type=a File=/dev/nvidia[0-1]\nName=gpu Type=a File=/dev/nvidia1\n"
    assert rules("NodeName=n1 Gres=gpu:a:3\n", whole) == ["error SAME_DEVICE gres.conf:2"]


def test_a_file_that_is_not_on_this_machine() -> None:
    nodes = "NodeName=n[1-2] Gres=gpu:1g.5gb:1\n"
    gres = cut("1g.5gb", 7) + cut("1g.5gb", 8, node="n2")
    absent = frozenset({cap(66), cap(67)})
    assert rules(nodes, gres, local_node="n1", absent=absent) == ["error FILE_MISSING gres.conf:1"]
    assert rules(nodes, gres, local_node="n2", absent=absent) == []
    (found,) = findings(nodes, gres, local_node="n1", absent=absent)
    assert found.sentence == f"{cap(66)} does not exist (and 1 more): slurmd does not start"
