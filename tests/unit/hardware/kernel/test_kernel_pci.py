"""PCI functions and virtual functions, read from files."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from aliquot.errors import HardwareError, InUseError, PermissionDeniedError
from aliquot.hardware.kernel import pci, sriov
from aliquot.hardware.kernel.errors import kernel_file_error
from aliquot.hardware.kernel.host import read_host
from aliquot.hardware.kernel.passthrough import disable_passthrough
from aliquot.hardware.kernel.sriov_manage import NoTools
from aliquot.hardware.kernel.sysfs import MalformedError, link_target, read_count, read_number, read_optional
from aliquot.hardware.kernel.vfio_binding import GroupError, NoIommuError, companions
from aliquot.hardware.kernel.vgpu_owners import OwnerMapFile

from .tree import A2, DEVICES, Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_attributes(tree: Tree) -> None:
    tree.put("/a", " 0x10de \n")
    tree.put("/bad", "many\n")
    tree.put("/empty", "\n")
    assert (read_number(tree, "/a"), read_number(tree, "/none"), read_number(tree, "/empty")) == (0x10DE, None, None)
    assert (read_count(tree, "/a"), read_count(tree, "/none")) == (0x10DE, 0)
    with pytest.raises(MalformedError, match="/empty is empty"):
        read_count(tree, "/empty")
    assert read_optional(tree, "/a/b") is None, "a file is not a folder"
    with pytest.raises(MalformedError, match=r"/bad says 'many'"):
        read_number(tree, "/bad")
    with pytest.raises(IsADirectoryError):
        read_optional(tree, "/")
    assert link_target(tree, "/a") == "", "no link"


def test_which_functions_are_gpus(tree: Tree) -> None:
    tree.function(A2)
    tree.function("0000:08:00.1", kind="0x040300", driver="snd_hda_intel")
    tree.function("0000:09:00.0", kind="0x030000", driver="vfio-pci")
    tree.function("0000:0a:00.0", kind="0x030200", driver="vfio-pci")
    tree.put(f"{DEVICES}/0000:0a:00.0/vendor", "0x1002\n")
    tree.sriov(A2, 16, on=1)
    tree.virtual(A2, 0, "0000:08:00.4")
    listed = sorted(p for p in tree.names(DEVICES) if pci.is_gpu(tree, p))
    assert listed == [A2, "0000:09:00.0"], "no audio, no virtual function, no other vendor"
    assert pci.vfio_gpus(tree) == ("0000:09:00.0",)
    assert pci.identity(tree, A2) == pci.PciFunctionIds("0x25B610DE", "0x157E10DE")
    assert pci.driver(tree, A2) == "nvidia"
    assert pci.driver_override(tree, A2) == ""
    os.unlink(f"{tree.root}{DEVICES}/{A2}/device")
    with pytest.raises(MalformedError):
        pci.identity(tree, A2)


@pytest.mark.parametrize(
    ("gpu", "offset", "total", "first", "last"),
    [
        (A2, 4, 16, "0000:08:00.4", "0000:08:02.3"),
        ("0000:e8:00.0", 4, 32, "0000:e8:00.4", "0000:e8:04.3"),
        ("0001:04:00.0", 2, 48, "0001:04:00.2", "0001:04:06.1"),
        ("0000:08:1f.0", 4, 16, "0000:08:1f.4", "0000:09:01.3"),
    ],
)
def test_where_virtual_functions_will_be(tree: Tree, gpu: str, offset: int, total: int, first: str, last: str) -> None:
    # As recorded on A2, A40 and RTX PRO 6000. The last one extends past the end of its bus.
    tree.sriov(gpu, total, offset)
    found = sriov.function_addresses(tree, gpu, total)
    assert (found[0], found[-1], len(found)) == (first, last, total)


def test_virtual_functions_count_and_are_not_spelled(tree: Tree) -> None:
    tree.sriov(A2, 16, on=12)
    for k in reversed(range(12)):
        tree.virtual(A2, k, f"0000:08:0{(k + 4) // 8}.{(k + 4) % 8}")
    assert [link.number for link in sriov.links(tree, A2)] == list(range(12)), "virtfn10 comes after virtfn9"
    assert tuple(link.pci for link in sriov.links(tree, A2)) == sriov.function_addresses(tree, A2, 12)


def test_a_capability_that_the_driver_does_not_use(tree: Tree) -> None:
    # A Tesla T4 lists SR-IOV but no device id of virtual functions.
    tree.sriov(A2, 16)
    tree.put(f"{DEVICES}/{A2}/sriov_vf_device", "0\n")
    assert sriov.total(tree, A2) == 0
    tree.put(f"{DEVICES}/{A2}/sriov_totalvfs", "sixteen\n")
    with pytest.raises(MalformedError):
        sriov.total(tree, A2)


def test_companions_and_unrelated_devices(tree: Tree) -> None:
    tree.function(A2)
    group = pci.group(tree, A2)
    for other, kind, driver in (
        ("0000:08:00.1", "0x040300", "snd_hda_intel"),
        ("0000:00:03.0", "0x060400", "pcieport"),
        ("0000:07:00.0", "0x020000", ""),
    ):
        tree.function(other, kind=kind, driver=driver)
        tree.folder(f"/sys/kernel/iommu_groups/{group}/devices/{other}")
    assert [m.pci for m in companions(tree, A2)] == ["0000:08:00.1"], "no bridge, nothing without a driver"
    tree.function("0000:08:00.2", kind="0x020000", driver="igb")
    tree.put(f"{DEVICES}/0000:08:00.2/vendor", "0x8086\n")
    tree.folder(f"/sys/kernel/iommu_groups/{group}/devices/0000:08:00.2")
    with pytest.raises(GroupError) as caught:
        companions(tree, A2)
    assert caught.value.details == ("0000:08:00.2 (driver igb)",)
    os.unlink(f"{tree.root}{DEVICES}/{A2}/iommu_group")
    with pytest.raises(NoIommuError):
        companions(tree, A2)


def test_a_virtual_function_takes_neither_its_gpu_nor_its_siblings_along(tree: Tree) -> None:
    # Without ACS above the card one group contains all functions: passthrough of one would unbind the GPU under every
    # vGPU.
    tree.function(A2)
    tree.function("0000:08:00.1", kind="0x040300", driver="snd_hda_intel")
    tree.sriov(A2, 16, on=2)
    group = pci.group(tree, A2)
    for k, address in enumerate(("0000:08:00.4", "0000:08:00.5")):
        tree.virtual(A2, k, address)
        os.unlink(f"{tree.root}{DEVICES}/{address}/iommu_group")
        tree.tie(f"{DEVICES}/{address}/iommu_group", f"../../../../kernel/iommu_groups/{group}")
        tree.folder(f"/sys/kernel/iommu_groups/{group}/devices/{address}")
    tree.folder(f"/sys/kernel/iommu_groups/{group}/devices/0000:08:00.1")
    with pytest.raises(GroupError) as caught:
        companions(tree, "0000:08:00.4")
    assert caught.value.details == (
        f"{A2} (driver nvidia)",
        "0000:08:00.1 (driver snd_hda_intel)",
        "0000:08:00.5 (driver nvidia)",
    )


def test_virtual_functions_of_a_gpu_that_vfio_pci_has(tree: Tree, tmp_path: Path) -> None:
    # vfio-pci can enable them (enable_sriov). It disables them when it releases the GPU, even if they are in use.
    tree.function(A2, driver="vfio-pci")
    tree.sriov(A2, 16, on=2)
    with pytest.raises(InUseError, match="is bound to vfio-pci and has virtual functions"):
        disable_passthrough(tree, OwnerMapFile(str(tmp_path / "lib")), A2, "", nullcontext)
    assert pci.driver(tree, A2) == "vfio-pci"


def test_the_host(tree: Tree) -> None:
    empty = read_host(tree, NoTools())
    assert (empty.iommu, empty.vfio, empty.vgpu_manager, empty.sriov_manage) == (False, False, None, "")
    tree.folder("/sys/module/nvidia")
    assert read_host(tree, NoTools()).vgpu_manager is False
    tree.put("/proc/modules", "nvidia_drm 1 0 - Live 0x0\nnvidia_vgpu_vfio 53248 0 - Live 0x0\n")
    assert read_host(tree, NoTools()).vgpu_manager is True
    tree.folder("/sys/module/vfio_pci")
    tree.folder("/sys/kernel/iommu_groups/0")
    full = read_host(tree, NoTools())
    assert (full.iommu, full.vfio) == (True, True)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EBUSY, InUseError),
        (errno.EEXIST, InUseError),
        (errno.EACCES, PermissionDeniedError),
        (errno.EROFS, PermissionDeniedError),
        (errno.EIO, HardwareError),
        (errno.EINVAL, HardwareError),
        (errno.ENOSPC, HardwareError),
        (errno.ENODEV, HardwareError),
        (errno.ELOOP, HardwareError),
    ],
)
def test_every_refusal_says_what_where_and_what_next(number: int, kind: type) -> None:
    error = kernel_file_error(OSError(number, "x"), "trying it", "/sys/there")
    assert isinstance(error, kind)
    assert error.brief.startswith("trying it failed: ")
    assert error.details[0] == f"/sys/there: {errno.errorcode[number]}"
    assert error.next_step
    assert (len(error.details) == 2) == (number == errno.EIO), "the driver's own codes are named for EIO only"
