"""Laws of the other vendors' functions on a node that moves between pcidevices and Aliquot.

A hand-over changes no driver and no request. A VM keeps its devices, and the host keeps its own.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from aliquot.kubernetes.kinds import harvester_names as names
from support.selection import parts
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON, One
from unit.kubernetes.virtual_machines.harvester.test_claim_objects import FINALIZER

GPU, DISK, UPLINK = "0000:08:00.0", "0000:03:00.0", "0000:04:00.0"
FREE = ("0000:04:00.1", "0000:05:00.0", "0000:06:00.2", "0000:02:00.0")
EVENTS = ("claim", "claim", "release", "vm", "reboot", "move", "move", "loop")
VFIO = "vfio-pci"


class Pcidevices:
    """A model of pcidevices for functions that are not GPUs, on the same objects and the same simulated hardware.

    Facts are from harvester/pcidevices bdd8025: pkg/controller/pcidevice and pcideviceclaim. Its writes know only its
    own fields. The host's own functions are never claimed here: it would take them.
    """

    def __init__(self, one: One) -> None:
        self.one = one

    def run(self) -> None:
        self._devices()
        for name, body in self.one.store.of("PCIDeviceClaim").items():
            if body["metadata"].get("deletionTimestamp"):
                self._remove(name, body)
            else:
                self._serve(name, body)
        self._devices()

    def _devices(self) -> None:
        for function in self.one.view().functions:
            name = self.one.name_of(function.address)
            if function.uplink or (function.virtual and not function.gpu):
                continue
            if name not in self.one.store.of("PCIDevice"):
                notes = {names.DRIVER_ANNOTATION: function.driver}
                head = {"metadata": {"name": name, "labels": {"nodename": self.one.name}, "annotations": notes}}
                self.one.store.create("PCIDevice", {**head, "spec": {}})
            status = {"address": function.address, "nodeName": self.one.name, "kernelDriverInUse": function.driver}
            ids = {"vendorId": function.vendor_id, "deviceId": function.device_id, "classId": function.class_id}
            resource = names.pci_resource(function.vendor, function.product, function.device_id)
            self.one.store.get("PCIDevice", name)["status"] = status | ids | {"resourceName": resource}

    def _serve(self, name: str, body: JSON) -> None:
        address = body["spec"]["address"]
        body["metadata"].setdefault("finalizers", [])
        if FINALIZER not in body["metadata"]["finalizers"]:
            body["metadata"]["finalizers"].append(FINALIZER)
        before = self._driver(address)
        if before != VFIO:
            if before:
                self._write(f"/sys/bus/pci/drivers/{before}/unbind", address)
            device = self.one.store.get("PCIDevice", name)["status"]
            with contextlib.suppress(FileExistsError):
                self._write("/sys/bus/pci/drivers/vfio-pci/new_id", f"{device['vendorId']} {device['deviceId']}")
            if self._driver(address) != VFIO:
                self._write("/sys/bus/pci/drivers/vfio-pci/bind", address)
        if not body.get("status", {}).get("passthroughEnabled"):
            body["status"] = {"passthroughEnabled": True, "kernelDriverToUnbind": before}

    def _remove(self, name: str, body: JSON) -> None:
        address = body["spec"]["address"]
        if self._driver(address) == VFIO:
            self._write("/sys/bus/pci/drivers/vfio-pci/unbind", address)
            first = self.one.store.get("PCIDevice", name)["metadata"]["annotations"].get(names.DRIVER_ANNOTATION)
            if first:
                self._write(f"/sys/bus/pci/drivers/{first}/bind", address)
        body["metadata"]["finalizers"].remove(FINALIZER)
        self.one.store.delete("PCIDeviceClaim", name)

    def _driver(self, address: str) -> str:
        return next(f.driver for f in self.one.view().functions if f.address == address)

    def _write(self, path: str, text: str) -> None:
        self.one.node.files.write(path, text)


class History:
    """A node, and which of the two controllers serves it."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.one = One("a2:mdev:host", directory, "n", GPU, all_devices=True)
        self.theirs, self.ours, self.chance = Pcidevices(self.one), chance.random() < 0.5, chance
        self.first = self.drivers()
        self.used, self.boots = "", 1
        self.story: list[str] = []
        self.serve()

    def serve(self) -> None:
        """Run the controller of the node until nothing changes."""
        if self.ours:
            self.one.settle()
        else:
            self.theirs.run()

    def drivers(self) -> dict[str, str]:
        return {f.address: f.driver for f in self.one.view().functions}

    def claimed(self) -> dict[str, JSON]:
        return {body["spec"]["address"]: body for body in self.one.store.of("PCIDeviceClaim").values()}

    def run(self, event: str) -> None:
        self.story.append(event)
        getattr(self, f"_{event}")()
        self.serve()
        self.check()

    def check(self) -> None:
        drivers, claimed = self.drivers(), self.claimed()
        wanted = {a for a, body in claimed.items() if not body["metadata"].get("deletionTimestamp")} | {self.used}
        for address in FREE:
            expected = VFIO if address in wanted else self.first[address]
            assert drivers[address] == expected, f"{address}: {self.story}"
        for address in (DISK, UPLINK, GPU):
            assert drivers[address] == self.first[address], f"{address}: {self.story}"

    def _claim(self) -> None:
        free = [address for address in FREE if address not in self.claimed()]
        if self.ours and self.chance.random() < 0.2:
            free = [a for a in (DISK, UPLINK) if a not in self.claimed()]
        if not free:
            return
        address = self.chance.choice(free)
        name = self.one.name_of(address)
        spec = {"address": address, "nodeName": "n", "userName": "admin"}
        self.one.store.create("PCIDeviceClaim", {"metadata": {"name": name}, "spec": spec})

    def _release(self) -> None:
        """Delete a claim. The webhooks of both refuse that while a VM uses it."""
        rows = [a for a in self.claimed() if a != self.used]
        if rows:
            self.one.store.delete("PCIDeviceClaim", self.one.name_of(self.chance.choice(sorted(rows))))

    def _vm(self) -> None:
        """Start a VM on a claimed function, or stop the VM."""
        if self.used:
            self.one.stop_vm()
            self.used = ""
            return
        ready = [a for a in self.claimed() if self.drivers()[a] == VFIO]
        if ready:
            self.used = self.chance.choice(sorted(ready))
            self.one.start_vm(self.used)

    def _reboot(self) -> None:
        if self.used:
            self.one.stop_vm()
        self.boots, self.used = self.boots + 1, ""
        self.one.reboot(self.boots)

    def _move(self) -> None:
        """Give the node to the other controller. A claim that we refused is deleted before pcidevices serves it."""
        for address in (DISK, UPLINK):
            if self.ours and address in self.claimed():
                self.one.store.delete("PCIDeviceClaim", self.one.name_of(address))
                self.one.settle()
        before = (self.drivers(), {a: body["spec"] for a, body in self.claimed().items()})
        self.ours = not self.ours
        self.serve()
        after = (self.drivers(), {a: body["spec"] for a, body in self.claimed().items()})
        assert before == after, self.story

    def _loop(self) -> None:
        """Run the controller once more: nothing changes."""
        before = self.drivers()
        self.serve()
        assert before == self.drivers(), self.story


@pytest.mark.parametrize("part", parts(12))
def test_a_node_moves_between_both_with_its_cards_and_machines(tmp_path: Path, part: int) -> None:
    seed = f"all devices {part}"
    chance = random.Random(seed)
    history = History(tmp_path, chance)
    try:
        for _ in range(25):
            history.run(chance.choice(EVENTS))
    except AssertionError as error:
        raise AssertionError(f"seed {seed!r}: {error}") from error
