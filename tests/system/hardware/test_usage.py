"""A real GPU, read only: the usage of its instances, compared with nvidia-smi and between two reads."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from aliquot.core.model.usage import GPM, NVML, Usage
from aliquot.hardware.nvidia_smi.query_output import sections
from aliquot.hardware.nvml.backend import NvmlBackend, unavailable_reason

pytestmark = pytest.mark.gpu
NEAR_MIB = 512
"""Tolerance for memory that others use or free between two reads, and for what only one of the tools counts as
reserved.
"""


@pytest.fixture(scope="module")
def backend() -> Iterator[NvmlBackend]:
    missing = unavailable_reason()
    if missing is not None:
        pytest.skip(f"no NVIDIA GPU here: {missing.brief}")
    opened = NvmlBackend()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def usage(backend: NvmlBackend) -> tuple[Usage, ...]:
    return backend.usage(0.5)


def test_there_is_one_for_each_piece(backend: NvmlBackend, usage: tuple[Usage, ...]) -> None:
    expected = set[tuple[str, int | None]]()
    for gpu in backend.read().gpus:
        if gpu.lost:
            continue
        with_devices = [i.id for i in gpu.instances if i.compute_instances]
        expected |= {(gpu.pci, i) for i in with_devices} if gpu.mig.enabled else {(gpu.pci, None)}
    assert {(u.gpu, u.instance) for u in usage} == expected
    assert len(usage) == len(expected)


def test_figures_are_possible(backend: NvmlBackend, usage: tuple[Usage, ...]) -> None:
    facts = backend.facts()
    for each in usage:
        if each.memory_used_mib is not None and each.memory_total_mib is not None:
            assert 0 <= each.memory_used_mib <= each.memory_total_mib <= (facts.gpu(each.gpu).memory_mib or 1 << 30)
        assert each.compute is None or 0 <= each.compute <= 1
        assert (each.compute is None) == (each.source == "")
        assert each.source in ("", GPM, NVML)


def test_profiles_are_those_of_the_inventory(backend: NvmlBackend, usage: tuple[Usage, ...]) -> None:
    for each in usage:
        gpu = backend.read_gpu(each.gpu)
        instance = gpu.instance(each.instance) if each.instance is not None else None
        assert each.profile == (instance.profile if instance is not None else "")


def test_gpm_tells_from_hopper_on(backend: NvmlBackend, usage: tuple[Usage, ...]) -> None:
    # On a GPU that has GPM and permits it, every instance reports a share. No GPU before Hopper offers GPM.
    facts = backend.facts()
    for each in usage:
        if facts.gpu(each.gpu).compute_capability < (9, 0):
            assert each.source != GPM


def test_memory_is_what_nvidia_smi_says(usage: tuple[Usage, ...]) -> None:
    try:
        done = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no nvidia-smi to compare with: {error}")
    blocks = {pci: dict(facts) for pci, facts in sections(done.stdout)}
    for each in usage:
        if each.instance is None and each.memory_used_mib is not None:
            answer = blocks[each.gpu]["FB Memory Usage", "Used"].partition(" ")[0]
            assert abs(int(answer) - each.memory_used_mib) < NEAR_MIB


def test_a_read_is_cheap_and_leaves_nothing_open(backend: NvmlBackend) -> None:
    # The test measures, prints and bounds generously: agents read for as long as they run.
    start, calls = time.perf_counter(), backend.calls
    for _ in range(10):
        backend.usage()
    each_ms = (time.perf_counter() - start) / 10 * 1000
    print(f"a read of use takes {each_ms:.2f} ms, {(backend.calls - calls) / 10:.0f} calls")
    assert each_ms < 1000
    with backend.suspend():
        pass
    assert backend.usage(0.2)
