"""SimBackend, the real NVML code over the shim, and the one over nvidia-smi see the same node, value for value."""

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


def look(node: Machine, kind: str) -> Inventory:
    """One look. Closed again: an open session is a client, and would leave a mode change pending on Ampere."""
    backend = node.open(kind)
    found = backend.read()
    backend.close()
    return found


def same(node: Machine, but: int = -1) -> None:
    """``but``: the GPU of which nvidia-smi tells less than the others."""
    direct, shim = look(node, "direct"), look(node, "shim")
    assert plain(shim) == plain(direct)
    assert shim == direct
    assert shim.fingerprint == direct.fingerprint
    smi = look(node, "smi")
    told, expected = plain(smi), plain(direct)
    if but >= 0:
        told, expected = (plain([g for g in i.gpus if g.index != but]) for i in (smi, direct))
    assert told == expected


def fill(node: Machine) -> None:
    """MIG mode on, and on each capable GPU what still fits of every profile, smallest first, one of them an orphan."""
    for gpu in look(node, "direct").gpus:
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
                    continue  # does not fit beside the others
        assert made


@pytest.mark.parametrize("template", TEMPLATES)
def test_fresh_and_filled(machine: Start, template: str) -> None:
    node = machine(template)
    same(node)
    if any(g.mig.capable for g in look(node, "direct").gpus):
        fill(node)
        same(node)


@pytest.mark.parametrize("name", catalog.family_names())
def test_every_family_with_mig_mode_on(machine: Start, name: str) -> None:
    from aliquot.sim.template import slug

    node = machine(slug(catalog.family(name).products[0].name))
    node.node.set_mode(0, True)
    same(node)
    found = look(node, "shim")
    assert found.gpus[0].family == name
    assert found.tables == ()


def test_held(machine: Start) -> None:
    node = machine("a100-sxm4-40gb*2")
    fill(node)
    for instance in look(node, "direct").gpus[0].instances:
        if instance.compute_instances:
            node.node.hold(0, instance.id)
    assert any(i.held for i in look(node, "shim").gpus[0].instances)
    same(node)


def test_lost_and_pending(machine: Start) -> None:
    node = machine("a100-sxm4-40gb*3")
    node.node.hold(1)
    node.node.set_mode(1, True)
    before = look(node, "smi")
    node.node.inject_fault("lost", gpu=2)
    same(node, but=2)
    stranger = look(node, "smi").gpus[2]
    assert (stranger.pci, stranger.lost, stranger.uuid) == (before.gpus[2].pci, True, ""), "nvidia-smi names it no more"
