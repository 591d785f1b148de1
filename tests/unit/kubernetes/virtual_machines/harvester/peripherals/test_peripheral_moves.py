"""Laws of a node that moves between pcidevices and Aliquot while USB devices come and go, and functions are set.

A hand-over changes neither a request nor a function. While Aliquot serves the node, each claim on a device that is
plugged in is offered and no other, a claim is never deleted, and functions that are claimed stay.
"""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest

from aliquot.kubernetes.virtual_machines.harvester.device_offer import offer
from support.selection import parts
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON, One
from unit.kubernetes.virtual_machines.harvester.peripherals.pcidevices_peripherals import (
    API_VERSION,
    PcidevicesPeripherals,
)

PORT, PF = "n-ens6f0np0", "0000:06:00.0"
EVENTS = ("plug", "plug", "unplug", "claim", "claim", "unclaim", "functions", "functions", "reboot", "move", "move")


class History:
    """A node, and which of the two controllers serves it."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.one = One("a2:mdev:host", directory, "n", "0000:08:00.0", peripherals=True)
        self.theirs = PcidevicesPeripherals(self.one)
        self.ours, self.chance, self.boots = chance.random() < 0.5, chance, 1
        self.story: list[str] = ["ours" if self.ours else "theirs"]
        self.serve()

    def serve(self) -> None:
        if self.ours:
            self.one.settle()
        else:
            self.theirs.run()

    def run(self, event: str) -> None:
        self.story.append(event)
        getattr(self, f"_{event}")()
        requested = self.claims()
        self.serve()
        if self.ours:
            assert requested == self.claims(), self.story
            self._check(requested)

    def claims(self) -> set[str]:
        """Return the claims that are not being deleted."""
        found = self.one.store.of("USBDeviceClaim").items()
        return {name for name, body in found if "deletionTimestamp" not in body["metadata"]}

    def _check(self, live: set[str]) -> None:
        found = offer(self.one.view(), self.one.store.typed(), {}).resources
        healthy = {each.devices[0].id for each in found if each.devices[0].healthy}
        assert {each.devices[0].id for each in found} == live & set(self.one.store.of("USBDevice")), self.story
        assert healthy == live & self.plugged(), self.story
        body = self.one.store.get("SRIOVNetworkDevice", PORT)
        assert len(self.functions()) == body["spec"]["numVFs"], self.story
        assert self.plugged() <= set(self.one.store.of("USBDevice")) <= self.plugged() | live, self.story

    def plugged(self) -> set[str]:
        return {self.theirs._name(each) for each in self.one._peripherals().usb}

    def functions(self) -> list[str]:
        return [each.address for port in self.one._peripherals().ports for each in port.functions]

    def requests(self) -> JSON:
        kinds = ("USBDeviceClaim", "SRIOVNetworkDevice")
        found = {key: body["spec"] for key, body in self.one.store.objects.items() if key[0] in kinds}
        return copy.deepcopy({f"{kind}/{name}": spec for (kind, name), spec in found.items()})

    def _plug(self) -> None:
        self.one.control("usb-plug", ids=self.chance.choice(("0951:1666", "1050:0407")))

    def _unplug(self) -> None:
        for device in self.chance.sample(self.one._peripherals().usb, min(1, len(self.one._peripherals().usb))):
            self.one.control("usb-unplug", path=device.path)

    def _claim(self) -> None:
        free = sorted(set(self.one.store.of("USBDevice")) - set(self.one.store.of("USBDeviceClaim")))
        for name in self.chance.sample(free, min(1, len(free))):
            meta = {"name": name}
            body = {"apiVersion": API_VERSION, "kind": "USBDeviceClaim", "metadata": meta}
            self.one.store.create("USBDeviceClaim", body | {"spec": {"userName": "admin"}})

    def _unclaim(self) -> None:
        found = sorted(self.one.store.of("USBDeviceClaim"))
        for name in self.chance.sample(found, min(1, len(found))):
            self.one.store.delete("USBDeviceClaim", name)

    def _functions(self) -> None:
        if self.ours or not self.functions():  # pcidevices writes another number without removing the functions first
            self.one.store.patch("SRIOVNetworkDevice", PORT, {"spec": {"numVFs": self.chance.randint(0, 8)}})
        else:
            self.one.store.patch("SRIOVNetworkDevice", PORT, {"spec": {"numVFs": 0}})

    def _reboot(self) -> None:
        self.boots += 1
        self.one.reboot(self.boots)

    def _move(self) -> None:
        """Move the node. pcidevices deletes the claims of devices that are unplugged: those are left out."""
        gone = set(self.one.store.of("USBDeviceClaim")) - self.plugged()
        before, functions = self.requests(), self.functions()
        self.ours = not self.ours
        self.serve()
        kept = {key: spec for key, spec in before.items() if self.ours or key.partition("/")[2] not in gone}
        assert self.requests() == kept, self.story
        assert self.functions() == functions, self.story


@pytest.mark.parametrize("seed", parts(8))
def test_a_node_moves_and_nothing_of_it_changes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    history = History(tmp_path, chance)
    for _ in range(25):
        history.run(chance.choice(EVENTS))
    print(f"seed {seed}: {' '.join(history.story)}")
