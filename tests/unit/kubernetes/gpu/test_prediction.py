"""Predictions before a change: devices that a strategy cannot offer, and the command that helps."""

from __future__ import annotations

import pytest

from aliquot.core.config.select.command_line import adhoc
from aliquot.core.config.settings import MigStrategy
from aliquot.core.model import driver_checks as drivers
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.gpu.prediction import Prediction, predict, settings_map
from support.simnodes import Node

GPU = "nvidia.com/gpu"
PATCH = (
    "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type='json' "
    """-p='[{"op":"replace", "path":"/spec/mig/strategy", "value":"%s"}]'"""
)
"""GPU Operator with MIG: the command before a config with more than one profile."""


def desired_state(inventory: Inventory, *pairs: tuple[str, str]) -> Desired:
    found = adhoc([gpus for gpus, _ in pairs], [mig for _, mig in pairs], inventory)
    return Desired(gpus=found.gpus, name="five-1g-one-2g")


def before(template: str, strategy: MigStrategy, *pairs: tuple[str, str], driver: str | None = None) -> Prediction:
    """Return the prediction for a node without any changes yet."""
    inventory, facts = Node(template, driver).read()
    return predict(inventory, desired_state(inventory, *pairs), strategy, facts)


def test_several_profiles_under_single() -> None:
    # The custom config of the operator's documentation.
    answer = before("h100-80gb-hbm3", "single", ("0", "1g.10gb*5,2g.20gb"))
    assert answer.refusals == (
        "config five-1g-one-2g does not fit strategy single, which would label the node "
        "NVIDIA-H100-80GB-HBM3-MIG-INVALID: there are MIG devices of several profiles: 1g.10gb, 2g.20gb",
    )
    assert answer.next_step == PATCH % "mixed"
    assert (answer.labels["nvidia.com/gpu.product"], answer.resources) == ("NVIDIA-H100-80GB-HBM3-MIG-INVALID", {})


def test_the_same_under_mixed() -> None:
    answer = before("h100-80gb-hbm3", "mixed", ("0", "1g.10gb*5,2g.20gb"))
    assert (answer.refusals, answer.warnings, answer.next_step) == ((), (), None)
    assert answer.resources == {"nvidia.com/mig-1g.10gb": 5, "nvidia.com/mig-2g.20gb": 1}
    assert answer.labels["nvidia.com/mig-1g.10gb.count"] == "5"


def test_mig_on_some_gpus_under_single() -> None:
    answer = before("a100-sxm4-40gb*2", "single", ("0", "3g.20gb*2"))
    assert "MIG mode is enabled for GPU 0 (0000:01:00.0) and disabled for GPU 1 (0000:02:00.0)" in answer.refusals[0]
    assert answer.next_step == PATCH % "mixed"
    assert before("a100-sxm4-40gb*2", "single", ("all", "3g.20gb*2")).resources == {GPU: 4}


def test_equal_names_of_different_sizes_under_single() -> None:
    answer = before("h100-80gb-hbm3,a100-sxm4-80gb", "single", ("all", "1g.10gb*7"))
    assert "which would offer nothing: MIG devices named 1g.10gb differ" in answer.refusals[0]
    assert (answer.resources, answer.next_step) == ({}, PATCH % "mixed")


@pytest.mark.parametrize(("pairs", "better"), [([("all", "1g.5gb*7")], "single"), ([("0", "1g.5gb*7")], "mixed")])
def test_mig_devices_under_none(pairs: list[tuple[str, str]], better: str) -> None:
    answer = before("a100-sxm4-40gb*2", "none", *pairs)
    assert answer.refusals == (
        "config five-1g-one-2g creates MIG devices, but strategy none would offer whole GPUs as nvidia.com/gpu",
    )
    assert answer.next_step == PATCH % better
    assert answer.resources == {GPU: 2}


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_nothing_stands_against_no_mig(strategy: MigStrategy) -> None:
    answer = before("a100-sxm4-40gb*2", strategy, ("all", "disabled"))
    assert (answer.refusals, answer.warnings, answer.resources) == ((), (), {GPU: 2})


@pytest.mark.parametrize(("strategy", "resources"), [("none", {GPU: 2}), ("single", {}), ("mixed", {})])
def test_mig_mode_alone_is_a_step_on_the_way(strategy: MigStrategy, resources: dict[str, int]) -> None:
    # Covers ``all-enabled`` of the generated configs: an intended request that needs a note.
    answer = before("a100-sxm4-40gb*2", strategy, ("all", "empty"))
    assert (answer.refusals, answer.resources) == ((), resources)
    assert answer.warnings[0].startswith("2 GPUs in MIG mode have no MIG devices")


