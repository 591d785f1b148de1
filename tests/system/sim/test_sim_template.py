"""Templates: the nodes that they create, and errors in invalid ones."""

from __future__ import annotations

import pytest

from aliquot.core.model import catalog
from aliquot.errors import UsageError
from aliquot.sim.template import build, products, template_gpus


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("dgx-a100", ["NVIDIA A100-SXM4-40GB"] * 8),
        ("dgx-a100-80gb", ["NVIDIA A100-SXM4-80GB"] * 8),
        ("dgx-h100", ["NVIDIA H100 80GB HBM3"] * 8),
        ("hgx-h200:vfio", ["NVIDIA H200"] * 8),
        ("hgx-b200:vfio*2", ["NVIDIA B200"] * 16),
        ("hgx-h200", ["NVIDIA H200"] * 8),
        ("hgx-b200", ["NVIDIA B200"] * 8),
        ("a30x4", ["NVIDIA A30"] * 4),
        ("a30*2", ["NVIDIA A30"] * 2),
        ("a100", ["NVIDIA A100-SXM4-40GB"]),
        ("a100x", ["NVIDIA A100X"]),
        ("t4", ["Tesla T4"]),
        ("tesla-t4, l40s ,h100-nvl", ["Tesla T4", "NVIDIA L40S", "NVIDIA H100 NVL"]),
    ],
)
def test_templates(template: str, names: list[str]) -> None:
    assert [g.product for g in build("n", template, "b").gpus] == names


def test_flags_and_driver() -> None:
    state = build("n", "a100-sxm4-80gb:swapped*2,a30:guest:swapped@535.183.01", "b")
    assert [(g.swapped, g.guest) for g in state.gpus] == [(True, False), (True, False), (True, True)]
    assert state.driver == "535.183.01"
    assert build("n", "a30", "b", driver="470.57.02").driver_major == 470


def test_a_bus_of_its_own() -> None:
    state = build("n", "a2:mdev:bus08,a30,l40s:bus26:vfio", "b")
    assert [g.pci for g in state.gpus] == ["0000:08:00.0", "0000:02:00.0", "0000:26:00.0"]
    assert [g.host for g in state.gpus] == ["mdev", "", "vfio"]


def test_every_product_of_the_catalog_can_be_simulated() -> None:
    for word, device in products().items():
        state = build("n", word, "b").gpus[0]
        assert device.name.startswith(state.product)
        assert state.memory_mib > 1024
        if device.mig_family:
            assert state.family in catalog.family_names()


def test_gpus_are_distinguished_and_the_same_again() -> None:
    one, again, other = (build(n, "dgx-a100", "b") for n in ("x", "x", "y"))
    assert len({g.uuid for g in one.gpus}) == 8
    assert [g.uuid for g in one.gpus] == [g.uuid for g in again.gpus]
    assert not {g.uuid for g in one.gpus} & {g.uuid for g in other.gpus}


@pytest.mark.parametrize(
    "template",
    [
        "",
        "a100-sxm4-40",
        "a100:shiny",
        "a30*0",
        "a30*33",
        "a30*20,a30*20",
        "a30**2",
        "a30@new",
        "A30",
        "a30,",
        "a30:bus",
        "a30:bus8",
        "a30:bus08*2",
        "a30,a30:bus01",
    ],
)
def test_wrong_templates(template: str) -> None:
    with pytest.raises(UsageError) as caught:
        build("n", template, "b")
    assert caught.value.brief


def test_close_matches_are_named() -> None:
    with pytest.raises(UsageError) as caught:
        template_gpus("h100-80gb-hbm2")
    assert "h100-80gb-hbm3" in caught.value.details[0]
    assert caught.value.next_step == "aliquot sim start h100-80gb-hbm3"


def test_the_hosts_own_devices_are_behind_one_gpu_and_share_no_bus() -> None:
    state = build("n", "a2:host:bus08,a2:host:bus09", "b")
    assert [len(gpu.others) for gpu in state.gpus] == [7, 0]
    with pytest.raises(UsageError, match="PCI bus 02 has devices of the host"):
        build("n", "a2:host*7", "b")
