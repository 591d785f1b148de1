"""Attributes and capacities against the list of NVIDIA's driver."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model.facts import Facts, GpuFacts
from aliquot.kubernetes.dra.model.offer import offered_devices
from support import factory
from unit.kubernetes.dra.model.nodes import NAMING
from unit.kubernetes.dra.model.nvidia_attributes import ATTRIBUTES, CAPACITIES, NOT_OFFERED, OWN


@pytest.mark.parametrize("kind", ["gpu", "mig"])
def test_every_device_has_what_nvidia_s_has_with_the_same_types(kind: str) -> None:
    node = factory.inventory("h100-80gb-sxm", enabled=True)
    gpu = node.gpus[0]
    board = GpuFacts(
        gpu.pci, 81559, (9, 0), 0, brand="Nvidia", pcie_root="pci0000:00", addressing_mode="HMM"
    )  # fmt: skip
    facts = Facts("570.86.15", (12, 8), (board,))
    offer = offered_devices(node, NAMING, facts=facts)
    expected = {name: word for name, (word, kinds) in ATTRIBUTES.items() if kind in kinds}
    for device in offer.devices:
        if device.attributes["type"].string_value == kind:
            types = {name: next(iter(msgspec.to_builtins(value))) for name, value in device.attributes.items()}
            assert types == expected | (OWN if kind == "mig" else {})
            assert device.capacity.keys() == CAPACITIES
    assert not NOT_OFFERED & ATTRIBUTES.keys()
