"""A mounted node as unmodified programs see it: shells, coreutils, find, lspci, Python."""

from __future__ import annotations

import errno
import glob
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.errors import BlockedError, UsageError
from aliquot.foundation.paths import simulated_nodes
from aliquot.sim import lifecycle as control
from aliquot.sim import mount_process as mounting
from aliquot.sim import mount_source
from aliquot.sim.client import SimClient
from aliquot.sim.files import SimFiles
from support.processes import ended, until
from system.sim import mounted as mounts
from system.sim.captures import sessions

UUID = "7cc63b62-c1e7-4f43-b12a-9ed3a7fe64f0"
GPU = "0000:08:00.0"
DEVICES = "sys/bus/pci/devices"


class Machine:
    """A node with an A2 at 0000:08:00.0, all its functions enabled, and its mount point."""

    def __init__(self, node: SimClient, root: str) -> None:
        self.node = node
        self.root = root

    def sh(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script in the mount's folder. Not with dash, which reports all failures of a write alike."""
        return subprocess.run(["bash", "-c", script], cwd=self.root, capture_output=True, text=True)

    def out(self, script: str) -> str:
        done = self.sh(script)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def machine(state_dir: str) -> Iterator[Machine]:
    if reason := mounts.missing():
        pytest.skip(reason)
    name = control.start(state_dir, "t4*7,a2:mdev,t4", "m")
    node = SimClient(state_dir, name)
    with mounts.mounted(state_dir, name) as root:
        assert node.sriov_manage("-e", GPU)["rc"] == 0
        yield Machine(node, root)


def test_programs_read_what_is_there(machine: Machine) -> None:
    assert machine.out(f"cat {DEVICES}/{GPU}/vendor {DEVICES}/{GPU}/device") == "0x10de\n0x25b6\n"
    assert machine.out(f"readlink {DEVICES}/{GPU}/virtfn0") == "../0000:08:00.4\n"
    assert machine.out(f"readlink -f {DEVICES}/0000:08:00.4/physfn").endswith(f"/{GPU}\n")
    listed = machine.out(f"ls {DEVICES}/{GPU}/").split()
    assert sum(name.startswith("virtfn") for name in listed) == 16
    assert machine.out(f"basename $(readlink {DEVICES}/0000:08:00.4/driver)") == "nvidia\n"
    assert machine.out("head -c 4 sys/bus/pci/devices/0000:08:00.0/config | od -An -tx1").split() == [
        *("de", "10", "b6", "25")
    ]
    found = machine.out(f"find -L {DEVICES}/0000:08:00.4/mdev_supported_types -maxdepth 2 -name available_instances")
    assert len(found.split()) == 15
    assert machine.out("stat -c %a,%F sys/bus/pci/drivers/nvidia/bind") == "200,regular file\n"
    assert machine.out("stat -c %F dev/vfio/vfio") == "character special file\n"
    assert machine.out("cat proc/driver/nvidia/version").startswith("NVRM version")


def test_python_sees_the_same(machine: Machine) -> None:
    pattern = f"{machine.root}/{DEVICES}/{GPU}/virtfn*"
    assert len(glob.glob(pattern)) == 16
    path = Path(machine.root, DEVICES, GPU, "sriov_numvfs")
    assert path.read_text() == "16\n"
    with open(path) as attribute:
        assert attribute.read() == "16\n"
        assert machine.node.sriov_manage("-d", GPU)["rc"] == 0
        attribute.seek(0)
        assert attribute.read() == "0\n", "an open attribute is read again from its beginning"
    assert glob.glob(pattern) == [], "nothing is cached"


def test_a_write_is_the_kernels(machine: Machine) -> None:
    where = f"{DEVICES}/0000:08:00.4/mdev_supported_types/nvidia-746"
    assert machine.out(f"cat {where}/available_instances") == "1\n"
    assert machine.out(f"echo {UUID} > {where}/create; ls sys/bus/mdev/devices") == f"{UUID}\n"
    assert machine.out(f"cat {where}/available_instances") == "0\n"
    assert machine.out(f"readlink sys/bus/mdev/devices/{UUID}/mdev_type").endswith("/nvidia-746\n")
    assert machine.out(f"ls {where}/devices") == f"{UUID}\n"
    machine.node.start_vm("vm", UUID)
    comms = machine.out("grep -l qemu proc/[0-9]*/comm")
    pid = comms.split("/")[1]
    links = machine.out(f"for each in proc/{pid}/fd/*; do readlink $each; done").split()
    group = machine.out(f"basename $(readlink sys/bus/mdev/devices/{UUID}/iommu_group)").strip()
    assert f"/dev/vfio/{group}" in links
    busy = machine.sh(f"echo 1 > sys/bus/mdev/devices/{UUID}/remove")
    assert (busy.returncode != 0, "Device or resource busy" in busy.stderr) == (True, True)
    machine.node.stop_vm("vm")
    assert machine.out(f"echo 1 > sys/bus/mdev/devices/{UUID}/remove; ls sys/bus/mdev/devices") == ""


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo x > sys/class/mdev_bus/0000:08:00.4/mdev_supported_types/nvidia-746/create", "Invalid argument"),
        (f"echo 99 > {DEVICES}/{GPU}/sriov_numvfs", "Numerical result out of range"),
        (f"echo 4 > {DEVICES}/{GPU}/sriov_numvfs", "Device or resource busy"),
        (f"echo 0 > {DEVICES}/{GPU}/sriov_numvfs", "Operation not permitted"),
        (f"echo {GPU} > sys/bus/pci/drivers/vfio-pci/bind", "No such device"),
        ("echo unknown > sys/bus/pci/drivers/nvidia/bind", "No such device"),
        ("cat sys/bus/pci/drivers/nvidia/bind", "Permission denied"),
        (f"echo 1 > {DEVICES}/{GPU}/vendor", "Permission denied"),
        (f"touch {DEVICES}/{GPU}/mine", "Permission denied"),
        ("mkdir sys/mine", "Operation not permitted"),
        (f"rm {DEVICES}/{GPU}/vendor", "Operation not permitted"),
        ("rmdir sys/bus", "Operation not permitted"),
        ("mv sys/bus sys/bis", "Operation not permitted"),
        (f"cat {DEVICES}/{GPU}/colour", "No such file"),
        (f"ls {DEVICES}/{GPU}/vendor/x", "Not a directory"),
    ],
)
def test_refusals_carry_the_kernels_errno(machine: Machine, script: str, words: str) -> None:
    before = machine.node.files("read", f"/{DEVICES}/{GPU}/sriov_numvfs")
    done = machine.sh(script)
    assert done.returncode != 0
    assert words.lower() in done.stderr.lower()
    assert machine.node.files("read", f"/{DEVICES}/{GPU}/sriov_numvfs") == before


