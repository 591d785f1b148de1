"""The vGPU scheduler through the driver, in each form of a node and through nvidia-smi."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from aliquot.errors import HardwareError
from aliquot.hardware.node_backend import NodeBackend, NodeGpuDriver
from aliquot.node.connect import connect
from contract.test_smi_connect import Elsewhere
from contract.test_smi_connect import Start as Machines
from contract.virtual_bench import KINDS, Start, bench, end, gpu, make, ready

__all__ = ["bench"]


def shown(backend: NodeBackend[NodeGpuDriver]) -> str:
    (found,) = backend.read().gpus
    assert found.virtual is not None
    assert backend.read_gpu(found.pci).virtual == found.virtual, "one GPU is read as the node is"
    return found.virtual.scheduler


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("template", "short"), [("l40s:vfio", "L40S-8Q"), ("tesla-t4:mdev", "T4-4Q")])
def test_what_is_set_is_read(bench: Start, kind: str, template: str, short: str) -> None:
    node = bench(template, kind)
    found = ready(node)
    assert shown(node.backend) == "best-effort"
    for scheduler in ("equal-share,2.5ms", "fixed-share,480Hz", "equal-share", "best-effort", "fixed-share,24ms"):
        node.backend.set_scheduler(found.pci, scheduler)
        assert shown(node.backend) == scheduler
        assert shown(node.open()) == scheduler, "another process reads it, too"
    one = make(node, found, short, 0)
    with pytest.raises(HardwareError):
        node.backend.set_scheduler(found.pci, "equal-share")
    node.control("vm-start", name="win10", devices=[one.uuid if template.startswith("t") else one.function])
    assert shown(node.backend) == "fixed-share,24ms", "the driver reports it while a VM runs"
    node.control("vm-stop", name="win10")
    end(node, found, one)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_driver_chose_is_not_stated(bench: Start, kind: str) -> None:
    # The driver reports its own frequency while a VM runs. It would be drift as soon as the VM ends.
    node = bench("l40s:vfio", kind)
    found = ready(node)
    node.backend.set_scheduler(found.pci, "equal-share")
    one = make(node, found, "L40S-8Q", 0)
    node.control("vm-start", name="win10", devices=[one.function])
    assert node.backend.nvml.scheduler(found.pci) == "equal-share,480Hz"
    assert shown(node.backend) == "equal-share"


@pytest.mark.parametrize("kind", KINDS)
def test_a_reboot_ends_it(bench: Start, kind: str) -> None:
    node = bench("l40s:vfio", kind)
    node.backend.set_scheduler(ready(node).pci, "fixed-share,24ms")
    node.control("reboot")
    assert shown(node.backend) in ("best-effort", ""), "a reboot ends it, and what was recorded before is void"
    ready(node)
    assert shown(node.backend) == "best-effort"


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_driver_refuses(bench: Start, kind: str) -> None:
    node = bench("l40s:vfio", kind)
    found = ready(node)
    node.backend.set_mixed_size(found.pci, True)
    with pytest.raises(HardwareError):
        node.backend.set_scheduler(found.pci, "fixed-share")
    node.backend.set_scheduler(found.pci, "equal-share")
    node.backend.set_mixed_size(found.pci, False)
    node.backend.set_scheduler(found.pci, "fixed-share")
    with pytest.raises(HardwareError):
        node.backend.set_mixed_size(found.pci, True)
    node.backend.set_functions(found.pci, 0)
    ready(node)
    assert shown(node.backend) == "best-effort", "enabling virtual functions ends it"


def inside(backend: NodeBackend[NodeGpuDriver]) -> list[object]:
    """Return the schedulers of the GPU instances, by id."""
    (found,) = backend.read().gpus
    assert backend.read_gpu(found.pci).instances == found.instances, "one GPU is read as the node is"
    return [i.scheduler for i in sorted(found.instances, key=lambda i: i.id)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_gpu_instance_has_its_own(bench: Start, kind: str) -> None:
    node = bench("rtx-pro-6000-blackwell-server-edition:vfio", kind)
    assert node.backend.set_mode(gpu(node).pci, True)
    found = ready(node)
    made = [node.backend.create_gpu_instance(found.pci, 47, start, 3) for start in (0, 3)]
    node.backend.create_compute_instance(found.pci, min(made), 0, None, 1)
    assert inside(node.backend) == ["best-effort"] * 2
    assert shown(node.backend) == "", "the GPU itself has none in MIG mode"
    for scheduler in ("equal-share,2.5ms", "equal-share", "fixed-share,480Hz"):
        node.backend.set_scheduler(found.pci, scheduler)
        assert inside(node.backend)[0] == ("equal-share,2.5ms" if scheduler == "equal-share" else scheduler)
        assert inside(node.open()) == inside(node.backend), "another process reads them, too"
    one = make(node, found, "DC-1-12Q", 0)
    assert one.gpu_instance == min(made)
    node.backend.set_scheduler(found.pci, "equal-share")
    assert inside(node.backend) == ["fixed-share,480Hz", "equal-share"], "one with a vGPU is left as it is"
    with pytest.raises(HardwareError):
        node.backend.nvml.set_instance_scheduler(found.pci, min(made), "equal-share")
    node.backend.set_scheduler(found.pci, "fixed-share,480Hz")
    node.control("vm-start", name="win10", devices=[one.function])
    assert inside(node.backend) == ["fixed-share,480Hz"] * 2, "the driver reports one of them while its VM runs"
    node.backend.destroy_gpu_instance(found.pci, max(made))
    again = node.backend.create_gpu_instance(found.pci, 47, 3, 3)
    assert inside(node.backend) == ["fixed-share,480Hz", "best-effort"], "it ends with its GPU instance"
    node.backend.set_scheduler(found.pci, "fixed-share,480Hz")
    assert (again, inside(node.backend)) == (max(made), ["fixed-share,480Hz"] * 2), "a VM holds up its own only"
    node.control("vm-stop", name="win10")
    end(node, found, one)


def test_the_same_by_commands(machine: Machines) -> None:
    node = machine("l40s:vfio")
    with connect(node.name, Elsewhere(node), state_dir=node.state_dir) as there:
        pci = there.backend.read().gpus[0].pci
        there.backend.set_functions(pci, 32)
        for scheduler in ("equal-share,2.5ms", "fixed-share,480Hz", "best-effort"):
            there.backend.set_scheduler(pci, scheduler)
            assert shown(there.backend) == scheduler
            with connect(node.name, state_dir=node.state_dir) as other:
                assert shown(other.backend) == scheduler
                assert other.nvml.scheduler(pci) == there.nvml.scheduler(pci), "both drivers report the same"


def test_commands_neither_see_nor_set_those_of_gpu_instances(machine: Machines) -> None:
    node = machine("rtx-pro-6000-blackwell-server-edition:vfio")
    with connect(node.name, Elsewhere(node), state_dir=node.state_dir) as there:
        pci = there.backend.read().gpus[0].pci
        there.backend.set_mode(pci, True)
        there.backend.create_gpu_instance(pci, 47, 0, 3)
        assert inside(there.backend) == [UNSET]
        with pytest.raises(HardwareError, match="nvidia-smi cannot"):
            there.backend.set_scheduler(pci, "equal-share")
