"""Labels without effect, distinguished from labels of other owners."""

from __future__ import annotations

import pytest

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gfd_labels import PREFIX, labels
from aliquot.kubernetes.gpu.misspellings import names_whole_product, near_label, near_misses, near_resource, near_value
from support.simnodes import Node

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
def test_the_intended_word(name: str) -> None:
    wanted = f"label {name}=all-disabled has no effect: did you mean nvidia.com/mig.config?"
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


@pytest.mark.parametrize(
    ("name", "found"),
    [
        *((name, True) for name in ("nvidia.com/vgpu.confg", "nvidia.con/vgpu.config", "nvidia.com/vGPU-config")),
        *((name, False) for name in (names.CONFIG_LABEL, names.VGPU_CONFIG_LABEL, "nvidia.com/vgpu.config.state")),
        *((name, False) for name in ("nvidia.com/vgpu.present", "nvidia.com/vgpu.host-driver-version")),
    ],
)
def test_the_label_for_vgpus(name: str, found: bool) -> None:
    wanted = (f"label {name}=two has no effect: did you mean nvidia.com/vgpu.config?",)
    assert near_misses({name: "two"}, names.VGPU_CONFIG_LABEL) == (wanted if found else ())


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


A100, A30 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A30"


@pytest.mark.parametrize(
    "asked",
    [
        "A100-SXM4-40GB",
        "nvidia-a100-sxm4-40gb",
        "NVIDIA A100 SXM4 40GB",
        "NVIDIA_A100-SXM4-40GB",
        "NVIDA-A100-SXM4-40GB",
    ],
)
def test_a_product_spelled_otherwise(asked: str) -> None:
    assert near_value(PRODUCT, asked, A100)


@pytest.mark.parametrize(
    "asked", [A30, "NVIDIA-A100-SXM4-80GB", "A100-PCIE-40GB", "A100", A100, "NVIDIA-A100-SXM4", ""]
)
def test_another_product_is_another_product(asked: str) -> None:
    assert not near_value(PRODUCT, asked, A100)


def test_a_product_that_single_named_again() -> None:
    present = labels(*Node("a30").cut("0", "1g.6gb*4").read(), "single", now=0)[PRODUCT]
    assert present == "NVIDIA-A30-MIG-1g.6gb"
    assert names_whole_product(A30, present)
    assert names_whole_product("A30", present)
    assert near_value(PRODUCT, "A30-MIG-1g.6gb", present)
    for asked in ("NVIDIA-A30-MIG-2g.12gb", A100):
        assert not names_whole_product(asked, present)
        assert not near_value(PRODUCT, asked, present)
    assert not names_whole_product(A30, "NVIDIA-A30-MIG-INVALID")
    assert not names_whole_product(A30, A30)


@pytest.mark.parametrize(
    ("label", "asked", "there"),
    [
        (names.CONFIG_LABEL, "all-1g.5g", "all-1g.5gb"),
        (names.CONFIG_LABEL, "all_1g.5GB", "all-1g.5gb"),
        (names.CONFIG_LABEL, "all-balnaced", "all-balanced"),
        (names.STRATEGY_LABEL, "mixd", "mixed"),
        (names.CAPABLE_LABEL, "True", "true"),
    ],
)
def test_a_value_spelled_otherwise(label: str, asked: str, there: str) -> None:
    assert near_value(label, asked, there)


@pytest.mark.parametrize(
    ("label", "asked", "there"),
    [
        (names.CONFIG_LABEL, "all-1g.5gb", "all-1g.10gb"),
        (names.CONFIG_LABEL, "all-1g.5gb", "all-2g.5gb"),
        (names.CONFIG_LABEL, "all-1g.5gb", "all-1g.35gb"),
        (names.CONFIG_LABEL, "all-enabled", "all-disabled"),
        (names.CONFIG_LABEL, "team-a", "team-ab"),
        (names.CONFIG_LABEL, "all-1g.5gb.me", "all-1g.5gb"),
        (names.CAPABLE_LABEL, "false", "true"),
        (PREFIX + "gpu.machine", "PowerEdge-R750x", "PowerEdge-R750"),
        (PREFIX + "gpu.family", "", "ampere"),
    ],
)
def test_another_value_is_another_value(label: str, asked: str, there: str) -> None:
    assert not near_value(label, asked, there)


@pytest.mark.parametrize(
    "asked",
    ["nvidia.con/gpu.product", "nvidia.com/gpu-product", "nvidia/gpu.product", "nvidia.com/gpu.prodct", "gpu.product"],
)
def test_a_label_that_pods_select_by(asked: str) -> None:
    assert near_label(asked, PRODUCT)


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        (PREFIX + "vgpu.present", PREFIX + "gpu.present"),
        (PREFIX + "gpu.compute.major", PREFIX + "gpu.compute.minor"),
        (PREFIX + "mig-1g.5gb.count", PREFIX + "mig-1g.10gb.count"),
        (PREFIX + "pool-a", PREFIX + "pool-ab"),
        (PREFIX + "gpu.deploy.dcgm", PREFIX + "gpu.deploy.dcgms"),
        ("nvidia-a30.aliquot.dev/gpu.count", PREFIX + "gpu.count"),
        ("amd.com/gpu.product", PRODUCT),
        ("example.com/gpu.product", PRODUCT),
        ("disktype", PRODUCT),
    ],
)
def test_another_label_is_another_label(asked: str, there: str) -> None:
    assert not near_label(asked, there)


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ("mig-1g.5g", "mig-1g.5gb"),
        ("mig-1g5gb", "mig-1g.5gb"),
        ("mig-1g.5gb-me", "mig-1g.5gb.me"),
        ("mig-1c.3g.20g", "mig-1c.3g.20gb"),
        ("mig-1g.7gb", "mig-1g.5gb"),  # no GPU has this profile
    ],
)
def test_a_resource_spelled_otherwise(asked: str, there: str) -> None:
    assert near_resource(PREFIX + asked, PREFIX + there)
    assert near_resource("nvidia.con/" + there, PREFIX + there)


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ("mig-1g.10gb", "mig-1g.5gb"),
        ("mig-1g.6gb", "mig-1g.5gb"),  # another GPU has this profile
        ("mig-1g.5gb.me", "mig-1g.5gb"),
        ("mig-1c.3g.20gb", "mig-3g.20gb"),
        ("pgpu", "gpu"),
        ("gpu.shared", "gpu"),
        ("mig-1g.5gb", "mig-1g.5gb"),
    ],
)
def test_another_resource_is_another_resource(asked: str, there: str) -> None:
    assert not near_resource(PREFIX + asked, PREFIX + there)
    assert not near_resource("amd.com/" + there, PREFIX + there)
