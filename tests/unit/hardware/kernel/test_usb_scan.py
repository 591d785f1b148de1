"""The scan of USB devices through files."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.core.model.peripherals import UsbDevice
from aliquot.errors import HardwareError
from aliquot.hardware.kernel.pci_ids import PciNames
from aliquot.hardware.kernel.usb_scan import scan_usb

from .tree import Tree

NAMES = PciNames(["0951  Kingston Technology\n\t1666  DataTraveler 100 G3/G4\n"])
NO_NAMES = PciNames([])
UEVENT = """MAJOR=189
MINOR=3
DEVNAME=bus/usb/001/004
DEVTYPE=usb_device
DRIVER=usb
PRODUCT=951/1666/110
TYPE=0/0/0
BUSNUM=001
DEVNUM=004
"""
"""A device as Linux shows it: the ids in PRODUCT have no leading zeros."""
ROOT = "/sys/devices/pci0000:00/0000:00:14.0/usb1"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.put(f"{ROOT}/uevent", UEVENT.replace("004", "001"))
    tree.tie("/sys/bus/usb/devices/usb1", f"../../../..{ROOT}")
    return tree


def plug(tree: Tree, name: str, uevent: str = UEVENT, **texts: str) -> None:
    for file, text in ({"uevent": uevent} | texts).items():
        tree.put(f"{ROOT}/{name}/{file}", f"{text}\n")
    tree.tie(f"/sys/bus/usb/devices/{name}", f"../../../..{ROOT}/{name}")


def test_a_stick_and_no_root_hub_or_interface(tree: Tree) -> None:
    plug(tree, "1-4", product="DataTraveler 3.0", bDeviceClass="00")
    tree.put(f"{ROOT}/1-4/1-4:1.0/bInterfaceClass", "08\n")
    tree.tie("/sys/bus/usb/devices/1-4:1.0", f"../../../..{ROOT}/1-4/1-4:1.0")
    assert scan_usb(tree, NAMES) == (
        UsbDevice(
            vendor_id="0951",
            product_id="1666",
            bus=1,
            number=4,
            path="/dev/bus/usb/001/004",
            controller="0000:00:14.0",
            description="DataTraveler 100 G3/G4 (Kingston Technology) [DataTraveler 3.0]",
            class_type="Mass Storage",
        ),
    )


@pytest.mark.parametrize(
    ("texts", "described"),
    [
        ({}, "Unknown 0951:1666"),
        ({"product": "Stick"}, "Unknown 0951:1666 [Stick]"),
        ({"manufacturer": "Kingston"}, "Unknown (Kingston)"),
    ],
)
def test_a_host_without_the_database_of_names(tree: Tree, texts: dict[str, str], described: str) -> None:
    plug(tree, "1-4", **texts)
    assert [each.description for each in scan_usb(tree, NO_NAMES)] == [described]


@pytest.mark.parametrize(("code", "name"), [("09", "Hub"), ("E0", "Wireless Controller"), ("77", "Unknown (0x77)")])
def test_the_class_of_a_device(tree: Tree, code: str, name: str) -> None:
    plug(tree, "1-4", bDeviceClass=code)
    assert [each.class_type for each in scan_usb(tree, NO_NAMES)] == [name]


def test_what_the_host_uses_of_a_device_or_below_a_hub(tree: Tree) -> None:
    plug(tree, "1-4", bDeviceClass="09")
    plug(tree, "1-4.1", UEVENT.replace("004", "005"))
    plug(tree, "1-40", UEVENT.replace("004", "006"))
    tree.tie("/sys/class/block/sdb1", f"../../..{ROOT}/1-4/1-4.1/1-4.1:1.0/host6/target6:0:0/6:0:0:0/block/sdb/sdb1")
    tree.tie("/sys/class/net/eth7", f"../../..{ROOT}/1-40/1-40:1.0/net/eth7")
    tree.put("/proc/1/mountinfo", "25 1 8:17 / /data rw - ext4 /dev/sdb1 rw\n")
    tree.put("/proc/1/net/route", "Iface\tDestination\neth7\t00000000\t0101A8C0\t3\t0\t0\t0\t00000000\t0\t0\t0\n")
    disk = "sdb1 is mounted on /data"
    hub, stick, card = scan_usb(tree, NO_NAMES)
    assert (hub.user, stick.user, card.user) == (disk, disk, "its interface eth7 has the default route")


def test_an_entry_without_a_number_is_no_device(tree: Tree) -> None:
    plug(tree, "1-4", UEVENT.replace("BUSNUM=001\n", ""))
    assert scan_usb(tree, NO_NAMES) == ()


def test_a_host_without_usb_has_no_device(tmp_path: Path) -> None:
    assert scan_usb(Tree(tmp_path), NO_NAMES) == ()


def test_an_unreadable_device_is_an_error_and_not_an_unplugged_device(tree: Tree) -> None:
    plug(tree, "1-4", UEVENT.replace("DEVNUM=004", "DEVNUM=?"))
    with pytest.raises(HardwareError, match="the USB devices cannot be read"):
        scan_usb(tree, NO_NAMES)
