"""The devices of other vendors in a simulated server, and what the host does with them.

Ids, drivers and interface names are those of the server in pcidevices' own test snapshot, an HPE ProLiant
(harvester/pcidevices, tests/snapshots). An NVMe disk and an SR-IOV network card are added.
"""

from __future__ import annotations

from typing import Final

from aliquot.sim.state import NeighbourState

MOUNTS: Final = {"sda1": "/boot", "sda2": "/", "sda3": "swap"}
ROUTE: Final = "mgmt-br"
"""The bridge of Harvester's management network, whose bond has the first network card."""
BUSES: Final = frozenset({2, 3, 4, 5, 6})
_FIRST_GROUP = 60


def functions() -> list[NeighbourState]:
    """Return the functions, each in its own IOMMU group."""
    found = [
        NeighbourState(
            "hpsa",
            address="0000:03:00.0",
            ids="103c:3239",
            board="103c:21c0",
            class_id="010400",
            blocks=["sda", "sda1", "sda2", "sda3"],
        ),
        _network("ixgbe", "0000:04:00.0", "8086:10fb", "eno49", master="mgmt-bo"),
        _network("ixgbe", "0000:04:00.1", "8086:10fb", "eno50"),
        NeighbourState(
            "nvme",
            address="0000:05:00.0",
            ids="144d:a80a",
            board="144d:a813",
            class_id="010802",
            blocks=["nvme0n1", "nvme0n1p1"],
        ),
        _network("mlx5_core", "0000:06:00.0", "15b3:101d", "ens6f0np0", total=8),
        _network("mlx5_core", "0000:06:00.2", "15b3:101e", "ens6f0v0", physfn="0000:06:00.0"),
        NeighbourState("xhci_hcd", address="0000:02:00.0", ids="8086:8d31", board="103c:8030", class_id="0c0330"),
    ]
    for number, each in enumerate(found):
        each.native, each.group = each.driver, _FIRST_GROUP + number
    return found


def _network(
    driver: str, address: str, ids: str, interface: str, *, master: str = "", physfn: str = "", total: int = 0
) -> NeighbourState:
    return NeighbourState(
        driver, address=address, ids=ids, interface=interface, master=master, physfn=physfn, total=total
    )
