"""Results of ``vgpu_usage()``: every backend reports the same running vGPUs, and absent values as absent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aliquot.core.model.vgpu_usage import VgpuUsage
from contract.conftest import KINDS, Machine
from contract.virtual_bench import Bench, Served, bench, make, ready
from contract.virtual_bench import Start as StartBench

__all__ = ["bench"]

Start = Callable[[str], Machine]


def running(node: Bench, short: str, *vms: tuple[str, float, bool]) -> list[str]:
    """Run each VM with a vGPU of its own, and leave one vGPU without a VM. Return the functions."""
    gpu = ready(node)
    functions = []
    for number, (name, busy, licensed) in enumerate(vms):
        vgpu = make(node, gpu, short, number)
        device = vgpu.function if gpu.uses_vendor_vfio else vgpu.uuid
        node.control("vm-start", name=name, devices=[device], busy=busy, licensed=licensed)
        functions.append(vgpu.function)
    make(node, gpu, short, len(vms))
    return functions


@pytest.mark.parametrize("template", ["l40s:vfio", "a2:mdev"])
def test_both_backends_report_the_same_vgpus(bench: StartBench, template: str) -> None:
    node = served(bench(template, "socket"))
    running(node, {"l40s:vfio": "L40S-8Q", "a2:mdev": "A2-4Q"}[template], ("a", 0.6, True), ("b", 0.9, False))
    direct = node.machine.open("direct").vgpu_usage()
    assert node.machine.open("shim").vgpu_usage() == direct
    assert [(u.compute, u.license) for u in direct] == [(0.4, "licensed"), (0.6, "unlicensed-restricted")]
    assert [(u.encoder, u.decoder, u.licensed) for u in direct] == [(0.08, 0.04, True), (0.12, 0.06, False)]
    assert all(bool(u.mdev) == (template == "a2:mdev") for u in direct)
    assert len({u.uuid for u in direct}) == len({u.vm for u in direct}) == 2
    assert [u.license_expires is not None for u in direct] == [True, False]
    node.control("vm-stop", name="a")
    assert [u.compute for u in node.backend.vgpu_usage()] == [0.9]


def test_more_than_4_gib_in_use_is_not_cut(bench: StartBench) -> None:
    node = served(bench("l40s:vfio", "socket"))
    running(node, "L40S-16Q", ("a", 1.0, True))
    assert [u.memory_used_mib for u in node.machine.open("shim").vgpu_usage()] == [10240]


def test_shares_that_the_driver_refuses_are_absent_and_not_zero(bench: StartBench) -> None:
    node = served(bench("l40s:vfio", "socket"))
    running(node, "L40S-8Q", ("a", 0.5, True))
    for call in ("DeviceGetVgpuUtilization", "VgpuInstanceGetFbUsage", "VgpuInstanceGetLicenseInfo"):
        node.control("fault", kind="fail", call=call, code=3)
    (found,) = node.machine.open("shim").vgpu_usage()
    assert (found.compute, found.encoder, found.memory_used_mib, found.license) == (None, None, None, "")
    assert found.licensed is None
    assert found.vm


def test_a_driver_without_license_states_says_whether_there_is_a_license(bench: StartBench) -> None:
    node = served(bench("a2:mdev@470.256.02", "socket"))
    running(node, "A2-4Q", ("a", 0.5, True), ("b", 0.5, False))
    found = node.machine.open("shim").vgpu_usage()
    assert [(u.license, u.license_expires) for u in found] == [("licensed", None), ("unlicensed", None)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_without_the_host_driver_costs_one_call(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb")
    backend = node.open(kind)
    backend.read()
    before = len(node.node.calls())
    found: tuple[VgpuUsage, ...] = backend.vgpu_usage()
    assert found == ()
    made = [c["call"] for c in node.node.calls()[before:]]
    assert made in (["VgpuUsage"], ["DeviceGetCount", "DeviceGetMigMode", "DeviceGetActiveVgpus"])


def served(node: Bench) -> Served:
    assert isinstance(node, Served)
    return node
