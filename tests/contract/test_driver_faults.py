"""Drivers that hang, do not match, are replaced, or report success without effect, through every way to a driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from aliquot.errors import AliquotError, HardwareError, NoDriverError
from aliquot.hardware.node_backend import NodeGpuDriver
from aliquot.sim.client import SimClient
from aliquot.sim.files import SimFiles
from contract.conftest import EVERY, KINDS, Machine

Start = Callable[[str], Machine]


@pytest.mark.parametrize("kind", EVERY)
def test_another_version_of_the_library(machine: Start, kind: str) -> None:
    node = machine("a30")
    node.node.inject_fault("version-mismatch")
    with pytest.raises(NoDriverError, match="different versions"):
        node.open(kind).read()
    node.node.inject_fault("none")
    assert node.open(kind).read().gpus


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_ends_with_its_driver(machine: Start, kind: str) -> None:
    node = machine("a30")
    backend = node.open(kind)
    pci = backend.read().gpus[0].pci
    node.node.inject_fault("replace-driver", version="590.48.01")
    with pytest.raises(HardwareError, match="the NVML session is closed"):
        backend.read_gpu(pci)
    backend.close()
    assert node.open(kind).read().driver == "590.48.01"


@pytest.mark.parametrize("kind", EVERY)
def test_success_without_effect(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb")
    node.node.set_mode(0, True)
    kept = node.node.create(0, "3g.20gb", compute=False)
    backend = node.open(kind)
    pci = backend.read().gpus[0].pci
    node.node.inject_fault("no-effect", calls=1)
    backend.destroy_gpu_instance(pci, kept)
    assert [i.id for i in backend.read().gpus[0].instances] == [kept]
    backend.destroy_gpu_instance(pci, kept)
    assert backend.read().gpus[0].instances == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_mode_that_does_not_change_is_no_success(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb")
    backend = node.open(kind)
    pci = backend.read().gpus[0].pci
    node.node.inject_fault("no-effect", calls=1)
    with pytest.raises(HardwareError, match="the driver reported success, but nothing changed"):
        backend.set_mode(pci, True)
    assert backend.set_mode(pci, True)


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("call", [None, "DeviceCreateGpuInstanceWithPlacement"])
def test_a_call_hangs_until_it_is_let_go(machine: Start, kind: str, call: str | None) -> None:
    node = machine("a100-sxm4-40gb")
    node.node.set_mode(0, True)
    backend = node.open(kind)
    pci = backend.read().gpus[0].pci
    node.node.inject_fault("hang", call=call)
    done: list[int | AliquotError] = []
    waiting = threading.Thread(target=_create, args=(backend, pci, done))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    assert done == []
    node.node.inject_fault("none")
    waiting.join(20)
    assert done == [0]
    assert [i.placement for i in backend.read().gpus[0].instances] == ["0:8"]


def _create(backend: NodeGpuDriver, pci: str, done: list[int | AliquotError]) -> None:
    try:
        done.append(backend.create_gpu_instance(pci, 0, 0, 8))
    except AliquotError as error:
        done.append(error)


def test_the_kernel_s_files(machine: Start) -> None:
    node = machine("a2:vfio:bus08")
    files = SimFiles(SimClient(node.state_dir, node.name))
    path = "/sys/bus/pci/devices/0000:08:00.0/driver_override"
    node.node.inject_fault("no-effect", call="SysfsWrite", path="driver_override", calls=1)
    files.write(path, "vfio-pci")
    assert files.read(path) in ("", "(null)")
    node.node.inject_fault("slow", call="SysfsWrite", seconds=0.2, calls=1)
    began = time.monotonic()
    files.write(path, "vfio-pci")
    assert time.monotonic() - began > 0.2
    assert files.read(path) == "vfio-pci"
    node.node.inject_fault("hang", call="SysfsWrite", gpu=0)
    waiting = threading.Thread(target=files.write, args=(path, "\n"))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    node.node.inject_fault("none")
    waiting.join(20)
    assert not waiting.is_alive()
