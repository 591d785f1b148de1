"""The stand-ins on a vGPU host: nvidia-smi vgpu, and both run as programs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from aliquot.sim.kernel.tree import Tree
from support.simfiles import InProcessFiles
from system.sim.captures import CAPTURED, answer
from system.sim.smi import Smi

UUID = "7cc63b62-c1e7-4f43-b12a-9ed3a7fe64f0"


def host(template: str) -> tuple[Smi, InProcessFiles]:
    node = Smi(template, mig=False)
    assert node.memory.control("sriov-manage", action="-e", address="ALL")[0] == 0
    return node, InProcessFiles(Tree(node.node))


def function(files: InProcessFiles, number: int = 0, gpu: str = "0000:01:00.0") -> str:
    return files.link(f"/sys/bus/pci/devices/{gpu}/virtfn{number}").rpartition("/")[2]


def test_types_are_listed_as_supported_and_creatable() -> None:
    node, files = host("a2:mdev")
    supported = node.ok("vgpu -s").splitlines()
    assert supported[0] == "GPU 00000000:01:00.0"
    assert "    NVIDIA A2-4Q" in supported
    assert node.ok("vgpu -c").splitlines() == supported
    where = f"/sys/bus/pci/devices/{function(files)}/mdev_supported_types/nvidia-746/create"
    files.write(where, UUID)
    assert [line.strip() for line in node.ok("vgpu -c").splitlines()[1:] if line] == [
        "NVIDIA A2-4Q",
        "NVIDIA A2-4A",
        "NVIDIA A2-4C",
    ]
    details = node.ok("vgpu -s -v")
    assert re.search(r"vGPU Type ID +: 0x2ea\n +Name +: NVIDIA A2-4Q\n", details)
    assert re.search(r"Max Instances +: 4\n +Max Instances Per VM +: ", details)


def test_a_running_machine_is_in_the_table() -> None:
    node, files = host("a40:mdev")
    where = f"/sys/bus/pci/devices/{function(files)}/mdev_supported_types/nvidia-575/create"
    files.write(where, UUID)
    assert "NVIDIA A40-24A" not in node.ok("vgpu"), "no VM runs it"
    node.memory.control("vm-start", name="sss", devices=[UUID])
    shown = node.ok("vgpu").splitlines()
    recorded = (CAPTURED / "a40-sriov-mdev.txt").read_text()
    recorded = recorded[recorded.index("+--------", recorded.index("$ nvidia-smi vgpu")) :]
    like = recorded.splitlines()
    assert [line for line in shown if "=" in line or line.startswith("+")] == [
        line for line in like if "=" in line or line.startswith("+")
    ]
    assert shown[3:5] == like[3:5]
    assert [len(line) for line in shown] == [len(line) for line in like]
    assert re.sub(r"\d{10}", "n", shown[7])[:27] == re.sub(r"\d{10}", "n", like[7])[:27]
    assert "sss,debug-threa" in shown[7]
    report = node.ok("vgpu -q")
    assert re.search(r"Active vGPUs +: 1\n", report)
    assert re.search(rf"vGPU UUID +: {UUID}\n +MDEV UUID +: {UUID}\n", report)
    assert re.search(r"VM Name +: sss,", report)


def test_vendor_vfio_has_the_same_words() -> None:
    node, files = host("l40s:vfio")
    where = f"/sys/bus/pci/devices/{function(files)}/nvidia/current_vgpu_type"
    files.write(where, "1155")
    names = [line.strip() for line in node.ok("vgpu -c").splitlines()[1:] if line]
    assert names == ["NVIDIA L40S-24Q", "NVIDIA L40S-24A"]
    node.memory.control("vm-start", name="w", devices=[function(files)])
    report = node.ok("vgpu -q")
    assert re.search(r"vGPU Name +: NVIDIA L40S-24Q\n +vGPU Type +: 1155\n", report)
    assert re.search(r"Placement ID +: 0\n", report)


def test_mixed_size_mode() -> None:
    node, files = host("l40s:vfio")
    assert re.search(r"vGPU Heterogeneous Mode +: Disabled", node.ok("-q"))
    node.ok("vgpu -shm 1 -i 0")
    assert re.search(r"vGPU Heterogeneous Mode +: Enabled", node.ok("-q -i 0"))
    assert "Heterogenous Multi-vGPU           : Supported" in node.ok("-q")
    assert node("vgpu -shm 1 -i 9")[0] == 6
    files.write(f"/sys/bus/pci/devices/{function(files)}/nvidia/current_vgpu_type", "1155")
    assert node("vgpu -shm 0 -i 0")[0] == 19


def test_mixed_size_mode_needs_virtual_functions() -> None:
    node = Smi("l40s:vfio", mig=False)
    assert node("vgpu -shm 1 -i 0")[0] == 19


def test_an_ordinary_driver_has_no_vgpus() -> None:
    assert Smi("l40s", mig=False)("vgpu -s") == (3, "No supported devices in vGPU mode\n")


def test_mig_mode_off_is_refused_while_functions_are_on() -> None:
    node, _files = host("h100-pcie:vfio")
    node.ok("-mig 1")
    assert "In use by another client" in node("-mig 0")[1]
    assert node.ok("--query-gpu=mig.mode.current --format=csv,noheader") == "Enabled\n"


# -- as programs


@pytest.fixture
def programs(state_dir: str) -> str:
    """Return the driver's folder of a separate node."""
    name = control.start(state_dir, "a100-sxm4-40gb:mdev,a2:mdev")
    return os.path.join(control.folder(state_dir, name), "driver")


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *words], capture_output=True, text=True, cwd="/")


