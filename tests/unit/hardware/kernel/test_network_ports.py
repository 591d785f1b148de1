"""Network ports: which can have virtual functions, what uses them, and the change of their number."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from aliquot.core.model.peripherals import NetworkFunction, NetworkPort
from aliquot.errors import HardwareError
from aliquot.hardware.kernel.network_ports import scan_ports, set_functions

from .tree import DEVICES, Tree

PF, VF = "0000:06:00.0", "0000:06:00.2"
NUMVFS = f"{DEVICES}/{PF}/sriov_numvfs"
ROUTES = "Iface\tDestination\tGateway\n{}\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"


class Port(Tree):
    """A port with one virtual function. ``refused`` are the numbers that its driver refuses."""

    refused: tuple[str, ...] = ()

    def write(self, path: str, text: str) -> None:
        if path == NUMVFS:
            if text in self.refused:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            if text != "0" and self.read(path) != "0":
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        super().write(path, text)


@pytest.fixture
def tree(tmp_path: Path) -> Port:
    tree = Port(tmp_path)
    for address, interface in ((PF, "ens6f0np0"), (VF, "ens6f0v0")):
        tree.folder(f"{DEVICES}/{address}/net/{interface}")
        tree.tie(f"/sys/class/net/{interface}", f"../../..{DEVICES}/{address}/net/{interface}")
        tree.tie(f"{DEVICES}/{address}/driver", "../../../../bus/pci/drivers/mlx5_core")
    tree.put(f"{DEVICES}/{PF}/sriov_totalvfs", "8\n")
    tree.put(NUMVFS, "1")
    tree.tie(f"{DEVICES}/{PF}/virtfn0", f"../{VF}")
    tree.folder("/sys/class/net/lo")
    tree.folder(f"{DEVICES}/0000:04:00.0/net/eno1")  # without SR-IOV
    tree.tie("/sys/class/net/eno1", f"../../..{DEVICES}/0000:04:00.0/net/eno1")
    tree.put("/proc/1/net/route", ROUTES.format("eno1"))
    return tree


def test_only_ports_that_can_have_functions_are_listed(tree: Tree) -> None:
    assert scan_ports(tree) == (NetworkPort("ens6f0np0", PF, 8, (NetworkFunction(VF),)),)


@pytest.mark.parametrize("above", ["mgmt-bo", "ens6f0np0.100"])
def test_a_bond_or_a_vlan_above_a_port_is_traffic(tree: Tree, above: str) -> None:
    tree.tie(f"/sys/class/net/ens6f0np0/upper_{above}", f"../{above}")
    assert [port.traffic for port in scan_ports(tree)] == [f"its interface ens6f0np0 is part of {above}"]


def test_the_default_route_or_the_nodes_address_is_traffic(tree: Tree) -> None:
    assert [port.traffic for port in scan_ports(tree)] == [""]
    tree.put("/proc/1/net/route", ROUTES.format("ens6f0np0"))
    assert [port.traffic for port in scan_ports(tree)] == ["its interface ens6f0np0 has the default route"]
    tree.put("/proc/1/net/route", "Iface\n")
    tree.put("/proc/1/net/if_inet6", f"2001{'0' * 27}1 02 40 00 80 ens6f0np0\n")
    found = scan_ports(tree, ("2001::1",))
    assert [port.traffic for port in found] == ["its interface ens6f0np0 has the node's address 2001::1"]


def test_what_uses_a_function(tree: Tree) -> None:
    def user() -> str:
        return scan_ports(tree)[0].functions[0].user

    tree.tie("/sys/class/net/ens6f0v0/upper_br0", "../br0")
    assert user() == "its interface ens6f0v0 is part of br0"
    os.unlink(f"{tree.root}/sys/class/net/ens6f0v0")
    assert user() == "driver mlx5_core, and no interface of the host", "a pod has its interface"
    os.unlink(f"{tree.root}{DEVICES}/{VF}/driver")
    assert user() == ""


def test_another_network_of_the_host_keeps_a_function_but_not_its_port(tree: Tree) -> None:
    """Virtual functions of a port can be made beside its own addresses; a change removes all that exist."""
    row = "{}\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    tree.put("/proc/1/net/route", f"Iface\n{row.format('ens6f0np0')}{row.format('ens6f0v0')}")
    (port,) = scan_ports(tree)
    assert port.traffic == ""
    assert port.functions[0].user == "its interface ens6f0v0 has the host's route to 192.168.1.0/24"


def test_the_routes_are_read_once_for_all_functions(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 6):
        tree.tie(f"{DEVICES}/{PF}/virtfn{number}", f"../0000:06:01.{number}")
        tree.tie(f"/sys/class/net/ens6f0v{number}", f"../../..{DEVICES}/0000:06:01.{number}/net/ens6f0v{number}")
    read, paths = tree.read, list[str]()

    def reading(path: str) -> str:
        paths.append(path)
        return read(path)

    monkeypatch.setattr(tree, "read", reading)
    assert len(scan_ports(tree)[0].functions) == 6
    assert paths.count("/proc/1/net/route") == 1


@pytest.mark.parametrize("count", [0, 1, 8])
def test_the_number_changes_over_zero(tree: Port, count: int) -> None:
    set_functions(tree, PF, count)
    assert tree.read(NUMVFS) == str(count)


def test_a_refused_number_leaves_the_earlier_one(tree: Port) -> None:
    tree.refused = ("4",)
    with pytest.raises(HardwareError, match=r"refuses 4 virtual functions: No space left.*the earlier 1 are set again"):
        set_functions(tree, PF, 4)
    assert tree.read(NUMVFS) == "1"
    tree.refused = ("4", "1")
    with pytest.raises(HardwareError, match="the earlier 1 could not be set again"):
        set_functions(tree, PF, 4)
    tree.refused = ("0",)
    tree.put(NUMVFS, "1")
    with pytest.raises(HardwareError, match=r"refuses 0 virtual functions: No space left on device$"):
        set_functions(tree, PF, 0)
