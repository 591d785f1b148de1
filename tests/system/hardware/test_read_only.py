"""A real GPU, read only: the reading part of the Backend contract, and the catalog compared with the hardware."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aliquot.core.model.ids import pci_address
from aliquot.core.model.xids import XidPolicy
from aliquot.hardware import catalog_recorder as record
from aliquot.hardware.nvml.backend import NvmlBackend, unavailable_reason

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def backend() -> Iterator[NvmlBackend]:
    missing = unavailable_reason()
    if missing is not None:
        pytest.skip(f"no NVIDIA GPU here: {missing.brief}")
    opened = NvmlBackend()
    yield opened
    opened.close()


def test_identity(backend: NvmlBackend) -> None:
    inventory = backend.read()
    assert inventory.driver
    assert inventory.nvml
    assert inventory.gpus
    for gpu in inventory.gpus:
        assert gpu.pci == pci_address(gpu.pci)
        assert gpu.uuid.startswith("GPU-")
        assert gpu.product
        assert gpu.pci_device.endswith("10DE")
        assert gpu.minor >= 0


def test_reading_repeats(backend: NvmlBackend) -> None:
    assert backend.read().fingerprint == backend.read().fingerprint


def test_one_gpu_is_what_the_node_says(backend: NvmlBackend) -> None:
    for gpu in backend.read().gpus:
        alone = backend.read_gpu(gpu.pci)
        assert (alone.uuid, alone.mig, alone.family) == (gpu.uuid, gpu.mig, gpu.family)


def test_capability_minors_are_the_kernels(backend: NvmlBackend) -> None:
    assert not [note for note in backend.read().notes if "capability minor" in note]


def test_the_catalog_agrees(backend: NvmlBackend) -> None:
    report = record.check(backend)
    assert report.agrees, "\n".join(str(d) for d in report.differences if not d.note)


def test_a_table_can_be_recorded(backend: NvmlBackend) -> None:
    able = [g for g in backend.read().gpus if g.mig.capable]
    if not able:
        pytest.skip("no GPU here that MIG can divide")
    text = record.record(backend, able[0].pci, date="2000-01-01")
    assert able[0].product.removeprefix("NVIDIA ") in text


def test_event_sets(backend: NvmlBackend) -> None:
    # Event sets are created, polled and freed. A GPU in a VM may not support them and is then named.
    inventory = backend.read()
    health = backend.health(XidPolicy())
    assert health.poll(inventory) == frozenset()
    assert set(health.unwatched) <= {g.pci for g in inventory.gpus}
    with backend.session.quiet():
        assert health.poll(inventory) == frozenset()
    assert health.poll(inventory) == frozenset()
