"""What is said before acting: what a strategy cannot offer, and the command that helps."""

from __future__ import annotations

import pytest

from aliquot.core.config.select.command_line import adhoc
from aliquot.core.config.settings import MigStrategy
from aliquot.core.model import driver_checks as drivers
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.gpu.prediction import Prediction, predict, settings_map
from support.simworld import Node

GPU = "nvidia.com/gpu"
PATCH = (
    "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type='json' "
    """-p='[{"op":"replace", "path":"/spec/mig/strategy", "value":"%s"}]'"""
)
"""GPU Operator with MIG: the command before a config with more than one profile."""


def wish(inventory: Inventory, *pairs: tuple[str, str]) -> Desired:
    found = adhoc([gpus for gpus, _ in pairs], [mig for _, mig in pairs], inventory)
    return Desired(gpus=found.gpus, name="five-1g-one-2g")


def before(template: str, strategy: MigStrategy, *pairs: tuple[str, str], driver: str | None = None) -> Prediction:
    """The prediction for a node on which nothing was done yet."""
    inventory, facts = Node(template, driver).read()
    return predict(inventory, wish(inventory, *pairs), strategy, facts)


def test_several_profiles_under_single() -> None:
    """The custom config of the operator's documentation."""
    said = before("h100-80gb-hbm3", "single", ("0", "1g.10gb*5,2g.20gb"))
    assert said.refusals == (
        "config five-1g-one-2g does not fit strategy single, which would label the node "
        "NVIDIA-H100-80GB-HBM3-MIG-INVALID: there are MIG devices of several profiles: 1g.10gb, 2g.20gb",
    )
    assert said.next_step == PATCH % "mixed"
    assert (said.labels["nvidia.com/gpu.product"], said.resources) == ("NVIDIA-H100-80GB-HBM3-MIG-INVALID", {})


def test_the_same_under_mixed() -> None:
    said = before("h100-80gb-hbm3", "mixed", ("0", "1g.10gb*5,2g.20gb"))
    assert (said.refusals, said.warnings, said.next_step) == ((), (), None)
    assert said.resources == {"nvidia.com/mig-1g.10gb": 5, "nvidia.com/mig-2g.20gb": 1}
    assert said.labels["nvidia.com/mig-1g.10gb.count"] == "5"


def test_mig_on_some_gpus_under_single() -> None:
    said = before("a100-sxm4-40gb*2", "single", ("0", "3g.20gb*2"))
    assert "MIG mode is on for GPU 0 (0000:01:00.0) and off for GPU 1 (0000:02:00.0)" in said.refusals[0]
    assert said.next_step == PATCH % "mixed"
    assert before("a100-sxm4-40gb*2", "single", ("all", "3g.20gb*2")).resources == {GPU: 4}


def test_equal_names_of_different_sizes_under_single() -> None:
    said = before("h100-80gb-hbm3,a100-sxm4-80gb", "single", ("all", "1g.10gb*7"))
    assert "under which nothing would be offered: MIG devices named 1g.10gb differ" in said.refusals[0]
    assert (said.resources, said.next_step) == ({}, PATCH % "mixed")


@pytest.mark.parametrize(("pairs", "better"), [([("all", "1g.5gb*7")], "single"), ([("0", "1g.5gb*7")], "mixed")])
def test_mig_devices_under_none(pairs: list[tuple[str, str]], better: str) -> None:
    said = before("a100-sxm4-40gb*2", "none", *pairs)
    assert said.refusals == (
        "config five-1g-one-2g makes MIG devices: strategy none would hand their GPUs out whole, as nvidia.com/gpu",
    )
    assert said.next_step == PATCH % better
    assert said.resources == {GPU: 2}


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_nothing_stands_against_no_mig(strategy: MigStrategy) -> None:
    said = before("a100-sxm4-40gb*2", strategy, ("all", "disabled"))
    assert (said.refusals, said.warnings, said.resources) == ((), (), {GPU: 2})


@pytest.mark.parametrize(("strategy", "resources"), [("none", {GPU: 2}), ("single", {}), ("mixed", {})])
def test_mig_mode_alone_is_a_step_on_the_way(strategy: MigStrategy, resources: dict[str, int]) -> None:
    """``all-enabled`` of the generated configs: asked for on purpose, and worth a word."""
    said = before("a100-sxm4-40gb*2", strategy, ("all", "empty"))
    assert (said.refusals, said.resources) == ((), resources)
    assert said.warnings[0].startswith("2 GPUs in MIG mode without MIG devices")


