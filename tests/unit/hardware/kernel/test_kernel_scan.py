"""Scan of the PCI bus through files: the listed functions, their order and their names."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from aliquot.errors import HardwareError
from aliquot.hardware.kernel.bus_scan import scan
from aliquot.hardware.kernel.pci_ids import PciNames, pci_names
from aliquot.hardware.kernel_files import RealFiles
from aliquot.kubernetes.kinds.harvester_names import pci_resource
from system.sim.kernel_setup import Kernel

from .tree import A2, DEVICES, Tree

NAMES = PciNames(
    ["10de  NVIDIA Corporation\n\t25b6  GA107GL [A2 / A16]\n\nC 03  Display controller\n\t02  3D controller\n"]
)
EXCERPT = pci_names(())


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_an_a2_with_its_functions_in_the_order_of_harvesters_lists() -> None:
    node = Kernel("a2:mdev", A2)
    node.manage()
    found = scan(node.files, NAMES)
    gpu, first = found[0], found[1]
    assert (gpu.address, gpu.vendor_id, gpu.device_id, gpu.class_id) == (A2, "10de", "25b6", "0302")
    assert (gpu.vendor, gpu.product, gpu.subclass) == ("NVIDIA Corporation", "GA107GL [A2 / A16]", "3D controller")
    assert (gpu.gpu, gpu.sriov, gpu.total, gpu.driver, gpu.packed) == (True, True, 16, "nvidia", "0x25B610DE")
    lexical = [0, 1, *range(10, 16), *range(2, 10)]
    assert list(gpu.virtual) == [node.vfs()[k] for k in lexical], "virtfn10 comes before virtfn2"
    assert {f.address for f in found} == {A2, *gpu.virtual}
    assert (first.physfn, first.gpu, first.sriov, first.virtual) == (A2, False, False, ())
    assert (first.device_id, first.subsystem) == ("25b6", "0x000010DE"), "a function carries its GPU's id, no board's"


def test_an_l40s_as_vendor_vfio_shows_it() -> None:
    node = Kernel("l40s:vfio", "0000:26:00.0")
    before = scan(node.files, EXCERPT)
    assert [(f.address, f.virtual, f.total) for f in before] == [("0000:26:00.0", (), 32)]
    node.manage()
    assert len(scan(node.files, EXCERPT)) == 33
    assert pci_resource(before[0].vendor, before[0].product, "26b9") == "nvidia.com/AD102GL_L40S"


def test_a_t4_can_have_no_functions() -> None:
    (gpu,) = scan(Kernel("t4").files, EXCERPT)
    assert (gpu.gpu, gpu.sriov, gpu.total) == (True, False, 0)
    assert gpu.product == "TU104GL [Tesla T4]"


def test_who_shares_a_group_is_listed_and_no_bridge(tree: Tree) -> None:
    tree.function(A2)
    tree.function("0000:08:00.1", kind="0x040300", driver="snd_hda_intel")
    for other, kind in (("0000:00:03.0", "0x060400"), ("0000:07:00.0", "0x020000"), ("0000:06:00.0", "0x020000")):
        tree.function(other, kind=kind, driver="")
        tree.put(f"{DEVICES}/{other}/vendor", "0x8086\n")
    group = os.path.basename(tree.link(f"{DEVICES}/{A2}/iommu_group"))
    for member in ("0000:00:03.0", "0000:07:00.0"):
        tree.folder(f"/sys/kernel/iommu_groups/{group}/devices/{member}")
    found = {f.address: f for f in scan(tree, NAMES)}
    assert list(found) == ["0000:07:00.0", A2, "0000:08:00.1"], "neither the bridge nor a function with its own group"
    assert [f.gpu for f in found.values()] == [False, True, False]
    assert (found["0000:07:00.0"].vendor, found["0000:08:00.1"].subclass) == ("", "")


def test_what_a_function_lacks_is_left_empty(tree: Tree) -> None:
    tree.function(A2, driver="")
    os.unlink(f"{tree.root}{DEVICES}/{A2}/iommu_group")
    os.unlink(f"{tree.root}{DEVICES}/{A2}/subsystem_vendor")
    tree.put(f"{DEVICES}/{A2}/numa_node", "-1\n")
    (gpu,) = scan(tree, NAMES)
    assert (gpu.iommu_group, gpu.driver, gpu.subsystem, gpu.numa) == (None, "", "", None)
    tree.put(f"{DEVICES}/{A2}/numa_node", "1\n")
    assert scan(tree, NAMES)[0].numa == 1


def test_no_bus_is_no_gpu(tree: Tree) -> None:
    assert scan(tree, NAMES) == ()


def test_a_function_that_disappears_meanwhile_is_not_listed(tree: Tree) -> None:
    tree.function(A2)
    tree.function("0000:09:00.0")
    os.unlink(f"{tree.root}{DEVICES}/0000:09:00.0/class")
    assert [f.address for f in scan(tree, NAMES)] == [A2]


class Failing(Tree):
    """A bus with one unreadable attribute."""

    def read(self, path: str) -> str:
        if path.endswith("/0000:09:00.0/vendor"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return super().read(path)


def test_who_cannot_be_read_is_not_taken_for_gone(tmp_path: Path) -> None:
    tree = Failing(tmp_path)
    tree.function(A2)
    tree.function("0000:09:00.0")
    with pytest.raises(HardwareError, match="the PCI bus cannot be read: Input/output error") as caught:
        scan(tree, NAMES)
    assert caught.value.next_step == f"ls -l {DEVICES}/0000:09:00.0/vendor"


def test_nonsense_names_its_file(tree: Tree) -> None:
    tree.function(A2, device="none of yours")
    with pytest.raises(HardwareError, match=rf"{A2}/device says 'none of yours'"):
        scan(tree, NAMES)


def test_the_machines_database_counts_and_the_excerpt_has_what_it_lacks(tmp_path: Path) -> None:
    ours = tmp_path / "pci.ids"
    ours.write_text(
        "# an old one\n10de  NVIDIA (old)\n\t25b6  A2 of old\n\t\t10de 157e  A board\n10df  Emulex\n\t26b9  X\n"
    )
    names = pci_names((str(tmp_path / "none"), str(ours)))
    assert (names.vendor("10de"), names.product("10de", "25b6")) == ("NVIDIA (old)", "A2 of old")
    assert names.product("10de", "26b9") == "AD102GL [L40S]", "newer than that database"
    assert names.subclass("0302") == "3D controller"
    assert (names.subclass("03ff"), names.subclass("ff00")) == ("Display controller", "")
    assert (names.vendor("ffff"), names.product("ffff", "0001"), names.product("10de", "ffff")) == ("", "", "")


def test_a_scan_of_everything_lists_what_pcidevices_lists(tmp_path: Path) -> None:
    """The server of pcidevices' own snapshot test: 225 functions, of which 26 are bridges that it skips."""
    rows = [line.split() for line in Path(__file__).with_name("proliant.txt").read_text().splitlines()]
    for address, vendor, device, class_id, *driver in rows:
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        for name, value in (("vendor", vendor), ("device", device), ("class", class_id)):
            (folder / name).write_text(f"0x{value}\n")
        for each in driver:
            (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{each}")
    found = {f.address: f for f in scan(RealFiles(str(tmp_path)), everything=True)}
    assert len(found) == len(rows) - 26 == 199
    assert (found["0000:08:00.0"].vendor_id, found["0000:08:00.0"].gpu) == ("10de", True)
    assert (found["0000:04:00.1"].driver, found["0000:03:00.0"].class_id) == ("ixgbe", "0104")
    assert [f.address for f in scan(RealFiles(str(tmp_path)))] == ["0000:08:00.0"]
