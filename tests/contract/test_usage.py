"""Results of ``usage()``: every backend reports the same use of each instance."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.usage import Usage
from aliquot.errors import HardwareError
from aliquot.hardware.nvml.backend import NvmlBackend
from contract.conftest import EVERY, KINDS, Machine

Start = Callable[[str], Machine]
every_kind = pytest.mark.parametrize("kind", EVERY)
both_kinds = pytest.mark.parametrize("kind", KINDS)
SOON_S = 0.2


def read_node(node: Machine, kind: str) -> tuple[Usage, ...]:
    """Read all usage once and close the session. nvidia-smi names profiles by the read before it."""
    backend = node.open(kind)
    backend.read()
    found = backend.usage(SOON_S)
    backend.close()
    return found


def cut(node: Machine, *profiles: str) -> list[int]:
    node.node.set_mode(0, True)
    return [node.node.create(0, profile) for profile in profiles]


def memory(found: tuple[Usage, ...]) -> list[tuple[int | None, str, int | None, int | None]]:
    return [(u.instance, u.profile, u.memory_used_mib, u.memory_total_mib) for u in found]


@every_kind
def test_whole_gpus_outside_mig(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb*2,tesla-t4")
    node.node.hold(1, memory=3000, busy=0.25)
    found = read_node(node, kind)
    assert memory(found) == [(None, "", 0, 40960), (None, "", 3000, 40960), (None, "", 0, 15360)]
    assert [(u.compute, u.source) for u in found] == [(0.0, "nvml"), (0.25, "nvml"), (0.0, "nvml")]


@every_kind
def test_gpu_instances_of_ampere_tell_memory_and_no_share(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb")
    half, small = cut(node, "3g.20gb", "1g.5gb")
    node.node.hold(0, half, memory=9000, busy=0.9)
    node.node.hold(0, small)
    found = read_node(node, kind)
    assert memory(found) == [(half, "3g.20gb", 9000, 20096), (small, "1g.5gb", 256, 4864)]
    assert {(u.compute, u.source) for u in found} == {(None, "")}, "unknown values are not invented"


@both_kinds
def test_gpm_tells_the_share_of_hopper_s_instances(machine: Start, kind: str) -> None:
    node = machine("h100-80gb-hbm3*2")
    (half,) = cut(node, "3g.40gb")
    node.node.hold(0, half, memory=100, busy=0.4)
    node.node.hold(0, half, memory=50, busy=0.1)
    node.node.hold(1, busy=0.75)
    first, second = read_node(node, kind)
    assert (first.memory_used_mib, first.compute, first.source) == (150, 0.5, "gpm")
    assert (second.instance, second.compute, second.source) == (None, 0.75, "gpm")


@every_kind
def test_compute_instances_share_memory_that_is_counted_once(machine: Start, kind: str) -> None:
    node = machine("h100-80gb-hbm3")
    node.node.set_mode(0, True)
    half = node.node.create(0, "3g.40gb", 0, compute=False)
    backend = node.open("direct")
    for profile_id, size in ((0, 1), (1, 2)):
        backend.create_compute_instance(backend.read().gpus[0].pci, half, profile_id, None, size)
    node.node.hold(0, f"{half}/0", memory=700, busy=1.0)
    node.node.hold(0, f"{half}/1", memory=300, busy=0.0)
    (found,) = read_node(node, kind)
    assert (found.instance, found.profile, found.memory_used_mib) == (half, "3g.40gb", 1000)
    if kind != "smi":
        assert found.compute == pytest.approx(1 / 3, abs=1e-3), "the busy one has one slice of three"


@every_kind
def test_an_instance_without_a_mig_device_tells_nothing(machine: Start, kind: str) -> None:
    node = machine("h100-80gb-hbm3")
    node.node.set_mode(0, True)
    node.node.create(0, "3g.40gb", compute=False)
    assert read_node(node, kind) == ()


@both_kinds
def test_a_gpu_that_fell_off_the_bus_has_no_use(machine: Start, kind: str) -> None:
    node = machine("a30*3")
    node.node.inject_fault("lost", gpu=1)
    assert [u.gpu for u in read_node(node, kind)] == [node.node.show()["gpus"][n]["pci"] for n in (0, 2)]


@every_kind
def test_reading_it_writes_nothing_and_keeps_no_reader_out(machine: Start, kind: str) -> None:
    node = machine("h100-80gb-hbm3")
    cut(node, "1g.10gb")
    before = node.writes()
    backend = node.open(kind)
    for _ in range(3):
        backend.usage(SOON_S)
    assert node.writes() == before
    with backend.suspend():
        assert node.node.show()["sessions"] == []
    assert len(backend.usage(SOON_S)) == 1, "handles and samples are fetched again"


@pytest.mark.parametrize("template", ["dgx-h100", "a30*2,tesla-t4", "hgx-b200", "gb200"])
def test_both_backends_report_the_same(machine: Start, template: str) -> None:
    node = machine(template)
    cut(node, "id:14" if template.startswith("a30") else "id:19")
    node.node.hold(0, node.node.show()["gpus"][0]["instances"][0]["id"], memory=512, busy=0.3)
    direct, shim = read_node(node, "direct"), read_node(node, "shim")
    assert [msgspec.to_builtins(u) for u in shim] == [msgspec.to_builtins(u) for u in direct]


# -- through NVML


def opened(node: Machine) -> NvmlBackend:
    backend = node.open("shim")
    assert isinstance(backend, NvmlBackend)
    return backend


def test_a_watcher_never_waits_and_has_the_share_of_the_time_between(machine: Start) -> None:
    node = machine("h100-80gb-hbm3")
    (half,) = cut(node, "3g.40gb")
    backend = opened(node)
    assert [u.compute for u in backend.usage()] == [None], "one sample is not enough"
    node.node.hold(0, half, busy=0.5)
    assert [u.compute for u in backend.usage()] in ([None], [0.25]), "None after an immediate call"
    time.sleep(SOON_S)
    (first,) = backend.usage()
    assert first.compute in (0.25, 0.5)
    assert backend.usage() == (first,), "the same after an immediate second call"


def test_an_instance_made_again_is_not_compared_with_the_previous_one(machine: Start) -> None:
    node = machine("h100-80gb-hbm3")
    (half,) = cut(node, "3g.40gb")
    backend = opened(node)
    backend.usage()
    node.node.destroy(0, half)
    assert backend.usage() == ()
    assert node.node.create(0, "3g.40gb") == half
    assert [u.compute for u in backend.usage()] == [None]


def test_what_a_driver_does_not_tell_is_left_open(machine: Start) -> None:
    node = machine("h100-80gb-hbm3,a30")
    node.node.inject_fault("fail", call="DeviceGetMemoryInfo", code=codes.NO_PERMISSION, gpu=0)
    node.node.inject_fault("fail", call="GpmSampleGet", code=codes.NO_PERMISSION, gpu=0)
    node.node.inject_fault("fail", call="DeviceGetUtilizationRates", code=codes.NOT_SUPPORTED, gpu=1)
    first, second = opened(node).usage(SOON_S)
    assert first == Usage(first.gpu, compute=0.0, source="nvml"), "it has GPM, but refuses it"
    assert second == Usage(second.gpu, None, "", 0, second.memory_total_mib)


def test_a_gpu_that_is_lost_while_it_is_read_hides_no_other(machine: Start) -> None:
    node = machine("h100-80gb-hbm3*2")
    cut(node, "3g.40gb")
    backend = opened(node)
    node.node.inject_fault("fail", call="DeviceGetMaxMigDeviceCount", code=codes.GPU_IS_LOST, gpu=0)
    (other,) = backend.usage(SOON_S)
    assert (other.instance, other.compute, other.source) == (None, 0.0, "gpm")


def test_a_library_without_gpm_and_without_the_second_memory_call(
    machine: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An older driver's library has none of these functions.
    node = machine("a100-sxm4-40gb")
    node.node.hold(0, memory=1000)
    node.node.inject_fault("fail", call="GpmQueryDeviceSupport", code=codes.FUNCTION_NOT_FOUND)
    backend = opened(node)
    ask = backend.session.nv.nvmlDeviceGetMemoryInfo

    def first_version_only(handle: object, version: int | None = None) -> object:
        if version:
            raise backend.session.nv.NVMLError(codes.FUNCTION_NOT_FOUND)
        return ask(handle)

    monkeypatch.setattr(backend.session.nv, "nvmlDeviceGetMemoryInfo", first_version_only)
    (found,) = backend.usage()
    assert (found.memory_used_mib, found.source) == (1500, "nvml"), "the first version counts reserved memory"


def test_another_refusal_is_an_error(machine: Start) -> None:
    node = machine("a30")
    backend = opened(node)
    node.node.inject_fault("fail", call="DeviceGetMemoryInfo", code=codes.UNKNOWN, calls=1)
    with pytest.raises(HardwareError, match="reading the memory in use on 0000:01:00"):
        backend.usage()


def test_samples_are_freed(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    # No buffer stays allocated, regardless of the number of reads and of GPUs that come and go.
    node = machine("h100-80gb-hbm3")
    (half,) = cut(node, "3g.40gb")
    backend = opened(node)
    nv, out = backend.session.nv, set[int]()
    alloc, free = nv.nvmlGpmSampleAlloc, nv.nvmlGpmSampleFree

    def allocated() -> object:
        made = alloc()
        out.add(address(made))
        return made

    def freed(sample: object) -> None:
        out.remove(address(sample))
        free(sample)

    monkeypatch.setattr(nv, "nvmlGpmSampleAlloc", allocated)
    monkeypatch.setattr(nv, "nvmlGpmSampleFree", freed)
    for _ in range(3):
        backend.usage(SOON_S)
    assert len(out) == 1
    node.node.inject_fault("fail", call="GpmSampleGet", code=codes.UNKNOWN)
    backend.usage(SOON_S)
    assert len(out) == 1
    node.node.inject_fault("none")
    node.node.destroy(0, half)
    backend.usage()
    assert out == set()
    node.node.create(0, "3g.40gb")
    backend.usage()
    assert len(out) == 1
    backend.close()
    assert out == set()


def address(sample: object) -> int:
    from ctypes import c_void_p, cast

    return int(cast(sample, c_void_p).value or 0)  # type: ignore[arg-type]
