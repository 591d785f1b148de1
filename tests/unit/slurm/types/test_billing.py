"""TRESBillingWeights: the part of a GPU that each type takes from others, and the lines of slurm.conf."""

from __future__ import annotations

import pytest

from aliquot.core.model import catalog
from aliquot.slurm.conf.parser import parse
from aliquot.slurm.gpus.type_facts import facts_of_types
from aliquot.slurm.types.billing import (
    billing_weights,
    partition_lines,
    storage_tres,
)

A100 = ("a100_1g.5gb", "a100_2g.10gb", "a100_3g.20gb", "a100_4g.20gb", "a100_7g.40gb", "a100")


def weights(*types: str, whole: float = 100.0) -> dict[str, float | None]:
    return {each.type: each.weight for each in billing_weights(facts_of_types([types]), whole)}


def test_a_weight_is_the_larger_share_of_memory_or_compute() -> None:
    assert weights(*A100) == {
        "a100_1g.5gb": 14.29,  # 1/7 of compute
        "a100_2g.10gb": 28.57,
        "a100_3g.20gb": 50.0,  # 4/8 of memory
        "a100_4g.20gb": 57.14,
        "a100_7g.40gb": 100.0,
        "a100": 100.0,
    }


def test_the_weight_of_a_whole_gpu_scales_them() -> None:
    assert weights("a100_3g.20gb", "a100", whole=8.0) == {"a100_3g.20gb": 4.0, "a100": 8.0}


def test_a_compute_instance_pays_its_part_of_the_gpu_instance() -> None:
    assert weights("a100_1c.3g.20gb", "a100_2c.3g.20gb") == {"a100_1c.3g.20gb": 16.67, "a100_2c.3g.20gb": 33.33}


def test_where_boards_differ_the_larger_share_counts() -> None:
    (found,) = billing_weights(facts_of_types([("a100_1g.10gb",)]), 100.0)
    assert (found.weight, len(found.shares)) == (25.0, 2)


def test_a_type_without_facts_has_no_weight() -> None:
    (found,) = billing_weights(facts_of_types([("strange_1g.999gb",)]), 100.0)
    assert found.weight is None


@pytest.mark.parametrize("family", catalog.family_names())
def test_a_gpu_full_of_one_type_costs_no_more_than_a_whole_one(family: str) -> None:
    profiles = {p.name.lower(): p for p in catalog.family(family).plain_profiles}
    for name, weight in weights(*profiles).items():
        assert 0 < (weight or 0) * profiles[name].max_instances <= 100.1, name


CONF = """ClusterName=c
PartitionName=DEFAULT State=UP
PartitionName=main Nodes=n[1-4] \\
  Default=YES   # the usual one
PartitionName=old Nodes=n5 TRESBillingWeights="CPU=1.0,Mem=0.25G,GRES/gpu=8,gres/GPU:a100_1g.5gb=2" State=DOWN
PartitionName=bare Nodes=n6 TRESBillingWeights=CPU=2
PartitionName=cpus Nodes=n7
PartitionName=default TRESBillingWeights="CPU=4,GRES/gpu=10"
PartitionName=heir Nodes=n8
"""
TYPES = {
    "main": ("a100_1g.5gb", "a100_3g.20gb"),
    "old": ("a100_3g.20gb", "a100"),
    "bare": ("a100_1g.5gb",),
    "heir": ("a100",),
}


def lines(whole: float | None = None) -> dict[str, str]:
    conf = parse("slurm.conf", lambda _: CONF)
    facts = facts_of_types(TYPES.values())
    return {each.partition: each.line for each in partition_lines(conf, TYPES, facts, whole)}


def test_the_line_of_a_partition_gets_the_weights_of_its_types() -> None:
    found = lines()
    assert list(found) == ["main", "old", "bare", "heir"]
    assert found["main"] == (
        "PartitionName=main Nodes=n[1-4] \\\n  Default=YES "
        'TRESBillingWeights="GRES/gpu:a100_1g.5gb=14.29,GRES/gpu:a100_3g.20gb=50"'
    )
    assert found["bare"] == 'PartitionName=bare Nodes=n6 TRESBillingWeights="CPU=2,GRES/gpu:a100_1g.5gb=14.29"'


def test_other_weights_stay_and_the_untyped_gpu_is_the_scale() -> None:
    # With both, a job would be billed for its device twice: once by its type, once as a gpu.
    assert lines()["old"] == (
        'PartitionName=old Nodes=n5 TRESBillingWeights="CPU=1.0,Mem=0.25G,'
        'GRES/gpu:a100_3g.20gb=4,GRES/gpu:a100=8" State=DOWN'
    )
    assert "GRES/gpu:a100=100" in lines(100.0)["old"]


def test_weights_of_the_default_partition_are_inherited() -> None:
    assert lines()["heir"] == 'PartitionName=heir Nodes=n8 TRESBillingWeights="CPU=4,GRES/gpu:a100=10"'


def test_what_is_written_is_a_line_that_slurm_reads() -> None:
    for line in lines().values():
        again = parse("slurm.conf", lambda _, line=line: f"{line}\n")  # type: ignore[misc]
        assert not again.diagnostics
        assert len(again.statements) == 1


def test_the_tres_are_listed_once_and_those_of_the_site_stay() -> None:
    usual = "cpu,mem,energy,node,billing,fs/disk,vmem,pages"
    types = ("a100_1g.5gb", "a100")
    assert storage_tres(usual, types) == "gres/gpu,gres/gpu:a100_1g.5gb,gres/gpu:a100"
    assert storage_tres(f"{usual},license/x,gres/gpu", types) == "license/x,gres/gpu,gres/gpu:a100_1g.5gb,gres/gpu:a100"
    assert storage_tres(f"{usual},gres/gpu,gres/gpu:a100,gres/gpu:a100_1g.5gb", types) == ""