def test_an_empty_gpu_beside_divided_ones_is_refused_under_single() -> None:
    said = before("a100-sxm4-40gb*2", "single", ("0", "3g.20gb"), ("1", "empty"))
    assert "with no MIG device" in said.refusals[0]


@pytest.mark.parametrize("driver", drivers.BAD_WITH_MIXED_MODES)
def test_drivers_that_are_bad_with_mixed_modes(driver: str) -> None:
    said = before("a100-sxm4-40gb*2", "mixed", ("0", "3g.20gb"), driver=driver)
    (warning,) = said.warnings
    assert said.refusals == ()
    for word in (driver, "gpu-operator issue 1361", "570.86.15", "570.172.08"):
        assert word in warning
    assert before("a100-sxm4-40gb*2", "mixed", ("all", "3g.20gb"), driver=driver).warnings == ()


@pytest.mark.parametrize("driver", [drivers.GOOD_INSTEAD, drivers.FIXED_IN])
def test_drivers_that_are_good_with_mixed_modes(driver: str) -> None:
    assert before("a100-sxm4-40gb*2", "mixed", ("0", "3g.20gb"), driver=driver).warnings == ()


def test_gpus_that_the_wish_leaves_alone_count() -> None:
    node = Node("a100-sxm4-40gb*2").cut("1", "2g.10gb")
    inventory, facts = node.read()
    said = predict(inventory, wish(inventory, ("0", "3g.20gb")), "single", facts)
    assert "several profiles: 2g.10gb, 3g.20gb" in said.refusals[0]


def test_mode_only_wishes() -> None:
    """``instances`` None leaves instances alone: they stay where the mode stays, and end where it ends."""
    inventory, facts = Node("a100-sxm4-40gb").cut("0", "3g.20gb*2").read()
    pci = inventory.gpus[0].pci

    def said(mig: bool | None) -> dict[str, int]:
        return predict(inventory, Desired((DesiredGpu(pci, mig, None),)), "mixed", facts).resources

    assert said(None) == said(True) == {"nvidia.com/mig-3g.20gb": 2}
    assert said(False) == {GPU: 1}


def test_figures_of_this_driver_come_before_the_table_s() -> None:
    from msgspec.structs import replace

    inventory, facts = Node("a100-sxm4-40gb*2").cut("0", "3g.20gb").read()
    old = replace(facts, mig_devices=tuple(replace(d, memory_mib=19968) for d in facts.mig_devices))
    asked = wish(inventory, ("all", "3g.20gb*2"))
    assert predict(inventory, asked, "single", old).labels["nvidia.com/gpu.memory"] == "19968"
    assert predict(inventory, asked, "single", facts).labels["nvidia.com/gpu.memory"] == "20096"


def test_without_facts_less_is_said_and_nothing_else() -> None:
    inventory, facts = Node("a100-sxm4-40gb*2,tesla-t4").read()
    asked = wish(inventory, ("0", "3g.20gb*2"))
    full, less = predict(inventory, asked, "mixed", facts), predict(inventory, asked, "mixed")
    assert less.labels.items() < full.labels.items()
    missing = {name.rpartition("/")[2].partition(".")[0] for name in set(full.labels) - set(less.labels)}
    assert missing == {"cuda", "gpu", "mps", "vgpu"}
    assert less.labels["nvidia.com/gpu.memory"] == "40960"
    assert (less.resources, less.refusals, less.warnings) == (full.resources, full.refusals, full.warnings)


def test_our_own_settings_as_the_remedy() -> None:
    inventory, facts = Node("a30").read()
    said = predict(inventory, wish(inventory, ("0", "1g.6gb,2g.12gb")), "single", facts, settings_map("gpus"))
    assert said.next_step == (
        "kubectl -n gpus edit configmap aliquot-settings   # settings.yaml: mig: {strategy: mixed}"
    )


def test_a_lost_gpu_is_not_counted_on() -> None:
    node = Node("a100-sxm4-40gb*2")
    inventory, _ = node.read()
    asked = wish(inventory, ("all", "3g.20gb*2"))
    node.backend.memory.control("fault", kind="lost", gpu=1)
    inventory, facts = node.read()
    assert inventory.gpus[1].lost
    said = predict(inventory, asked, "single", facts)
    assert (said.resources, said.refusals) == ({GPU: 2}, ())
