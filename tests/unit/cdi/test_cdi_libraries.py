"""The driver's files, in hand-made trees with the layouts of packages."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from aliquot.cdi import devices, libraries
from aliquot.cdi.options import CdiDeviceNode, CdiOptions, Majors
from aliquot.cdi.probe import probe_host
from aliquot.cdi.spec import document
from support import factory

VERSION = "570.172.08"
RECORDED = Path(__file__).resolve().parents[2] / "recorded/cdi/ubuntu-575.64.03.txt"


def put(root: Path, *paths: str) -> None:
    for path in paths:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("x")
        target.chmod(0o755)


def link(root: Path, path: str, target: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def debian(root: Path) -> None:
    """Create a merged-usr tree as Debian and Ubuntu packages lay it out."""
    folder = "/usr/lib/x86_64-linux-gnu"
    put(root, *(f"{folder}/{n}.so.{VERSION}" for n in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")))
    put(root, f"{folder}/vdpau/libvdpau_nvidia.so.{VERSION}", f"{folder}/libnvidia-egl-gbm.so.1.1.2")
    put(root, f"{folder}/libcuda.so.560.1", f"{folder}/libc.so.6", "/usr/bin/nvidia-smi", "/usr/bin/bash")
    put(root, f"/usr/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin", "/run/nvidia-persistenced/socket")
    put(root, "/usr/share/vulkan/icd.d/nvidia_icd.json", "/usr/share/nvidia/nvoptix.bin")
    link(root, "/lib", "usr/lib")
    link(root, "/var/run", "/run")
    link(root, f"{folder}/libcuda.so.1", f"libcuda.so.{VERSION}")
    link(root, f"{folder}/libnvidia-ml.so.1", f"libnvidia-ml.so.{VERSION}")
    link(root, f"{folder}/libnvidia-ml.so", "libnvidia-ml.so.1")


def test_a_driver_of_packages(tmp_path: Path) -> None:
    debian(tmp_path)
    found = libraries.find_driver_files(str(tmp_path), "/run/nvidia/driver", VERSION)
    folder = "/usr/lib/x86_64-linux-gnu"
    assert [m.container for m in found.mounts] == [
        f"{folder}/libcuda.so.{VERSION}",
        f"{folder}/libnvidia-ml.so.{VERSION}",
        f"{folder}/libnvidia-ptxjitcompiler.so.{VERSION}",
        f"{folder}/vdpau/libvdpau_nvidia.so.{VERSION}",
        f"{folder}/libnvidia-egl-gbm.so.1.1.2",
        "/usr/bin/nvidia-smi",
        "/run/nvidia-persistenced/socket",
        "/usr/share/nvidia/nvoptix.bin",
        "/etc/vulkan/icd.d/nvidia_icd.json",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    ]
    assert all(m.host.startswith("/run/nvidia/driver/") for m in found.mounts)
    assert found.mounts[9].host == f"/run/nvidia/driver/usr/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"
    assert "ro" not in found.mounts[6].options  # clients write to a socket
    assert found.folders == [folder, f"{folder}/vdpau"]
    assert set(found.links) == {
        (f"libcuda.so.{VERSION}", f"{folder}/libcuda.so.1"),
        ("libcuda.so.1", f"{folder}/libcuda.so"),
        (f"libnvidia-ml.so.{VERSION}", f"{folder}/libnvidia-ml.so.1"),
        ("libnvidia-ml.so.1", f"{folder}/libnvidia-ml.so"),
    }


def test_the_files_that_nvidia_ctk_found_on_a_real_machine(tmp_path: Path) -> None:
    rows = [line.split() for line in RECORDED.read_text().splitlines() if line and not line.startswith("#")]
    mounts = {row[1]: row[-1] for row in rows if row[0] == "mount"}
    put(tmp_path, *mounts)
    link(tmp_path, "/usr/lib/x86_64-linux-gnu/libnvidia-allocator.so.1", "libnvidia-allocator.so.575.64.03")
    link(tmp_path, "/usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1")
    put(tmp_path, "/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1.17.8", "/usr/bin/nvidia-ctk", "/etc/passwd")
    found = libraries.find_driver_files(str(tmp_path), "/", "575.64.03")
    assert {m.host: m.container for m in found.mounts} == mounts
    assert found.folders == [row[1] for row in rows if row[0] == "folder"]
    assert {f"{target}::{path}" for target, path in found.links} >= {row[1] for row in rows if row[0] == "link"}


def test_folders_that_only_ldconfig_knows(tmp_path: Path) -> None:
    put(tmp_path, f"/opt/nvidia/lib/libcuda.so.{VERSION}")
    assert libraries.find_driver_files(str(tmp_path), "/", VERSION).mounts == []
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf.d/nvidia.conf").write_text("# the driver\n/opt/nvidia/lib\n")
    found = libraries.find_driver_files(str(tmp_path), "/", VERSION)
    assert [(m.host, m.container) for m in found.mounts] == [(f"/opt/nvidia/lib/libcuda.so.{VERSION}",) * 2]


def test_links_of_another_system_stay_inside_it(tmp_path: Path) -> None:
    # The link ``/lib64 -> /usr/lib64`` in a driver container refers to that container's file system.
    put(tmp_path, f"/usr/lib64/libcuda.so.{VERSION}")
    link(tmp_path, "/lib64", "/usr/lib64")
    link(tmp_path, "/usr/lib64/loop", "loop")
    root = libraries.DriverRoot(str(tmp_path))
    assert root.real(f"/lib64/libcuda.so.{VERSION}") == f"/usr/lib64/libcuda.so.{VERSION}"
    assert root.real("/usr/lib64/../lib64") == "/usr/lib64"
    assert root.real("/usr/lib64/loop") is None
    assert root.real("/lib64/none") is None
    assert len(libraries.find_driver_files(str(tmp_path), "/", VERSION).mounts) == 1


def test_majors_are_the_kernels(tmp_path: Path) -> None:
    assert devices.majors(str(tmp_path)) == Majors(gpu=195, uvm=-1, caps=-1)
    (tmp_path / "proc").mkdir()
    lines = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n238 nvidia-caps\n239 nvidia-caps-imex-channels\n"
    lines += "511 nvidia-uvm\n\nBlock devices:\n  9 nvidia-uvm\n"
    (tmp_path / "proc/devices").write_text(lines)
    assert devices.majors(str(tmp_path)) == Majors(gpu=195, uvm=511, caps=238)


def test_rendering_nodes_come_from_sysfs(tmp_path: Path) -> None:
    for name, numbers in (("card1", "226:1"), ("renderD128", "226:128"), ("card1-DP-1", None)):
        folder = tmp_path / f"sys/bus/pci/devices/0000:07:00.0/drm/{name}"
        folder.mkdir(parents=True)
        if numbers:
            (folder / "dev").write_text(numbers + "\n")
    found = devices.drm(["0000:07:00.0", "0000:0f:00.0"], str(tmp_path))
    assert found == {
        "0000:07:00.0": (
            CdiDeviceNode("/dev/dri/card1", 226, 1, 0o660),
            CdiDeviceNode("/dev/dri/renderD128", 226, 128, 0o660),
        )
    }


def test_only_character_devices_are_nodes(tmp_path: Path) -> None:
    put(tmp_path, "/dev/nvidia-caps-imex-channels/channel0")
    assert devices.extras(str(tmp_path)) == ()
    assert devices.extras(str(tmp_path / "none")) == ()
    null = devices.node("/dev/null")
    assert null is not None
    assert (null.major, null.minor) == (1, 3)


def test_what_is_missing_is_reported(tmp_path: Path) -> None:
    inventory = msgspec.structs.replace(factory.inventory("a100-sxm4-40gb"), driver=VERSION)
    options = CdiOptions(driver_root=str(tmp_path), hook="/nowhere/nvidia-cdi-hook")
    bare = probe_host(inventory, options).host
    assert bare is not None
    assert any("no libcuda.so of driver 570.172.08" in n for n in bare.notes)
    assert any("cannot see /nowhere/nvidia-cdi-hook" in n for n in bare.notes)
    debian(tmp_path)
    put(tmp_path, "/hook/nvidia-cdi-hook")
    options = msgspec.structs.replace(options, hook=str(tmp_path / "hook/nvidia-cdi-hook"))
    observed = probe_host(inventory, options)
    assert observed.host is not None
    assert not any("libcuda" in n or "hook" in n for n in observed.host.notes)
    hooks = document(inventory, observed)["containerEdits"]["hooks"]
    assert [h["args"][:2] for h in hooks] == [
        ["nvidia-cdi-hook", "create-symlinks"],
        ["nvidia-cdi-hook", "update-ldcache"],
    ]
    assert f"libcuda.so.{VERSION}::/usr/lib/x86_64-linux-gnu/libcuda.so.1" in hooks[0]["args"]
    assert {h["path"] for h in hooks} == {str(tmp_path / "hook/nvidia-cdi-hook")}


@pytest.mark.parametrize(("name", "asked"), [("nvidia-cdi-hook", "--help"), ("nvidia-ctk", "hook --help")])
@pytest.mark.parametrize(
    ("release", "has"),
    [
        ("1.17.4", ()),
        ("1.17.5", ("enable-cuda-compat",)),
        ("1.17.8", ("enable-cuda-compat", "disable-device-node-modification")),
        ("1.20.0", ("enable-cuda-compat", "disable-device-node-modification", "update-application-profile")),
    ],
)
def test_newer_hooks_are_called_where_the_program_has_them(
    tmp_path: Path, name: str, asked: str, release: str, has: tuple[str, ...]
) -> None:
    inventory = msgspec.structs.replace(factory.inventory("a100-sxm4-40gb"), driver=VERSION)
    debian(tmp_path)
    program = tmp_path / name
    lines = "".join(f"   {each}  Does it for a container\\n" for each in ("update-ldcache, ldcache", *has, "help, h"))
    program.write_text(f'#!/bin/sh\n[ "$*" = "{asked}" ] && printf "VERSION:\\n   {release}\\nCOMMANDS:\\n{lines}"\n')
    program.chmod(0o755)
    options = CdiOptions(driver_root=str(tmp_path), hook=str(program))
    args = [h["args"] for h in document(inventory, probe_host(inventory, options))["containerEdits"]["hooks"]]
    first = 2 if name == "nvidia-ctk" else 1
    order = ["create-symlinks", *has[:1], "update-ldcache", *has[1:]]
    assert [each[first] for each in args] == order
    if has:
        assert args[1][first + 1 :] == [f"--host-driver-version={VERSION}"]
    assert all(each[first + 1 :] == [] for each in args if each[first] in has[1:])
    managing = document(inventory, probe_host(inventory, msgspec.structs.replace(options, mode="management")))
    names = [h["args"][first] for h in managing["containerEdits"]["hooks"]]
    assert "disable-device-node-modification" not in names, "an administrator of the node may create its device nodes"


def test_a_driver_root_elsewhere_is_named_as_runtimes_see_it(tmp_path: Path) -> None:
    # An agent in a container reads the driver at one path. The runtime on the host mounts it from another path.
    debian(tmp_path)
    inventory = msgspec.structs.replace(factory.inventory("a100-sxm4-40gb"), driver=VERSION)
    observed = probe_host(inventory, CdiOptions(driver_root="/run/nvidia/driver", local_driver_root=str(tmp_path)))
    assert observed.host is not None
    assert {os.path.commonpath([m.host, "/run/nvidia/driver"]) for m in observed.host.mounts} == {"/run/nvidia/driver"}
    assert probe_host(inventory, observed) is observed