def test_every_file_of_the_a2_snapshot_through_cat(machine: Machine) -> None:
    # A 4 GB vGPU runs on another function, as when the snapshot was taken.
    machine.out(f"echo {UUID} > {DEVICES}/0000:08:00.4/mdev_supported_types/nvidia-754/create")
    recorded = sessions("a2-mdev-sysfs.txt")
    assert len(recorded) == 60
    for command, text in recorded:
        assert machine.out(command.replace("cat /", "cat ")) == text, command
    kinds = {command.split("/")[-2] for command, _ in recorded}
    assert set(machine.out("ls sys/class/mdev_bus/0000:08:01.7/mdev_supported_types").split()) == kinds


def test_every_file_of_the_l40s_snapshot_through_cat(state_dir: str) -> None:
    if reason := mounts.missing():
        pytest.skip(reason)
    node = SimClient(state_dir, control.start(state_dir, "l40s:vfio"))
    node.sriov_manage("-e", "ALL")
    with mounts.mounted(state_dir, node.name) as root:
        for command, text in sessions("l40s-vendor-vfio-sysfs.txt"):
            here = command.replace("cat /", "cat ").replace("0000:26:00.4", "0000:01:00.4")
            done = subprocess.run(here, shell=True, cwd=root, capture_output=True, text=True)
            assert done.stdout == text, command
        assert not os.path.exists(f"{root}/sys/class/mdev_bus")
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            Path(root, DEVICES, "0000:01:00.4/nvidia/current_vgpu_type").write_text("9999")


