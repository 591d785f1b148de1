"""Resource names and devices as NVIDIA's plugin has them, and the isolation of one bad GPU."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from aliquot.core.config.settings import MigStrategy
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Inventory, VirtualFunction
from aliquot.kubernetes.gpu.device_resources import ResourceOffer, offer, resource_counts
from support.simnodes import Node

replace = msgspec.structs.replace
State = tuple[Inventory, Facts]
GPU = "nvidia.com/gpu"
SHARED = GpuVirtualization(total=16, functions=(VirtualFunction("0000:02:00.4", 0),))


def made(node: Node | State, strategy: MigStrategy, *unhealthy: str) -> ResourceOffer:
    inventory, facts = node.read() if isinstance(node, Node) else node
    found = offer(inventory, facts, strategy, unhealthy=frozenset(unhealthy))
    if not any("not offered: " in sentence for sentence in found.refusals):
        assert resource_counts(inventory, facts, strategy) == {r.name: len(r.devices) for r in found.resources}
    return found


def sizes(found: ResourceOffer) -> dict[str, int]:
    return {resource.name: len(resource.devices) for resource in found.resources}


def indexes(found: ResourceOffer) -> dict[str, list[str]]:
    return {resource.name: [d.index for d in resource.devices] for resource in found.resources}


def changed(state: State, index: int, change: Callable[[Gpu], Gpu]) -> State:
    inventory, facts = state
    gpus = tuple(change(g) if g.index == index else g for g in inventory.gpus)
    return replace(inventory, gpus=gpus), facts


def test_whole_gpus() -> None:
    node = Node("dgx-a100")
    inventory, _ = node.read()
    for strategy in ("none", "single", "mixed"):
        found = made(node, strategy)
        assert found.refusals == ()
        assert indexes(found) == {GPU: [str(n) for n in range(8)]}
        fourth = found.resources[0].devices[3]
        assert (fourth.id, fourth.gpu) == (inventory.gpus[3].uuid, inventory.gpus[3].pci)
        assert (fourth.paths, fourth.numa, fourth.healthy) == (("/dev/nvidia1",), 0, True), "minor 1, not index 3"
        assert found.resources[0].devices[7].numa == 1


def test_none_hands_gpus_in_mig_mode_out_whole() -> None:
    node = Node("a100-sxm4-40gb*2").cut("0", "3g.20gb*2")
    assert indexes(made(node, "none")) == {GPU: ["0", "1"]}


def test_single() -> None:
    node = Node("a100-sxm4-40gb*2").cut("all", "3g.20gb*2")
    found = made(node, "single")
    assert (indexes(found), found.refusals) == ({GPU: ["0:0", "0:1", "1:0", "1:1"]}, ())
    inventory, facts = node.read()
    assert [d.id for d in found.resources[0].devices] == [d.uuid for d in facts.mig_devices]
    gpu = inventory.gpus[1]
    instance = gpu.instances[0]
    assert found.resources[0].devices[2].paths == (
        f"/dev/nvidia{gpu.minor}",
        f"/dev/nvidia-caps/nvidia-cap{3 + 135 * gpu.minor + 9 * instance.id}",
        f"/dev/nvidia-caps/nvidia-cap{3 + 135 * gpu.minor + 9 * instance.id + 1}",
    )


def test_single_refuses_what_nvidia_s_plugin_refuses() -> None:
    # Each case withdraws all resources of the node. A sentence reports it, and the next step fixes it.
    node = Node("a100-sxm4-40gb*2").cut("0", "3g.20gb").cut("1", "empty")
    head = "strategy single offers nothing on this node: "
    assert made(node, "single") == ResourceOffer(
        (), (head + "MIG mode is enabled for GPU 1 (0000:02:00.0) without any MIG device",)
    )
    node.cut("1", "disabled")
    fault = "MIG mode is enabled for GPU 0 (0000:01:00.0) and disabled for GPU 1 (0000:02:00.0)"
    assert made(node, "single") == ResourceOffer((), (head + fault,))
    node.cut("1", "3g.20gb,1g.5gb")
    fault = "there are MIG devices of several profiles: 1g.5gb, 3g.20gb"
    assert made(node, "single") == ResourceOffer((), (head + fault,))
    node.cut("1", "3g.20gb")
    assert sizes(made(node, "single")) == {GPU: 2}


def test_single_says_the_first_of_several_faults() -> None:
    # The order is that of gpu-feature-discovery's checks. Many GPUs are reported by number, not individually.
    node = Node("a100-sxm4-40gb*8").cut("1", "3g.20gb,1g.5gb").cut("2", "empty")
    assert "MIG mode is enabled for GPU 2 (0000:47:00.0) without any MIG device" in made(node, "single").refusals[0]
    node.cut("2", "2g.10gb")
    off = "disabled for 6 GPUs (indexes 0, 3, 4, 5, 6, 7)"
    assert made(node, "single").refusals[0].endswith(f"and {off}")
    node.cut("all", "3g.20gb").cut("2", "2g.10gb")
    assert made(node, "single").refusals[0].endswith("several profiles: 2g.10gb, 3g.20gb")


def test_single_refuses_equal_names_of_different_sizes() -> None:
    # gpu-feature-discovery accepts them, but the plugin refuses: 1g.10gb of an H100 has other engines than an A100's.
    node = Node("h100-80gb-hbm3,a100-sxm4-80gb").cut("0", "1g.10gb*7").cut("1", "1g.10gb*7")
    (sentence,) = made(node, "single").refusals
    assert sentence.endswith(
        "MIG devices named 1g.10gb differ in size between GPU 0 (0000:01:00.0) and GPU 1 (0000:02:00.0)"
    )
    assert sizes(made(node, "mixed")) == {"nvidia.com/mig-1g.10gb": 14}


def test_mixed() -> None:
    node = Node("a100-sxm4-40gb*3,tesla-t4").cut("1", "3g.20gb,1g.5gb+me,1g.5gb").cut("2", "1c.3g.20gb*2,2g.10gb")
    found = made(node, "mixed")
    assert found.refusals == ()
    assert indexes(found) == {
        GPU: ["0", "3"],
        "nvidia.com/mig-1c.3g.20gb": ["2:0", "2:1"],
        "nvidia.com/mig-1g.5gb": ["1:1"],
        "nvidia.com/mig-1g.5gb.me": ["1:2"],
        "nvidia.com/mig-2g.10gb": ["2:2"],
        "nvidia.com/mig-3g.20gb": ["1:0"],
    }
    first, second = found.resources[1].devices
    assert first.paths[:2] == second.paths[:2], "two compute instances of one GPU instance"
    assert first.paths[2] != second.paths[2]


def test_mixed_with_mig_everywhere_has_no_whole_gpu() -> None:
    assert sizes(made(Node("a30").cut("0", "1g.6gb*4"), "mixed")) == {"nvidia.com/mig-1g.6gb": 4}


def test_mixed_with_an_empty_gpu_offers_the_others() -> None:
    node = Node("a100-sxm4-40gb*3").cut("0", "empty").cut("1", "3g.20gb")
    found = made(node, "mixed")
    assert indexes(found) == {GPU: ["2"], "nvidia.com/mig-3g.20gb": ["1:0"]}
    assert found.refusals == ("GPU 0 (0000:01:00.0) offers nothing: MIG mode is enabled, but it has no MIG device",)


# -- one bad GPU


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lost": True}, "it has fallen off the bus"),
        ({"passthrough": True}, "it is passed through to VMs"),
        ({"vgpus": ("a", "b")}, "it is divided into vGPUs (2 in use)"),
        ({"virtual": SHARED}, "it is reserved for VMs (its virtual functions are enabled)"),
        ({"minor": -1}, "it has no device node"),
    ],
)
def test_a_gpu_that_containers_cannot_have_hides_no_other(
    strategy: MigStrategy, change: dict[str, object], reason: str
) -> None:
    found = made(changed(Node("a100-sxm4-40gb*3").read(), 1, lambda g: replace(g, **change)), strategy)
    assert indexes(found) == {GPU: ["0", "2"]}
    assert found.refusals == (f"GPU 1 (0000:02:00.0) is not offered: {reason}",)


def test_a_lost_gpu_in_mig_mode_does_not_spoil_single() -> None:
    node = Node("a100-sxm4-40gb*2").cut("all", "3g.20gb")
    state = changed(node.read(), 0, lambda g: replace(g, lost=True, instances=()))
    assert indexes(made(state, "single")) == {GPU: ["1:0"]}


def test_a_gpu_without_facts_is_not_offered() -> None:
    inventory, facts = Node("a30*2").read()
    found = made((inventory, replace(facts, gpus=facts.gpus[1:])), "mixed")
    assert indexes(found) == {GPU: ["1"]}
    assert "could not be read" in found.refusals[0]


def test_health() -> None:
    node = Node("a100-sxm4-40gb*3").cut("0-1", "3g.20gb*2")
    inventory, facts = node.read()
    sick_gpu, sick_mig = inventory.gpus[0].uuid, facts.mig_devices[3].uuid
    found = made(node, "mixed", sick_gpu, sick_mig, inventory.gpus[2].uuid)
    health = {r.name: [d.healthy for d in r.devices] for r in found.resources}
    assert health == {GPU: [False], "nvidia.com/mig-3g.20gb": [False, False, True, False]}


def test_a_gpu_divided_again_between_two_reads() -> None:
    # Facts and inventory are two reads: a device that only one of them contains is left out until the next read.
    node = Node("a100-sxm4-40gb*2").cut("0", "3g.20gb*2")
    _, old = node.read()
    inventory, new = node.cut("0", "3g.20gb,1g.5gb").read()
    found = made((inventory, old), "mixed")
    assert sizes(found) == {GPU: 1, "nvidia.com/mig-3g.20gb": 1}
    assert found.refusals[0].endswith("is not offered: the GPU was repartitioned while it was read")
    assert made((inventory, new), "mixed").refusals == ()


def test_another_device_at_the_same_place() -> None:
    inventory, facts = Node("a30").cut("0", "1g.6gb*4").read()
    other = replace(facts.mig_devices[0], uuid="MIG-of-before")
    found = made((inventory, replace(facts, mig_devices=(other, *facts.mig_devices[1:]))), "mixed")
    assert sizes(found) == {"nvidia.com/mig-1g.6gb": 3}
    assert found.refusals[0].startswith("MIG device MIG-of-before on GPU 0")


def test_the_capabilities_that_open_everything_are_never_given_out() -> None:
    # nvidia-cap1 and nvidia-cap2 are mig/config and mig/monitor. An inventory that assigns them is wrong.

    def wrong(gpu: Gpu) -> Gpu:
        return replace(gpu, instances=tuple(replace(i, capability_minor=1) for i in gpu.instances))

    found = made(changed(Node("a30").cut("0", "1g.6gb").read(), 0, wrong), "mixed")
    assert [r.devices for r in found.resources] == [()]
    assert found.refusals[0].endswith("its capability device nodes are unknown")


def test_a_name_that_kubernetes_refuses_hides_no_other() -> None:
    inventory, facts = Node("a100-sxm4-40gb").cut("0", "3g.20gb,1g.5gb").read()
    strange = tuple(replace(d, profile="1g." + "5" * 60 + "gb") if d.ci_slices == 1 else d for d in facts.mig_devices)
    found = made((inventory, replace(facts, mig_devices=strange)), "mixed")
    assert sizes(found) == {"nvidia.com/mig-3g.20gb": 1}
    assert "is not a valid resource name" in found.refusals[0]
