"""A function that the host itself needs is never taken from it; the refusal names the user."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from aliquot.core.engine.programs import ProgramResult
from aliquot.errors import BlockedError, InUseError
from aliquot.hardware.kernel.bus_scan import scan
from aliquot.hardware.kernel.function_binding import bind_function, load_vfio, release_function
from aliquot.hardware.kernel.function_users import host_uses
from aliquot.hardware.kernel_files import RealFiles
from support.simnodes import Node
from unit.core.engine.memory import CountingClock

HBA, UPLINK, NIC, NVME = "0000:03:00.0", "0000:04:00.0", "0000:04:00.1", "0000:05:00.0"
SRIOV, VF, USB = "0000:06:00.0", "0000:06:00.2", "0000:02:00.0"


@pytest.fixture
def node() -> Node:
    return Node("a2:host:bus08")


def driver(node: Node, address: str) -> str:
    return next(f.driver for f in scan(node.files, everything=True) if f.address == address)


def change(node: Node, **fields: object) -> None:
    for name, value in fields.items():
        setattr(node.backend.memory.node.state, name, value)
    node.backend.memory.node.files_changed()


@pytest.mark.parametrize(
    ("address", "phrase"),
    [
        (HBA, "sda2 is mounted on /"),
        (HBA, "sda1 is mounted on /boot"),
        (HBA, "sda3 is swap space"),
        (UPLINK, "its interface eno49 is part of mgmt-bo"),
        (SRIOV, "it has 1 virtual functions"),
    ],
    ids=["root", "boot", "swap", "uplink", "functions"],
)
def test_what_the_host_needs_is_refused_with_its_user(node: Node, address: str, phrase: str) -> None:
    before = driver(node, address)
    with pytest.raises(InUseError) as refused:
        bind_function(node.files, CountingClock(), address, ())
    assert phrase in refused.value.brief
    assert driver(node, address) == before != "vfio-pci"


@pytest.mark.parametrize("address", [NIC, NVME, VF, USB])
def test_a_free_function_goes_to_vfio_and_back_to_its_driver(node: Node, address: str) -> None:
    first = driver(node, address)
    bind_function(node.files, CountingClock(), address, ())
    assert driver(node, address) == "vfio-pci"
    assert node.files.read(f"/sys/bus/pci/devices/{address}/driver_override") == "(null)"
    release_function(node.files, address, first)
    assert driver(node, address) == first
    assert node.files.read(f"/sys/bus/pci/devices/{address}/driver_override") == "(null)"


def test_a_driver_that_is_not_loaded_any_more_does_not_keep_a_function_from_going_back(node: Node) -> None:
    bind_function(node.files, CountingClock(), NIC, ())
    release_function(node.files, NIC, "out-of-tree")
    assert driver(node, NIC) == "ixgbe"


def test_the_card_with_the_nodes_address_or_the_default_route_stays(node: Node) -> None:
    assert host_uses(node.files, NIC) == ()
    change(node, route="eno50")
    assert host_uses(node.files, NIC) == ("its interface eno50 has the default route",)
    both = host_uses(node.files, NIC, ("192.168.1.7", "fd00::7"))
    assert both == ("its interface eno50 has the node's address 192.168.1.7",)
    assert host_uses(node.files, NIC, ("10.0.0.1",)) == ("its interface eno50 has the default route",)


def test_a_disk_below_a_volume_is_in_use_without_a_mount(node: Node) -> None:
    change(node, block_holders={"nvme0n1p1": "dm-3"})
    assert host_uses(node.files, NVME) == ("dm-3 uses nvme0n1p1",)


@pytest.mark.parametrize("held", ["nvme0n1", "nvme0n1p1"], ids=["disk", "partition"])
def test_a_disk_that_is_open_exclusively_is_in_use_without_a_mount(node: Node, held: str) -> None:
    change(node, mounts={held: "raw"})
    with pytest.raises(InUseError, match=f"{held} is open exclusively, as for ZFS, LVM or a program"):
        bind_function(node.files, CountingClock(), NVME, ())


def test_a_use_with_a_name_is_given_once(node: Node) -> None:
    change(node, mounts={"nvme0n1p1": "/data"})
    assert host_uses(node.files, NVME) == ("nvme0n1p1 is mounted on /data",)


@pytest.mark.parametrize(
    ("failure", "phrase"),
    [
        (errno.EBUSY, "nvme2n1 is open exclusively, as for ZFS, LVM or a program of the host"),
        (errno.EIO, "whether nvme2n1 is in use is not known: Input/output error"),
        (errno.ENOENT, ""),
        (errno.ENOMEDIUM, ""),
        (None, ""),
    ],
    ids=["busy", "broken", "no-node", "no-medium", "free"],
)
def test_a_disk_is_opened_for_the_question_and_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int | None, phrase: str
) -> None:
    files = made(tmp_path, {"proc/1/mountinfo": "", "dev/nvme2n1": ""}, MULTIPATH)
    really_open, opened = os.open, []

    def opening(path: str, flags: int) -> int:
        if failure is not None:
            raise OSError(failure, os.strerror(failure), path)
        assert flags & os.O_EXCL
        assert not flags & os.O_ACCMODE, "it is opened to read"
        opened.append(really_open(path, flags))
        return opened[-1]

    monkeypatch.setattr(os, "open", opening)
    assert host_uses(files, NVME) == ((phrase,) if phrase else ())
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def made(root: Path, files: dict[str, str], links: dict[str, str]) -> RealFiles:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, target in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    return RealFiles(str(root))


MULTIPATH = {
    "sys/class/nvme/nvme3": "../../devices/pci0000:00/0000:00:01.0/0000:05:00.0/nvme/nvme3",
    "sys/class/block/nvme2n1": "../../devices/virtual/nvme-subsystem/nvme-subsys2/nvme2n1",
    "sys/class/nvme-subsystem/nvme-subsys2/nvme3": "../../../pci0000:00/0000:00:01.0/0000:05:00.0/nvme/nvme3",
}


def test_a_disk_of_a_multipath_subsystem_belongs_to_its_controllers(tmp_path: Path) -> None:
    mounts = "25 1 259:1 / /var/lib/longhorn\\040data rw - ext4 /dev/nvme2n1 rw\n"
    files = made(tmp_path, {"proc/1/mountinfo": mounts}, MULTIPATH)
    assert host_uses(files, NVME) == ("nvme2n1 is mounted on /var/lib/longhorn data",)
    assert host_uses(files, HBA) == ()


def test_a_root_disk_counts_by_its_number_where_its_name_is_another_one(tmp_path: Path) -> None:
    disk = "sys/devices/pci0000:00/0000:03:00.0/host0/block/sda"
    rows = {"proc/1/mountinfo": "25 1 8:2 / / rw - ext4 /dev/root rw\n", f"{disk}/sda2/dev": "8:2\n"}
    links = {f"sys/class/block/{name}": f"../../../{disk}/{path}" for name, path in {"sda": "", "sda2": "sda2"}.items()}
    assert host_uses(made(tmp_path, rows, links), HBA) == ("sda2 is mounted on /",)


@pytest.mark.parametrize(
    ("kind", "source", "links", "phrase"),
    [
        (
            "btrfs",
            "/dev/sdz",
            {"sys/fs/btrfs/9f2c/devices/nvme2n1": "../../../nvme2n1"},
            "nvme2n1 is part of the mounted btrfs file system 9f2c",
        ),
        ("bcachefs", "/dev/sdz:/dev/nvme2n1", {}, "nvme2n1 is mounted on /data"),
    ],
)
def test_each_disk_of_a_file_system_with_several_is_in_use(
    tmp_path: Path, kind: str, source: str, links: dict[str, str], phrase: str
) -> None:
    rows = {"proc/1/mountinfo": f"25 1 0:40 / /data rw - {kind} {source} rw\n"}
    assert host_uses(made(tmp_path, rows, MULTIPATH | links), NVME) == (phrase,)


def test_a_disk_that_a_program_drives_itself_is_in_use(tmp_path: Path) -> None:
    links = {f"sys/bus/pci/devices/{NVME}/driver": "../../../../bus/pci/drivers/uio_pci_generic"}
    assert host_uses(made(tmp_path, {}, links), NVME) == ("uio_pci_generic gives it to a program of the host",)


def test_mounts_that_cannot_be_seen_count_as_a_use(tmp_path: Path) -> None:
    links = {**MULTIPATH, "proc/self/ns/pid": "pid:[4026532000]"}
    (phrase,) = host_uses(made(tmp_path, {}, links), NVME)
    assert "are not known: processes of the host are hidden" in phrase


def test_an_ipv6_address_and_default_route_count_too(tmp_path: Path) -> None:
    zero = "0" * 32
    files = {
        "proc/1/net/route": "Iface\tDestination\n",
        "proc/1/net/ipv6_route": f"{zero} 00 {zero} 00 {zero} 00000400 00000001 00000000 00000003     eth9\n",
        "proc/1/net/if_inet6": "fd000000000000000000000000000007 02 40 00 80     eth8\n",
    }
    device = "../../devices/pci0000:00/0000:00:01.0/{}/net/{}"
    links = {
        "sys/class/net/eth8": device.format(NIC, "eth8"),
        "sys/class/net/eth9": device.format(UPLINK, "eth9"),
    }
    found = made(tmp_path, files, links)
    assert host_uses(found, UPLINK) == ("its interface eth9 has the default route",)
    assert host_uses(found, NIC) == ("its interface eth8 has the host's address fd00::7",)
    assert host_uses(found, NIC, ("fd00::7",)) == ("its interface eth8 has the node's address fd00::7",)


FABRIC = "its interface eth8 has the host's"


@pytest.mark.parametrize(
    ("routes", "routes6", "addresses6", "users"),
    [
        ("eth8\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF", "", "", (f"{FABRIC} route to 192.168.1.0/24",)),
        ("", f"fd01{'0' * 28} 40 {'0' * 32} 00 {'0' * 32} 100 1 0 1 eth8", "", (f"{FABRIC} route to fd01::/64",)),
        ("", "", f"fd01{'0' * 27}9 02 40 00 80 eth8", (f"{FABRIC} address fd01::9",)),
        (
            "eth8\t0000FEA9\t00000000\t0001\t0\t0\t0\t0000FFFF",
            f"fe80{'0' * 28} 40 {'0' * 32} 00 {'0' * 32} 100 1 0 1 eth8\n"
            f"ff{'0' * 30} 08 {'0' * 32} 00 {'0' * 32} 100 1 0 1 eth8",
            f"fe80{'0' * 27}9 02 40 20 80 eth8",
            (),
        ),
    ],
    ids=["route", "route6", "address6", "link-local"],
)
def test_a_card_with_another_network_of_the_host_is_in_use(
    tmp_path: Path, routes: str, routes6: str, addresses6: str, users: tuple[str, ...]
) -> None:
    """It may carry the host's storage: iSCSI, NFS."""
    rows = {"route": f"Iface\tDestination\n{routes}\n", "ipv6_route": routes6, "if_inet6": addresses6}
    link = {"sys/class/net/eth8": f"../../devices/pci0000:00/0000:00:01.0/{NIC}/net/eth8"}
    found = made(tmp_path, {f"proc/1/net/{name}": text for name, text in rows.items()}, link)
    assert host_uses(found, NIC) == users


