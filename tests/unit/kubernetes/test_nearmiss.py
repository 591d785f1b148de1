"""Labels that do nothing, told from those that are somebody else's."""

from __future__ import annotations

import pytest

from aliquot.integrations.kubernetes import names
from aliquot.integrations.kubernetes.labels import PREFIX, labels
from aliquot.integrations.kubernetes.nearmiss import near_misses, near_products
from simworld import Node

PRODUCT = "nvidia.com/gpu.product"


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.con/mig.config",  # NVIDIA's own documentation
        *("nvidia.com/mig.conf", "nvidia.com/mig-config", "nvidia.com/mig.configs", "nvidia.com/mig.cfg"),
        *("NVIDIA.com/mig.config", "nvidia.com/MIG.config", "nvidia.com/migconfig", "nvidia.com/mig.confg"),
        *("nvidia/mig.config", "nvida.com/mig.config", "nvidia.io/mig.config", "mig.config"),
    ],
)
def test_what_was_meant(name: str) -> None:
    wanted = f"label {name}=all-disabled does nothing: nvidia.com/mig.config was probably meant"
    assert near_misses({name: "all-disabled", "kubernetes.io/arch": "amd64"}) == (wanted,)


@pytest.mark.parametrize(
    "name",
    [
        *(names.CONFIG_LABEL, names.STATE_LABEL, names.STRATEGY_LABEL, names.CAPABLE_LABEL),
        *(names.DEPLOY_PREFIX + "mig-manager", "nvidia.com/gpu.workload.config", "nvidia.com/device-plugin.config"),
        *(
            "nvidia.com/vgpu.config",
            "nvidia.com/vgpu.config.state",
            "nvidia.com/mig.config.stat",
            "nvidia.com/mps.capable",
        ),
        *("amd.com/mig.config", "aliquot.dev/mig.config", "kubernetes.io/hostname", "config", ""),
    ],
)
def test_what_is_left_alone(name: str) -> None:
    assert near_misses({name: "all-disabled"}) == ()


def test_no_label_that_we_write_is_a_near_miss() -> None:
    inventory, facts = Node("a100-sxm4-40gb*2,tesla-t4").cut("0-1", "1g.5gb*3,1g.5gb+me,1c.2g.10gb*2").read()
    assert near_misses(labels(inventory, facts, "mixed", now=0)) == ()


def test_in_the_order_of_names() -> None:
    found = near_misses({"nvidia.com/mig.conf": "b", "nvidia.con/mig.config": "a", "nvidia.com/mig-config": "c"})
    assert [sentence.split("=")[0] for sentence in found] == [
        "label nvidia.com/mig-config",
        "label nvidia.com/mig.conf",
        "label nvidia.con/mig.config",
    ]


@pytest.mark.parametrize(
    "asked", ["A100-SXM4-40GB", "nvidia-a100-sxm4-40gb", "NVIDIA A100 SXM4 40GB", "NVIDIA_A100-SXM4-40GB"]
)
def test_a_product_spelled_otherwise(asked: str) -> None:
    (sentence,) = near_products({PRODUCT: asked}, {PRODUCT: "NVIDIA-A100-SXM4-40GB"})
    told = f"the product is spelled otherwise, {PRODUCT}=NVIDIA-A100-SXM4-40GB"
    assert sentence == f"node selector {PRODUCT}={asked} finds nothing: {told}"


def test_a_product_that_single_named_anew() -> None:
    present = labels(*Node("a30").cut("0", "1g.6gb*4").read(), "single", now=0)
    (sentence,) = near_products({PRODUCT: "NVIDIA-A30"}, present)
    assert sentence.endswith(f"{PRODUCT}=NVIDIA-A30-MIG-1g.6gb")
    assert "MIG profile" in sentence
    assert near_products({PRODUCT: "A30-MIG-1g.6gb"}, present)


@pytest.mark.parametrize("asked", ["NVIDIA-A30", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A30-MIG-2g.12gb"])
def test_another_product_is_another_product(asked: str) -> None:
    assert near_products({PRODUCT: asked}, {PRODUCT: "NVIDIA-A30"}) == ()
    assert near_products({PREFIX + "gpu.count": "1"}, {PRODUCT: "NVIDIA-A30"}) == ()
    assert near_products({PRODUCT: asked}, {}) == ()
