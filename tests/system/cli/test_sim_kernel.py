"""``aliquot sim``: the kernel of a simulated node from the command line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from aliquot.sim import lifecycle as control

from .conftest import Run

PCI = "/sys/bus/pci/devices"
MDEV = "aa618089-8b16-4d01-a136-25a0f3c73123"


@pytest.fixture(autouse=True)
def alone(state: str) -> Iterator[None]:
    """Stop the node at the end of the test."""
    yield
    if "vms" in control.names(state):
        control.stop(state, "vms")


@pytest.fixture(autouse=True)
def expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_SIM", "vms")


def test_functions_vgpus_and_a_machine(run: Run, state: str) -> None:
    assert run("sim", "start", "l40s:vfio,tesla-t4:mdev", "--name", "vms").code == 0
    program = f"{control.folder(state, 'vms')}/driver/usr/lib/nvidia/sriov-manage"
    done = subprocess.run([program, "-e", "0000:01:00.0"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "Enabling VFs on 0000:01:00.0\n")
    current = f"{PCI}/0000:01:00.4/nvidia/current_vgpu_type"
    assert run("sim", "write", current, "1150").out == f"wrote 1150 to {current}\n"
    assert run("sim", "read", current).out == "1150\n"
    assert run("sim", "read", current, "-o", "json").document["value"] == "1150\n"
    assert run("sim", "write", f"{PCI}/0000:02:00.0/mdev_supported_types/nvidia-232/create", MDEV).code == 0
    started = run("sim", "vm", "start", "db", "0000:01:00.4", MDEV)
    assert started.out.startswith("virtual machine db runs as process ")
    shown = run("sim", "show").out
    assert "vendor-vfio   32 of 32 VFs" in shown
    assert "vGPU 0000:01:00.4  NVIDIA L40S-4Q (1150)" in shown
    assert f"vGPU 0000:02:00.0  GRID T4-4Q (232)  {MDEV}" in shown
    assert f"vm  db (process 40001) has 0000:01:00.4, {MDEV} open" in shown
    assert "current_vgpu_type = 1150" in run("sim", "show", "--calls").out
    refused = run("sim", "write", current, "0")
    assert (refused.code, refused.out) == (20, "")
    assert "refuses to write" in refused.err
    assert "busy" in refused.err
    assert run("sim", "vm", "stop", "db").out == "virtual machine db has stopped\n"
    assert run("sim", "write", current, "0").code == 0


def test_a_gpu_that_was_passed_through(run: Run, state: str) -> None:
    run("sim", "start", "a2*2", "--name", "vms")
    address = "0000:01:00.0"
    for path, value in (
        (f"{PCI}/{address}/driver_override", "vfio-pci"),
        ("/sys/bus/pci/drivers/nvidia/unbind", address),
        ("/sys/bus/pci/drivers_probe", address),
    ):
        assert run("sim", "write", path, value).code == 0
    assert f"GPU 0  {address}  NVIDIA A2   MIG disabled   driver vfio-pci, not in NVML" in run("sim", "show").out
    assert [g["index"] for g in run("sim", "show", "-o", "json").document["gpus"]] == [-1, 0]


def test_another_kernel(run: Run, state: str) -> None:
    run("sim", "start", "a2:mdev", "--name", "vms")
    assert run("sim", "read", "/sys/bus/mdev/devices").code == 20, "a folder is not read"
    assert run("sim", "reboot", "--kernel", "vfio").out == "vms has rebooted\n"
    assert "vendor-vfio   0 of 16 VFs" in run("sim", "show").out
    assert run("sim", "reboot", "--kernel", "none").code == 0
    assert "VFs" not in run("sim", "show").out


def test_bad_words(run: Run, state: str) -> None:
    assert run("sim", "start", "a2:mdev:vfio").code == 2
    run("sim", "start", "a2:mdev:noiommu", "--name", "vms")
    assert run("sim", "vm", "start", "db", "0000:01:00.0").code == 2
    assert run("sim", "vm", "stop", "db").code == 2
    assert run("sim", "vm", "stop", "db", "0000:01:00.0").code == 2
    assert run("sim", "vm", "pause", "db").code == 2
    assert run("sim", "reboot", "--kernel", "windows").code == 2
    assert run("sim", "read", "/sys/nothing").code == 20
    assert run("sim", "fault", "vf-delay").code == 2
