"""The agent's access to USB devices and network ports: numbers of functions with back-off, and what wakes it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aliquot.core.model.peripherals import NetworkPort, Peripherals
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.kinds.harvester_peripherals import SRIOVNetworkDevice, SRIOVNetworkDeviceSpec
from aliquot.kubernetes.virtual_machines.agent import peripherals
from aliquot.kubernetes.virtual_machines.agent.peripherals import HostPeripherals
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects
from unit.hardware.kernel.tree import DEVICES, Tree

PF, NAME = "0000:06:00.0", "n-ens6f0np0"
VIEW = NodeView("n", "boot", 0.0, peripherals=Peripherals(ports=(NetworkPort("ens6f0np0", PF, 8),)))
OBJECTS = Objects(
    network={NAME: SRIOVNetworkDevice(ObjectMeta(name=NAME), SRIOVNetworkDeviceSpec(PF, "n", 2))},
)


def port(tree: Tree) -> None:
    tree.folder(f"{DEVICES}/{PF}/net/ens6f0np0")
    tree.tie("/sys/class/net/ens6f0np0", f"../../..{DEVICES}/{PF}/net/ens6f0np0")
    tree.put(f"{DEVICES}/{PF}/sriov_totalvfs", "8")
    tree.put("/proc/1/net/route", "Iface\n")


def test_a_port_that_became_the_uplink_since_the_observation_is_left_alone(tmp_path: Path) -> None:
    """A round may first change GPUs for minutes."""
    tree = Tree(tmp_path)
    port(tree)
    tree.put(f"{DEVICES}/{PF}/sriov_numvfs", "0")
    tree.put("/proc/1/net/route", "Iface\nens6f0np0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
    host = HostPeripherals(lambda: tree, tuple)
    assert asyncio.run(host.apply(VIEW, OBJECTS)), "the next round reports it"
    assert (tree.read(f"{DEVICES}/{PF}/sriov_numvfs"), dict(host.results)) == ("0", {})


def test_a_number_is_set_once_and_a_refused_one_backs_off(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    host = HostPeripherals(lambda: tree, tuple)

    async def scenario() -> None:
        port(tree)
        assert await host.apply(VIEW, OBJECTS), "it was tried"
        assert "refuses 2 virtual functions" in host.results[PF].message
        assert not await host.apply(VIEW, OBJECTS), "it waits"
        assert host.wait_s is not None
        assert host.wait_s > 0
        assert not await host.apply(VIEW, Objects())
        assert not host.results
        tree.put(f"{DEVICES}/{PF}/sriov_numvfs", "0")
        assert await host.apply(VIEW, OBJECTS)
        assert (tree.read(f"{DEVICES}/{PF}/sriov_numvfs"), dict(host.results)) == ("2", {})

    asyncio.run(scenario())


def test_a_device_that_is_plugged_in_wakes_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peripherals, "WATCH_S", 0.01)
    tree, woken = Tree(tmp_path), asyncio.Event()
    tree.folder("/sys/bus/usb/devices/usb1")

    async def scenario() -> None:
        watch = asyncio.create_task(HostPeripherals(lambda: tree, tuple).watch(woken.set))
        await asyncio.sleep(0.1)
        assert not woken.is_set(), "nothing has changed"
        tree.put("/sys/bus/usb/devices/1-2/devnum", "4\n")
        await asyncio.wait_for(woken.wait(), 10)
        await asyncio.sleep(0.1)
        woken.clear()
        # plugged out and in between two looks: the same port, and another number
        tree.put("/sys/bus/usb/devices/1-2/devnum", "5\n")
        await asyncio.wait_for(woken.wait(), 10)
        watch.cancel()

    asyncio.run(scenario())
