"""Labels of any node: legal for the API server, owned by Aliquot, and independent of the order of GPUs."""

from __future__ import annotations

import random
import re
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aliquot.core.config.settings import MigStrategy
from aliquot.core.model.facts import Facts, GpuFacts, MigDevice
from aliquot.core.model.inventory import Gpu, Inventory, Mig, MigMode
from aliquot.kubernetes.gpu.device_resources import offer
from aliquot.kubernetes.gpu.gfd_labels import is_own_label, labels
from support.selection import laws

LAWS = laws(300)
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""The pattern in the API server's own refusals."""

ODD: list[dict[str, Any]] = [{}, {}, {}, {"lost": True}, {"passthrough": True}, {"vgpus": ("v",)}]

texts = st.one_of(st.text(max_size=90), st.sampled_from(["NVIDIA A30", "NVIDIA A100-SXM4-40GB", "Tesla T4"]))
profiles = st.one_of(st.text(max_size=70), st.sampled_from(["1g.5gb", "1g.5gb+me", "3g.20gb", "1c.3g.20gb"]))
numbers = st.integers(-1, 1 << 20)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Inventory, Facts]:
    """Draw a node with any answers of a driver."""
    gpus: list[Gpu] = []
    facts: list[GpuFacts] = []
    devices: list[MigDevice] = []
    for index in range(draw(st.integers(0, 4))):
        pci, mode = f"0000:{index:02x}:00.0", draw(st.sampled_from(get_args(MigMode)))
        odd = draw(st.sampled_from(ODD))
        gpus.append(
            replace(Gpu(pci, f"GPU-{index}", index, draw(texts), minor=index, mig=Mig(True, mode, mode)), **odd)
        )
        capability = (draw(st.integers(0, 14)), draw(st.integers(0, 9)))
        facts.append(
            GpuFacts(pci, draw(st.integers(0, 1 << 20)), capability, display=draw(st.booleans()), clique=draw(texts))
        )
        for n in range(draw(st.integers(0, 3))):
            made = MigDevice(f"MIG-{index}-{n}", pci, n, 0, draw(profiles), *(draw(numbers) for _ in range(9)))
            devices.append(replace(made, index=n))
    cuda = (draw(st.integers(0, 20)), draw(st.integers(0, 9)))
    reported = Facts(draw(texts), cuda, tuple(facts), tuple(devices), draw(texts))
    return Inventory("n", tuple(gpus), driver=reported.driver), reported


@LAWS
@given(nodes(), st.sampled_from(("none", "single", "mixed")))
def test_every_label_is_legal_and_ours(node: tuple[Inventory, Facts], strategy: MigStrategy) -> None:
    for label, value in labels(*node, strategy, now=1).items():
        prefix, slash, name = label.partition("/")
        assert slash
        assert PREFIX.fullmatch(prefix)
        assert len(prefix) <= 253
        assert name
        assert len(name) <= 63
        assert VALUE.fullmatch(name)
        assert len(value) <= 63
        assert VALUE.fullmatch(value)
        assert is_own_label(label) or label == "nvidia.com/gpu.present"


@LAWS
@given(nodes(), st.sampled_from(("none", "single", "mixed")), st.randoms(use_true_random=False))
def test_the_order_of_the_gpus_does_not_matter(
    node: tuple[Inventory, Facts], strategy: MigStrategy, dice: random.Random
) -> None:
    inventory, facts = node
    gpus, reported = list(inventory.gpus), list(facts.gpus)
    dice.shuffle(gpus)
    dice.shuffle(reported)
    mixed = replace(inventory, gpus=tuple(gpus)), replace(facts, gpus=tuple(reported))
    assert labels(*mixed, strategy, now=1) == labels(*node, strategy, now=1)
    assert offer(*mixed, strategy) == offer(*node, strategy)


@LAWS
@given(nodes(), st.sampled_from(("none", "single", "mixed")))
def test_a_device_is_offered_once_and_never_one_that_containers_cannot_have(
    node: tuple[Inventory, Facts], strategy: MigStrategy
) -> None:
    inventory, facts = node
    found = offer(inventory, facts, strategy)
    ids = [device.id for resource in found.resources for device in resource.devices]
    assert len(ids) == len(set(ids))
    usable = {g.pci for g in inventory.gpus if not (g.lost or g.passthrough or g.vgpus)}
    assert all(device.gpu in usable for resource in found.resources for device in resource.devices)
    assert all(re.fullmatch(r"nvidia\.com/(gpu|mig-[A-Za-z0-9._-]*[A-Za-z0-9])", r.name) for r in found.resources)
    assert all(len(r.name.partition("/")[2]) <= 63 for r in found.resources)
