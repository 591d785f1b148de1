"""The simulated kernel through the server: the Files port, faults at every write, earlier states, speed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from aliquot.errors import InUseError, UsageError
from aliquot.node.simulated.backend import SimBackend
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from aliquot.sim.files import SimFiles
from aliquot.sim.state import GpuState, NodeState
from aliquot.sim.template import build
from system.sim.test_sim_server import kill_server

PCI = "/sys/bus/pci/devices"
WRITER = """
import sys
from aliquot.sim.client import SimClient
from aliquot.sim.files import SimFiles
files = SimFiles(SimClient(sys.argv[1], sys.argv[2]))
for type_id, number in ((1150, 4), (1150, 5), (1150, 6)):
    files.write(f"/sys/bus/pci/devices/0000:01:00.{number}/nvidia/current_vgpu_type", str(type_id))
    print(number, flush=True)
"""


@pytest.fixture
def node(state_dir: str) -> SimClient:
    control.start(state_dir, "l40s:vfio*2", name="v")
    found = SimClient(state_dir, "v")
    assert found.sriov_manage("-e", "ALL")["rc"] == 0
    return found


def types(files: SimFiles) -> list[str]:
    return [files.read(f"{PCI}/0000:01:00.{n}/nvidia/current_vgpu_type") for n in (4, 5, 6)]


def test_the_files_port(node: SimClient) -> None:
    files = SimFiles(node)
    pf = f"{PCI}/0000:01:00.0"
    assert files.read(f"{pf}/sriov_numvfs") == "32"
    assert files.link(f"{pf}/virtfn0") == "../0000:01:00.4"
    assert files.real(f"{pf}/virtfn0") == "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.4"
    assert files.exists(f"{pf}/virtfn31/nvidia")
    assert not files.exists(f"{pf}/virtfn32")
    assert set(files.names("/")) == {"sys", "proc", "dev"}
    files.write(f"{pf}/virtfn0/nvidia/current_vgpu_type", "1150")
    with pytest.raises(OSError, match="Input/output error") as refused:
        files.write(f"{pf}/virtfn0/nvidia/current_vgpu_type", "1150")
    assert (refused.value.errno, refused.value.filename) == (errno.EIO, f"{pf}/virtfn0/nvidia/current_vgpu_type")
    with pytest.raises(FileNotFoundError):
        files.read(f"{pf}/nothing")
    with pytest.raises(UsageError, match="no operation"):
        node.files("truncate", pf)


def test_every_write_is_in_the_call_log(node: SimClient) -> None:
    SimFiles(node).write(f"{PCI}/0000:02:00.4/nvidia/current_vgpu_type", "1150")
    SimFiles(node, hand=True).write(f"{PCI}/0000:02:00.4/nvidia/current_vgpu_type", "0")
    with pytest.raises(PermissionError):
        SimFiles(node).write(f"{PCI}/0000:02:00.0/sriov_numvfs", "0")
    enabled, made, removed, refused = [c for c in node.calls() if c.get("write")][-4:]
    path = "/sys/devices/pci0000:00/0000:00:01.1/0000:02:00.4/nvidia/current_vgpu_type"
    assert (enabled["call"], enabled["gpu"], enabled["value"]) == ("SriovManage", "0000:02:00.0", "0000:02:00.0")
    assert (made["call"], made["gpu"], made["path"], made["value"]) == ("SysfsWrite", "0000:02:00.0", path, "1150")
    assert (made["pid"], made["rc"], made.get("hand")) == (os.getpid(), 0, None)
    assert (removed["hand"], refused["rc"]) == (True, errno.EPERM)
    assert {c["call"] for c in (enabled, made)} <= control.WRITE_CALLS


def test_what_was_written_outlives_the_server(node: SimClient, state_dir: str) -> None:
    files = SimFiles(node)
    files.write(f"{PCI}/0000:01:00.4/nvidia/current_vgpu_type", "1155")
    node.start_vm("db", "0000:01:00.4")
    kill_server(state_dir)
    assert types(files) == ["1155", "0", "0"]
    assert [vm["name"] for vm in node.show()["vms"]] == ["db"]
    with pytest.raises(OSError, match="busy"):
        files.write(f"{PCI}/0000:01:00.4/nvidia/current_vgpu_type", "0")


@pytest.mark.parametrize(
    ("when", "nth", "there"), [("before", 2, 1), ("after", 2, 2), ("before", 1, 0), ("after", 3, 3)]
)
def test_a_writer_killed_at_any_write(node: SimClient, state_dir: str, when: str, nth: int, there: int) -> None:
    node.inject_fault("kill", when=when, nth=nth)
    done = subprocess.run([sys.executable, "-c", WRITER, state_dir, "v"], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == nth - 1, "it never heard of the last one"
    assert types(SimFiles(node)) == ["1150"] * there + ["0"] * (3 - there)


def test_the_third_write_fails(node: SimClient) -> None:
    node.inject_fault("fail", call="SysfsWrite", path="current_vgpu_type", code=errno.EIO, nth=3, calls=1)
    files = SimFiles(node)
    messages = []
    files.write(f"{PCI}/0000:01:00.0/driver_override", "\n")
    for number in (4, 5, 6, 6):
        try:
            files.write(f"{PCI}/0000:01:00.{number}/nvidia/current_vgpu_type", "1150")
            messages.append(0)
        except OSError as refused:
            messages.append(refused.errno or 0)
    assert messages == [0, 0, errno.EIO, 0]


def test_busy_and_lost_meet_writes_too(node: SimClient) -> None:
    files, path = SimFiles(node), f"{PCI}/0000:01:00.4/nvidia/current_vgpu_type"
    node.inject_fault("busy", gpu=0, calls=1)
    with pytest.raises(OSError, match="busy"):
        files.write(path, "1150")
    node.inject_fault("lost", gpu=0, after=2)
    files.write(path, "1150")
    files.write(path, "0")
    with pytest.raises(OSError, match="No such device"):
        files.write(path, "1150")


def test_sriov_manage_refuses_while_nvml_is_open(node: SimClient) -> None:
    backend = SimBackend(node)
    assert node.sriov_manage("-d", "0000:01:00.0")["err"] == ["Cannot obtain unbindLock for 0000:01:00.0"]
    with backend.suspend():
        assert node.sriov_manage("-d", "0000:01:00.0")["rc"] == 0
    backend.close()


def test_mixed_size_mode_without_the_library(node: SimClient) -> None:
    backend = SimBackend(node)
    pci = "0000:02:00.0"
    assert backend.mixed_size(pci) is False
    backend.set_mixed_size(pci, True)
    assert (backend.mixed_size(pci), backend.mixed_size("0000:01:00.0")) == (True, False)
    SimFiles(node).write(f"{PCI}/0000:02:00.4/nvidia/current_vgpu_type", "1150")
    with pytest.raises(InUseError):
        backend.set_mixed_size(pci, False)
    assert [g.index for g in backend.read().gpus] == [0, 1]
    backend.close()


def test_a_gpu_that_was_passed_through_is_not_read(node: SimClient) -> None:
    node.sriov_manage("-d", "ALL")
    files, pci = SimFiles(node), "0000:01:00.0"
    files.write(f"{PCI}/{pci}/driver_override", "vfio-pci")
    files.write("/sys/bus/pci/drivers/nvidia/unbind", pci)
    files.write("/sys/bus/pci/drivers_probe", pci)
    backend = SimBackend(node)
    assert [(g.index, g.pci) for g in backend.read().gpus] == [(0, "0000:02:00.0")]
    assert [f.pci for f in backend.facts().gpus] == ["0000:02:00.0"]
    backend.close()


def test_a_state_of_before_virtual_machines_is_still_read() -> None:
    state = build("n", "a100-sxm4-40gb,a2", "boot")
    plain = msgspec.to_builtins(state)
    old_gpu = ("index", "product", "pci", "pci_device", "subsystem", "architecture", "uuid", "minor", "memory_mib")
    plain["gpus"] = [{k: v for k, v in gpu.items() if k in old_gpu} for gpu in plain["gpus"]]
    for key in ("iommu", "vms", "dynamic_ids"):
        del plain[key]
    read = msgspec.convert(plain, NodeState)
    assert (read.iommu, read.gpus[0].driver, read.gpus[0].functions) == (True, "nvidia", [])
    assert isinstance(read.gpus[1], GpuState)


def test_many_small_reads_take_little_time(node: SimClient) -> None:
    # A poll costs about forty reads a GPU. The bound is generous: a twentieth of it is usual.
    files = SimFiles(node)
    begun = time.process_time()
    for _ in range(400):
        files.read(f"{PCI}/0000:01:00.4/nvidia/current_vgpu_type")
    assert time.process_time() - begun < 0.8
