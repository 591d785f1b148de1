"""Labels against the values of gpu-feature-discovery (GFD) and of NVIDIA's GPU Operator documentation."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from aliquot.core.config.settings import MigStrategy
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gfd_labels import PREFIX, is_own_label, labels
from aliquot.kubernetes.gpu.label_names import is_name
from support.simnodes import Node

replace = msgspec.structs.replace
State = tuple[Inventory, Facts]
OURS = ".aliquot.dev/"


def of(node: Node | State, strategy: MigStrategy) -> dict[str, str]:
    """Return GFD's labels of a node, without their prefix. Asserts that these and all other labels are legal and owned
    by Aliquot.
    """
    inventory, facts = node.read() if isinstance(node, Node) else node
    found = labels(inventory, facts, strategy, now=1_700_000_000)
    for name, value in found.items():
        assert is_name(name.partition("/")[2]), name
        assert value == "" or is_name(value), (name, value)
        assert is_own_label(name) or name == PREFIX + "gpu.present"
    return {name.removeprefix(PREFIX): value for name, value in found.items() if name.startswith(PREFIX)}


def about(found: dict[str, str], *starts: str) -> dict[str, str]:
    return {name: value for name, value in found.items() if name.startswith(starts or ("gpu.", "mig-"))}


def keyed(node: Node | State, strategy: MigStrategy) -> dict[str, str]:
    inventory, facts = node.read() if isinstance(node, Node) else node
    return {k: v for k, v in labels(inventory, facts, strategy, now=0).items() if OURS in k}


def changed(state: State, index: int, change: Callable[[Gpu], Gpu]) -> State:
    """Return the node with one GPU changed."""
    inventory, facts = state
    gpus = tuple(change(g) if g.index == index else g for g in inventory.gpus)
    return replace(inventory, gpus=gpus), facts


WHOLE_A100 = {
    "gpu.product": "NVIDIA-A100-SXM4-40GB",
    "gpu.count": "2",
    "gpu.replicas": "1",
    "gpu.sharing-strategy": "none",
    "gpu.memory": "40960",
    "gpu.family": "ampere",
    "gpu.compute.major": "8",
    "gpu.compute.minor": "0",
    "gpu.machine": "unknown",
    "gpu.mode": "compute",
    "gpu.present": "true",
}
INVALID = {"gpu.count": "0", "gpu.replicas": "0", "gpu.memory": "0", "gpu.sharing-strategy": ""}


def test_the_node_itself() -> None:
    found = of(Node("a100-sxm4-40gb*2", "570.158.01"), "none")
    assert about(found, "cuda", "gfd", "mig", "mps", "vgpu") == {
        "gfd.timestamp": "1700000000",
        "cuda.driver.major": "570",
        "cuda.driver.minor": "158",
        "cuda.driver.rev": "01",
        "cuda.driver-version.major": "570",
        "cuda.driver-version.minor": "158",
        "cuda.driver-version.revision": "01",
        "cuda.driver-version.full": "570.158.01",
        "cuda.runtime.major": "12",
        "cuda.runtime.minor": "8",
        "cuda.runtime-version.major": "12",
        "cuda.runtime-version.minor": "8",
        "cuda.runtime-version.full": "12.8",
        "mig.capable": "true",
        "mps.capable": "false",
        "vgpu.present": "false",
    }, "strategy none has no mig.strategy label"
    assert about(found) == WHOLE_A100


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_without_mig_single_and_mixed_only_name_themselves(strategy: MigStrategy) -> None:
    node = Node("a100-sxm4-40gb*2")
    assert of(node, strategy) == of(node, "none") | {"mig.strategy": strategy}


def test_none_counts_gpus_in_mig_mode_whole() -> None:
    node = Node("a100-sxm4-40gb*2").cut("0", "3g.20gb")
    assert about(of(node, "none")) == WHOLE_A100
    node.cut("1", "3g.20gb")
    assert about(of(node, "none")) == WHOLE_A100 | {"gpu.replicas": "0"}, "no whole GPU is left"


def test_single_two_a100_with_two_halves_each() -> None:
    # The example of the notes on GFD. Memory is the value of an R470 driver.
    inventory, facts = Node("a100-sxm4-40gb*2").cut("all", "3g.20gb*2").read()
    old = tuple(replace(d, memory_mib=19968) for d in facts.mig_devices)
    assert about(of((inventory, replace(facts, mig_devices=old)), "single")) == WHOLE_A100 | {
        "gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb",
        "gpu.count": "4",
        "gpu.replicas": "1",
        "gpu.memory": "19968",
        "gpu.multiprocessors": "42",
        "gpu.slices.gi": "3",
        "gpu.slices.ci": "3",
        "gpu.engines.copy": "3",
        "gpu.engines.decoder": "2",
        "gpu.engines.encoder": "0",
        "gpu.engines.jpeg": "0",
        "gpu.engines.ofa": "0",
    }


def test_single_as_the_operator_documents_it() -> None:
    # GPU Operator with MIG, "Single MIG Strategy" and "Reconfiguring MIG Profiles".
    node = Node("h100-80gb-hbm3").cut("0", "1g.10gb*7")
    expected = {
        "gpu.count": "7",
        "gpu.present": "true",
        "gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
        "gpu.slices.ci": "1",
        "gpu.slices.gi": "1",
        "mig.capable": "true",
        "mig.strategy": "single",
    }
    assert expected.items() <= of(node, "single").items()
    node.cut("0", "3g.40gb*2")
    again = expected | {"gpu.count": "2", "gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"}
    again |= {"gpu.slices.ci": "3", "gpu.slices.gi": "3", "gpu.replicas": "1", "gpu.sharing-strategy": "none"}
    assert (again | {"mps.capable": "false"}).items() <= of(node, "single").items()


def test_mixed_as_the_operator_documents_it() -> None:
    # GPU Operator with MIG, "Mixed MIG Strategy": all-balanced on one H100.
    node = Node("h100-80gb-hbm3").cut("0", "1g.10gb*2,2g.20gb,3g.40gb")
    found = of(node, "mixed")
    counts = {name: value for name, value in found.items() if name.startswith("mig-") and name.endswith(".count")}
    assert counts == {"mig-1g.10gb.count": "2", "mig-2g.20gb.count": "1", "mig-3g.40gb.count": "1"}
    assert about(found, "mig-2g") == {
        "mig-2g.20gb.product": "NVIDIA-H100-80GB-HBM3-MIG-2g.20gb",
        "mig-2g.20gb.count": "1",
        "mig-2g.20gb.replicas": "1",
        "mig-2g.20gb.sharing-strategy": "none",
        "mig-2g.20gb.memory": "20096",
        "mig-2g.20gb.multiprocessors": "32",
        "mig-2g.20gb.slices.gi": "2",
        "mig-2g.20gb.slices.ci": "2",
        "mig-2g.20gb.engines.copy": "2",
        "mig-2g.20gb.engines.decoder": "2",
        "mig-2g.20gb.engines.encoder": "0",
        "mig-2g.20gb.engines.jpeg": "2",
        "mig-2g.20gb.engines.ofa": "0",
    }
    assert about(found, "gpu.count", "gpu.replicas") == {"gpu.count": "1", "gpu.replicas": "0"}


def test_mixed_writes_plus_as_a_dot_and_knows_compute_instances() -> None:
    node = Node("a100-sxm4-40gb*2").cut("0", "1g.5gb+me,1c.3g.20gb*2")
    found = of(node, "mixed")
    products = {name: value for name, value in about(found, "mig-").items() if name.endswith("product")}
    assert products == {
        "mig-1g.5gb.me.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me",
        "mig-1c.3g.20gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1c.3g.20gb",
    }
    assert about(found, "mig-1c.3g.20gb.count", "mig-1c.3g.20gb.slices", "mig-1c.3g.20gb.memory") == {
        "mig-1c.3g.20gb.count": "2",
        "mig-1c.3g.20gb.slices.gi": "3",
        "mig-1c.3g.20gb.slices.ci": "1",
        "mig-1c.3g.20gb.memory": "20096",
    }
    assert about(found) == WHOLE_A100 | about(found, "mig-")


def test_mixed_says_nothing_of_an_empty_mig_gpu() -> None:
    node = Node("a100-sxm4-40gb*2").cut("0", "empty")
    assert of(node, "mixed") == of(node, "none") | {"mig.strategy": "mixed"}


# -- nodes that single cannot name, in the order of GFD's checks, each with a similar node that it can name


def test_single_with_an_empty_gpu() -> None:
    node = Node("a100-sxm4-40gb*2").cut("0", "3g.20gb").cut("1", "empty")
    assert about(of(node, "single")) == WHOLE_A100 | INVALID | {"gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-INVALID"}
    node.cut("1", "3g.20gb")
    assert of(node, "single")["gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"


def test_an_instance_without_compute_instances_is_no_mig_device() -> None:
    node = Node("a100-sxm4-40gb").cut("0", "empty")
    node.backend.create_gpu_instance(node.backend.read().gpus[0].pci, 9, 0, 4)
    assert of(node, "single")["gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-INVALID"


def test_single_with_mig_mode_on_some_gpus_only() -> None:
    node = Node("a100-sxm4-40gb*2").cut("0", "3g.20gb")
    assert about(of(node, "single")) == WHOLE_A100 | INVALID | {"gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-INVALID"}


def test_single_with_several_profiles() -> None:
    node = Node("a100-sxm4-40gb*2").cut("0", "3g.20gb").cut("1", "1g.5gb")
    invalid = {"gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-INVALID"}
    assert about(of(node, "single")) == WHOLE_A100 | INVALID | invalid


def test_an_empty_gpu_comes_before_mode_and_profiles() -> None:
    # The first MIG GPU names the product, regardless of the check that fails first: GFD takes the first of its list.
    node = Node("a30,a100-sxm4-40gb,a100-sxm4-40gb").cut("1", "empty").cut("2", "1g.5gb,2g.10gb")
    assert of(node, "single")["gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-INVALID"
    assert of(node, "single")["gpu.family"] == "ampere"


# -- several products


def test_the_product_that_speaks_for_a_node_of_several() -> None:
    # GPUs outside MIG mode come before those in it, then the most GPUs, then the lowest index: always a possible result
    # of GFD.
    node = Node("a30,a100-sxm4-40gb*2,tesla-t4")
    assert about(of(node, "none"), "gpu.product", "gpu.count") == {
        "gpu.product": "NVIDIA-A100-SXM4-40GB",
        "gpu.count": "2",
    }
    node.cut("1-2", "3g.20gb")
    assert of(node, "none")["gpu.product"] == "NVIDIA-A30", "a whole GPU overrides those in MIG mode"
    assert of(Node("tesla-t4,a30"), "none")["gpu.product"] == "Tesla-T4"


def test_one_profile_name_on_two_products() -> None:
    # GFD counts them together under mixed, and considers single valid. The label shows the product with more GPUs.
    node = Node("h100-80gb-hbm3,a100-sxm4-80gb*2").cut("0", "1g.10gb*7").cut("1-2", "1g.10gb*3")
    assert about(of(node, "mixed"), "mig-1g.10gb.count", "mig-1g.10gb.product", "mig-1g.10gb.multi") == {
        "mig-1g.10gb.count": "13",
        "mig-1g.10gb.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
        "mig-1g.10gb.multiprocessors": "14",
    }
    assert about(of(node, "single"), "gpu.count", "gpu.product") == {
        "gpu.count": "13",
        "gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
    }


def test_keyed_labels_say_what_one_set_cannot() -> None:
    node = Node("a100-sxm4-40gb*2,tesla-t4").cut("0", "3g.20gb")
    found = keyed(node, "mixed")
    t4, a100 = "tesla-t4.aliquot.dev/", "nvidia-a100-sxm4-40gb.aliquot.dev/"
    assert {k.removeprefix(t4): v for k, v in found.items() if k.startswith(t4)} == {
        "gpu.present": "true",
        "gpu.product": "Tesla-T4",
        "gpu.count": "1",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.memory": "15360",
        "gpu.family": "turing",
        "gpu.compute.major": "7",
        "gpu.compute.minor": "5",
    }
    assert (found[a100 + "gpu.count"], found[a100 + "mig-3g.20gb.count"]) == ("2", "1")
    assert all(k.startswith((t4, a100)) for k in found)


def test_one_selector_finds_a_product_on_every_node() -> None:
    alone, beside = keyed(Node("tesla-t4"), "mixed"), keyed(Node("a30,tesla-t4"), "mixed")
    assert alone == {"tesla-t4.aliquot.dev/gpu.present": "true"}
    assert alone.items() <= beside.items()


# -- GPUs that containers cannot have


@pytest.mark.parametrize("change", [{"lost": True}, {"passthrough": True}, {"vgpus": ("nvidia-465",)}])
def test_a_gpu_that_containers_cannot_have_counts_nowhere(change: dict[str, object]) -> None:
    state = changed(Node("a100-sxm4-40gb*3").read(), 1, lambda g: replace(g, **change))
    assert about(of(state, "mixed")) == WHOLE_A100
    assert of(state, "mixed")["mig.strategy"] == "mixed"


def test_a_gpu_that_went_between_two_reads_counts_nowhere() -> None:
    inventory, facts = Node("a100-sxm4-40gb*3").read()
    assert about(of((inventory, replace(facts, gpus=facts.gpus[:2])), "none")) == WHOLE_A100


def test_a_node_without_any_such_gpu_has_only_the_time() -> None:
    state = changed(Node("a30").read(), 0, lambda g: replace(g, lost=True))
    assert of(state, "single") == {"gfd.timestamp": "1700000000"}
    assert keyed(state, "single") == {}


# -- the rest of the node


def test_machine_mode_and_clique() -> None:
    inventory, facts = Node("gb200*2").read()
    reported = replace(facts, host_product="NVIDIA GB200 NVL72 (rev. 2)")
    found = of((inventory, reported), "none")
    assert (found["gpu.machine"], found["gpu.mode"]) == ("NVIDIA-GB200-NVL72-rev.-2", "compute")
    assert found["gpu.clique"] == facts.gpus[0].clique
    assert of(Node("rtx-a6000"), "none")["gpu.mode"] == "graphics"
    assert of(Node("rtx-a6000,a30"), "none")["gpu.mode"] == "unknown"
    two = (facts.gpus[0], replace(facts.gpus[1], clique="11111111-0000-0000-0000-000000000000.2"))
    assert "gpu.clique" not in of((inventory, replace(facts, gpus=two)), "none"), "GFD names none if they differ"


def test_a_machine_whose_gpu_is_a_share_of_its_host_s() -> None:
    inventory, facts = Node("a30:guest").read()
    assert of((inventory, facts), "none")["vgpu.present"] == "false", "a whole GPU that was passed through"
    share = replace(facts, gpus=(replace(facts.gpus[0], vgpu=True),))
    assert of((inventory, share), "none")["vgpu.present"] == "true"


def test_what_the_driver_does_not_say_is_left_out() -> None:
    inventory, facts = Node("a30").read()
    bare = replace(facts.gpus[0], memory_mib=0, compute_capability=(0, 0))
    found = of((inventory, replace(facts, gpus=(bare,), cuda=(0, 0), driver="vgpu 16 beta")), "none")
    assert not [name for name in found if name.startswith(("gpu.memory", "gpu.family", "gpu.compute", "cuda.runtime"))]
    assert found["cuda.driver-version.full"] == "vgpu-16-beta"
    assert found["cuda.driver.rev"] == ""


def test_devices_of_unknown_size_do_not_get_that_of_the_whole_gpu() -> None:
    inventory, facts = Node("a30*2").cut("all", "1g.6gb*4").read()
    unknown = tuple(replace(d, memory_mib=-1) for d in facts.mig_devices)
    found = of((inventory, replace(facts, mig_devices=unknown)), "single")
    assert found["gpu.product"] == "NVIDIA-A30-MIG-1g.6gb"
    assert "gpu.memory" not in found


def test_labels_of_others_are_not_ours() -> None:
    theirs = [
        *(names.CONFIG_LABEL, names.STATE_LABEL, names.DEPLOY_PREFIX + "device-plugin"),
        *("nvidia.com/gpu.present", "nvidia.com/gpu.workload.config", "nvidia.com/gpu-driver-upgrade-state"),
        *("nvidia.com/mig-config", "nvidia.com/mig.configs", "nvidia.com/vgpu.config", "kubernetes.io/arch"),
        *("gpu.count", "aliquot.dev/gpu.count", "x.aliquot.dev/other", "a/b.aliquot.dev/gpu.count"),
    ]
    assert [name for name in theirs if is_own_label(name)] == []
    stale = [
        "nvidia.com/mig-1g.5gb.count",
        "nvidia.com/gpu.slices.gi",
        "nvidia.com/mig.strategy",
        "x.aliquot.dev/gpu.count",
    ]
    assert [name for name in stale if not is_own_label(name)] == []