def test_the_programs_run_against_their_node(programs: str) -> None:
    smi, manage = f"{programs}/usr/bin/nvidia-smi", f"{programs}/usr/lib/nvidia/sriov-manage"
    assert run(smi, "-i", "0", "-mig", "1").stdout.endswith("All done.\n")
    done = run(smi, "mig", "-i", "0", "-cgi", "9,9", "-C")
    assert done.returncode == 0, done.stderr
    assert len(run(smi, "-L").stdout.splitlines()) == 4
    enabled = run(manage, "-e", "0000:01:00.0")
    assert (enabled.returncode, enabled.stdout) == (0, "Enabling VFs on 0000:01:00.0\n")
    empty = run(smi, "mig", "-lgi")
    assert (empty.returncode, empty.stdout) == (6, "No GPU instances found: Not Found\n"), "enabling wipes instances"
    again = run(manage, "-e", "0000:01:00.0", "-r", "1")
    assert (again.returncode, again.stdout) == (0, "Enabling VFs on 0000:01:00.0\n")
    assert run(manage, "-x", "0000:01:00.0").returncode == 1
    assert run(manage, "-h").stdout == answer("a40-sriov-mdev.txt", "/usr/lib/nvidia/sriov-manage -h")


def test_the_lock_is_not_to_be_had_while_a_machine_runs(state_dir: str, programs: str) -> None:
    manage = f"{programs}/usr/lib/nvidia/sriov-manage"
    assert run(manage, "-e", "ALL").stdout.count("Enabling VFs on") == 2
    name = os.path.basename(os.path.dirname(programs))
    SimClient(state_dir, name).inject_fault("unbind-lock", gpu=0)
    refused = run(manage, "-d", "0000:01:00.0")
    assert refused.returncode == 1
    assert "Cannot obtain unbindLock" in refused.stdout + refused.stderr


def test_a_node_that_is_gone(state_dir: str, programs: str) -> None:
    smi = Path(f"{programs}/usr/bin/nvidia-smi").read_text()
    manage = Path(f"{programs}/usr/lib/nvidia/sriov-manage").read_text()
    control.stop(state_dir)
    done = subprocess.run(["sh", "-c", smi], capture_output=True, text=True, cwd="/")
    assert (done.returncode, "couldn't communicate" in done.stdout, done.stderr) == (9, True, "")
    done = subprocess.run(["sh", "-c", manage, "sh", "-e", "ALL"], capture_output=True, text=True, cwd="/")
    assert (done.returncode, "no simulated node" in done.stderr, "Traceback" in done.stderr) == (1, True, False)


def test_the_scheduler_and_its_report_with_and_without_a_vm() -> None:
    node, files = host("l40s:vfio")
    state = re.compile(r"Active vGPUs +: 0\n +Scheduler Policy +: (.*)$")
    assert state.search(node.ok("vgpu -ss"))[1] == "Best Effort"  # type: ignore[index]
    node.ok("vgpu set-scheduler-state -i 0 -p 3 -a 0 -ts 24,000,000")
    assert state.search(node.ok("vgpu -ss -i 0"))[1] == "Fixed Share"  # type: ignore[index]
    assert node("vgpu -shm 1 -i 0")[0] == 3, "NVIDIA's guide: fixed share needs one size"
    files.write(f"/sys/bus/pci/devices/{function(files)}/nvidia/current_vgpu_type", "1155")
    code, output = node("vgpu set-scheduler-state -p 2")
    assert (code, "if vGPU instance is currently active on the device" in output) == (3, True)
    node.memory.control("vm-start", name="w", devices=[function(files)])
    report = node.ok("vgpu --schedulerstate")
    assert re.search(r"Active vGPUs +: 1\n +Scheduler Policy +: Fixed Share\n +ARR Mode +: Disabled\n", report)
    assert re.search(r"Time Slice\(ns\) +: 24000000", report)
    assert "Average Factor" not in report
    assert node("vgpu set-scheduler-state -p 2 -a 7")[0] == 2
    assert node("vgpu set-scheduler-state -p 9")[0] == 3