def test_an_empty_gpu_beside_divided_ones_is_refused_under_single() -> None:
    answer = before("a100-sxm4-40gb*2", "single", ("0", "3g.20gb"), ("1", "empty"))
    assert "without any MIG device" in answer.refusals[0]


@pytest.mark.parametrize("driver", drivers.BAD_WITH_MIXED_MODES)
def test_drivers_that_are_bad_with_mixed_modes(driver: str) -> None:
    answer = before("a100-sxm4-40gb*2", "mixed", ("0", "3g.20gb"), driver=driver)
    (warning,) = answer.warnings
    assert answer.refusals == ()
    for word in (driver, "gpu-operator issue 1361", "570.86.15", "570.172.08"):
        assert word in warning
    assert before("a100-sxm4-40gb*2", "mixed", ("all", "3g.20gb"), driver=driver).warnings == ()


@pytest.mark.parametrize("driver", [drivers.GOOD_INSTEAD, drivers.FIXED_IN])
def test_drivers_that_are_good_with_mixed_modes(driver: str) -> None:
    assert before("a100-sxm4-40gb*2", "mixed", ("0", "3g.20gb"), driver=driver).warnings == ()


def test_gpus_that_the_request_leaves_alone_count() -> None:
    node = Node("a100-sxm4-40gb*2").cut("1", "2g.10gb")
    inventory, facts = node.read()
    answer = predict(inventory, desired_state(inventory, ("0", "3g.20gb")), "single", facts)
    assert "several profiles: 2g.10gb, 3g.20gb" in answer.refusals[0]


def test_mode_only_requests() -> None:
    # ``instances`` None leaves instances unchanged: they stay if the mode stays, and end if it ends.
    inventory, facts = Node("a100-sxm4-40gb").cut("0", "3g.20gb*2").read()
    pci = inventory.gpus[0].pci

    def answer(mig: bool | None) -> dict[str, int]:
        return predict(inventory, Desired((DesiredGpu(pci, mig, None),)), "mixed", facts).resources

    assert answer(None) == answer(True) == {"nvidia.com/mig-3g.20gb": 2}
    assert answer(False) == {GPU: 1}


def test_figures_of_this_driver_come_before_the_table_s() -> None:
    from msgspec.structs import replace

    inventory, facts = Node("a100-sxm4-40gb*2").cut("0", "3g.20gb").read()
    old = replace(facts, mig_devices=tuple(replace(d, memory_mib=19968) for d in facts.mig_devices))
    asked = desired_state(inventory, ("all", "3g.20gb*2"))
    assert predict(inventory, asked, "single", old).labels["nvidia.com/gpu.memory"] == "19968"
    assert predict(inventory, asked, "single", facts).labels["nvidia.com/gpu.memory"] == "20096"


def test_without_facts_less_is_reported_and_nothing_else() -> None:
    inventory, facts = Node("a100-sxm4-40gb*2,tesla-t4").read()
    asked = desired_state(inventory, ("0", "3g.20gb*2"))
    full, less = predict(inventory, asked, "mixed", facts), predict(inventory, asked, "mixed")
    assert less.labels.items() < full.labels.items()
    missing = {name.rpartition("/")[2].partition(".")[0] for name in set(full.labels) - set(less.labels)}
    assert missing == {"cuda", "gpu", "mps", "vgpu"}
    assert less.labels["nvidia.com/gpu.memory"] == "40960"
    assert (less.resources, less.refusals, less.warnings) == (full.resources, full.refusals, full.warnings)


def test_our_own_settings_as_the_remedy() -> None:
    inventory, facts = Node("a30").read()
    answer = predict(
        inventory, desired_state(inventory, ("0", "1g.6gb,2g.12gb")), "single", facts, settings_map("gpus")
    )
    assert answer.next_step == (
        "kubectl -n gpus edit configmap aliquot-settings   # settings.yaml: mig: {strategy: mixed}"
    )


def test_a_lost_gpu_is_not_counted_on() -> None:
    node = Node("a100-sxm4-40gb*2")
    inventory, _ = node.read()
    asked = desired_state(inventory, ("all", "3g.20gb*2"))
    node.backend.memory.control("fault", kind="lost", gpu=1)
    inventory, facts = node.read()
    assert inventory.gpus[1].lost
    answer = predict(inventory, asked, "single", facts)
    assert (answer.resources, answer.refusals) == ({GPU: 2}, ())