@pytest.mark.parametrize(
    ("kind", "driver", "users"),
    [
        ("0x020000", "mlx5_core", ("mlx5_core drives it, and no interface of the host shows: a pod may have it",)),
        ("0x020000", "vfio-pci", ()),
        ("0x020700", "mlx5_core", ()),
        ("0x010802", "nvme", ()),
    ],
    ids=["pod", "vm", "infiniband", "disk"],
)
def test_a_card_whose_interface_a_pod_has_is_in_use(
    tmp_path: Path, kind: str, driver: str, users: tuple[str, ...]
) -> None:
    links = {f"sys/bus/pci/devices/{VF}/driver": f"../../../../bus/pci/drivers/{driver}"}
    files = made(tmp_path, {f"sys/bus/pci/devices/{VF}/class": f"{kind}\n"}, links)
    assert host_uses(files, VF) == users


class Modprobe:
    """The host's programs. ``run`` loads the driver as modprobe does."""

    location = "the test"

    def __init__(self, drivers: Path) -> None:
        self.drivers = drivers
        self.commands: list[tuple[str, ...]] = []

    def run(self, command: Sequence[str], timeout_s: float) -> ProgramResult:
        self.commands.append(tuple(command))
        (self.drivers / "vfio-pci").mkdir(parents=True)
        return ProgramResult(0)


def test_the_vfio_driver_is_loaded_once_where_nothing_else_does(tmp_path: Path) -> None:
    files, programs = RealFiles(str(tmp_path)), Modprobe(tmp_path / "sys/bus/pci/drivers")
    for _ in range(2):
        load_vfio(files, programs)
    assert programs.commands == [("modprobe", "vfio-pci")]


def test_a_host_without_the_vfio_driver_says_how_to_load_it(tmp_path: Path) -> None:
    group = {f"sys/bus/pci/devices/{NIC}/iommu_group": "../../../../kernel/iommu_groups/7"}
    with pytest.raises(BlockedError, match="vfio-pci is not loaded") as refused:
        bind_function(made(tmp_path, {}, group), CountingClock(), NIC, ())
    assert (refused.value.code, refused.value.next_step) == (
        "NO_VFIO",
        "modprobe vfio-pci on the node; Aliquot then continues by itself",
    )
