"""Equal inventories: SimBackend, the NVML code on the shim, and the nvidia-smi backend read the same values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aliquot.core.model import catalog
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError
from contract.conftest import Machine, plain

Start = Callable[[str], Machine]

TEMPLATES = [
    "dgx-a100",
    "a30*2",
    "rtx-pro-6000-blackwell-server-edition",
    "a100-sxm4-40gb:swapped,tesla-t4,h100-80gb-hbm3,a30",
    "h100-80gb-hbm3:guest",
    "hgx-b200",
    "l40s",
]


def read_node(node: Machine, kind: str) -> Inventory:
    """Read the node once and close the session: an open session is a client, which would leave a mode change pending on
    Ampere.
    """
    backend = node.open(kind)
    found = backend.read()
    backend.close()
    return found


def same(node: Machine, but: int = -1) -> None:
    """Compare the inventories. nvidia-smi reports less than the others about the GPU ``but``."""
    direct, shim = read_node(node, "direct"), read_node(node, "shim")
    assert plain(shim) == plain(direct)
    assert shim == direct
    assert shim.fingerprint == direct.fingerprint
    smi = read_node(node, "smi")
    reported, expected = plain(smi), plain(direct)
    if but >= 0:
        reported, expected = (plain([g for g in i.gpus if g.index != but]) for i in (smi, direct))
    assert reported == expected


def fill(node: Machine) -> None:
    """Enable MIG mode. On each capable GPU create every profile that still fits, smallest first, one of them as an
    orphan.
    """
    for gpu in read_node(node, "direct").gpus:
        if not gpu.mig.capable or gpu.family is None:
            continue
        node.node.set_mode(gpu.index, True)
        made = 0
        for profile in sorted(catalog.family(gpu.family).profiles, key=lambda p: p.size):
            for start in profile.starts[1:2]:
                try:
                    node.node.create(gpu.index, profile.id, start, compute=made != 1)
                    made += 1
                except AliquotError:
                    continue  # does not fit next to the others
        assert made


@pytest.mark.parametrize("template", TEMPLATES)
def test_fresh_and_filled(machine: Start, template: str) -> None:
    node = machine(template)
    same(node)
    if any(g.mig.capable for g in read_node(node, "direct").gpus):
        fill(node)
        same(node)


@pytest.mark.parametrize("name", catalog.family_names())
def test_every_family_with_mig_mode_on(machine: Start, name: str) -> None:
    from aliquot.sim.template import slug

    node = machine(slug(catalog.family(name).products[0].name))
    node.node.set_mode(0, True)
    same(node)
    found = read_node(node, "shim")
    assert found.gpus[0].family == name
    assert found.tables == ()


def test_held(machine: Start) -> None:
    node = machine("a100-sxm4-40gb*2")
    fill(node)
    for instance in read_node(node, "direct").gpus[0].instances:
        if instance.compute_instances:
            node.node.hold(0, instance.id)
    assert any(i.held for i in read_node(node, "shim").gpus[0].instances)
    same(node)


def test_lost_and_pending(machine: Start) -> None:
    node = machine("a100-sxm4-40gb*3")
    node.node.hold(1)
    node.node.set_mode(1, True)
    before = read_node(node, "smi")
    node.node.inject_fault("lost", gpu=2)
    same(node, but=2)
    unrelated = read_node(node, "smi").gpus[2]
    assert (unrelated.pci, unrelated.lost, unrelated.uuid) == (before.gpus[2].pci, True, ""), (
        "nvidia-smi does not list it any more"
    )