def test_the_mount_is_the_whole_tree(machine: Machine) -> None:
    # The mount has exactly the names, links and texts of a function.
    files = SimFiles(machine.node)
    functions = [files.real(f"/{DEVICES}/{each}") for each in (GPU, "0000:08:00.4")]
    waiting, count = [*functions, "/sys/bus/pci", "/proc/driver", "/dev"], 0
    while waiting:
        path = waiting.pop()
        here = machine.root + path
        names = files.names(path)
        assert sorted(os.listdir(here)) == sorted(names), path
        for name in names:
            reported, _ = machine.node.files("stat", f"{path}/{name}")
            shown = os.lstat(f"{here}/{name}")
            assert (shown.st_mode, shown.st_size) == (reported["mode"], reported["size"])
            if reported["kind"] == "dir":
                waiting.append(f"{path}/{name}")
            elif reported["kind"] == "link":
                assert os.readlink(f"{here}/{name}") == files.link(f"{path}/{name}")
            elif reported["kind"] == "file" and reported["mode"] & 0o400:
                count += 1
                text, _ = machine.node.files("read", f"{path}/{name}")
                assert Path(here, name).read_bytes().decode("latin-1") == text
    assert count > 80


@pytest.mark.skipif(shutil.which("lspci") is None, reason="lspci is not installed")
def test_lspci_lists_the_functions(machine: Machine) -> None:
    done = subprocess.run(
        ["lspci", "-O", f"sysfs.path={machine.root}/sys/bus/pci", "-d", "10de:", "-n"], capture_output=True, text=True
    )
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("08:")][:2] == [
        *("08:00.0", "08:00.4")
    ]


def test_it_goes_with_its_node(state_dir: str, tmp_path: Path) -> None:
    if reason := mounts.missing():
        pytest.skip(reason)
    folder = str(tmp_path / "here")
    os.mkdir(folder)
    name = control.start(state_dir, "a2")
    pid = mounting.mount(state_dir, name, folder)
    assert mounting.mounted(folder) == name
    with pytest.raises(UsageError, match="already"):
        mounting.mount(state_dir, name, folder)
    with pytest.raises(UsageError, match="is not a directory"):
        mounting.mount(state_dir, name, str(tmp_path / "there"))
    inside = subprocess.Popen(["sleep", "60"], cwd=f"{folder}/sys")
    with pytest.raises(BlockedError, match="cannot be unmounted"):
        mounting.unmount(folder)
    control.stop(state_dir)
    until(lambda: mounting.mounted(folder) is None and ended(pid))
    inside.kill()
    inside.wait()
    assert os.listdir(folder) == []


def test_what_a_look_found_ends_with_the_nodes_next_change(state_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_source, "_APPEAR_S", 1000.0)
    node = SimClient(state_dir, control.start(state_dir, "a2:mdev"))
    source = mount_source.NodeSource(state_dir, node.name)
    folder = f"/{DEVICES}/0000:01:00.0"
    real = SimFiles(node).real(folder)
    assert "virtfn0" not in source.names(real)
    node.sriov_manage("-e", "ALL")
    assert "virtfn0" in source.names(real), "another process changed it a moment later"
    assert source.link(f"{real}/virtfn0") == "../0000:01:00.4"
    node.sriov_manage("-d", "ALL")
    with pytest.raises(FileNotFoundError):
        source.link(f"{real}/virtfn0")


def test_what_appears_by_itself_is_seen(state_dir: str) -> None:
    node = SimClient(state_dir, control.start(state_dir, "a2:mdev"))
    source = mount_source.NodeSource(state_dir, node.name)
    node.inject_fault("vf-delay", gpu=0, seconds=1.0)
    node.sriov_manage("-e", "ALL")
    real = SimFiles(node).real(f"/{DEVICES}/0000:01:00.0")
    first = sum(n.startswith("virtfn") for n in source.names(real))
    assert first < 16
    time.sleep(1.2)
    assert sum(n.startswith("virtfn") for n in source.names(real)) == 16, "without a write meanwhile"


def test_a_killed_server_is_started_again_and_a_write_is_not_sent_twice(machine: Machine) -> None:
    state_dir = machine.node.state_dir
    path = f"{DEVICES}/{GPU}/driver_override"
    machine.out(f"echo vfio-pci > {path}")
    done = subprocess.run(["fuser", "-k", f"{simulated_nodes(state_dir)}/server.run"], capture_output=True)
    if done.returncode == 127:
        pytest.skip("fuser is not installed")
    assert machine.out(f"cat {path}") == "vfio-pci\n"


def test_a_fault_meets_the_program_that_wrote(machine: Machine) -> None:
    # SIGKILL goes to the shell, not to the mount.
    machine.node.inject_fault("kill", when="before")
    done = machine.sh(f"echo vfio-pci > {DEVICES}/{GPU}/driver_override; echo survived")
    assert done.returncode == -9
    assert machine.out(f"cat {DEVICES}/{GPU}/driver_override") == "(null)\n", "the write did not reach the kernel"
