"""The entries of claims about the devices that are prepared for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.client.errors import ConflictError, ForbiddenError
from aliquot.kubernetes.client.watch import FullList
from aliquot.kubernetes.dra.agent.claim_informer import ClaimInformer
from aliquot.kubernetes.dra.agent.claim_status import ClaimProblems, ClaimStatusWriter
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.plugin.claim_service import DeviceState
from aliquot.node.holders.prepared_claims import RecordedClaim, RecordedDevice
from unit.kubernetes.dra.agent.bench import run
from unit.kubernetes.dra.agent.test_claim_informer import DRIVER, made

POOL = "n1-aliquot"
MIG = RecordedDevice(("r",), POOL, "mig", "GPU-1", 19, "0:1", "MIG-1")
WHOLE = RecordedDevice(("s",), POOL, "whole", "GPU-2", uuid="GPU-2")
CLAIM = RecordedClaim("u1", "team", "train", "boot", (MIG, WHOLE))
PART = SimpleNamespace(profile_id=19, placement="0:1", compute_instances=[SimpleNamespace(uuid="MIG-1")])
FIRST = SimpleNamespace(identity="GPU-1", uuid="GPU-1", lost=False, instances=[PART])
SECOND = SimpleNamespace(identity="GPU-2", uuid="GPU-2", lost=False, instances=[])


def problems_with(*gpus: object, why: str | None = None, boot: str = "boot", **health: DeviceState) -> ClaimProblems:
    """Return the problems of a node with these GPUs. ``why`` is the reason for which the claim is not restored."""
    inventory: Any = SimpleNamespace(gpus=gpus)
    missing = {} if why is None else {"u1": why}
    return ClaimProblems(inventory, boot, missing, {(POOL, name): state for name, state in health.items()})


FINE = problems_with(FIRST, SECOND)
FOREIGN = {"driver": "nic.example.com", "pool": POOL, "device": "nic", "conditions": [{"observedGeneration": 3}]}
NEIGHBOUR = {"driver": DRIVER, "pool": "n2-aliquot", "device": "mig", "conditions": []}


class Server:
    """Keeps one claim. ``error`` is raised by the next write."""

    def __init__(self, *shown: dict[str, Any]) -> None:
        self.claim = made(("r", POOL, "mig"), ("s", POOL, "whole"))
        self.writes: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.now = 0.0
        api: Any = self
        self.claims = ClaimInformer(api, DRIVER, lambda pool: pool == POOL)
        self.writer = ClaimStatusWriter(api, self.claims, DRIVER, lambda: self.now)
        self.show(shown)

    def show(self, devices: Any) -> None:
        status = msgspec.structs.replace(self.claim.status, devices=tuple(devices))
        self.claim = msgspec.structs.replace(self.claim, status=status)
        self.claims.claims.apply(FullList((self.claim,), "1"))

    async def patch(self, kind: object, name: str, body: dict[str, Any], **words: str) -> ResourceClaim:
        assert (kind, name, words) == (ResourceClaim, "train", {"namespace": "team", "subresource": "status"})
        if self.error is not None:
            raise self.error
        self.writes.append(body)
        self.show(body["status"]["devices"])
        return self.claim

    def write(self, claim: RecordedClaim | None = CLAIM, problems: ClaimProblems = FINE) -> dict[str, Any]:
        """Run one cycle, and return our entries by device."""
        run(self.writer.write((claim,) if claim else (), problems))
        return {d["device"]: d for d in self.claim.status.devices if (d["driver"], d["pool"]) == (DRIVER, POOL)}


def condition(entry: dict[str, Any]) -> tuple[str, str, str]:
    (found,) = entry["conditions"]
    return found["status"], found["reason"], found["lastTransitionTime"]


def test_a_prepared_claim_shows_its_devices_and_is_written_once() -> None:
    server = Server(FOREIGN, NEIGHBOUR)
    shown = server.write()
    assert shown["mig"]["data"] == {"uuid": "MIG-1", "gpuUUID": "GPU-1", "placement": "0:1"}
    assert shown["whole"]["data"] == {"uuid": "GPU-2", "gpuUUID": "GPU-2"}
    assert [condition(shown[name]) for name in ("mig", "whole")] == [("True", "Prepared", "1970-01-01T00:00:00Z")] * 2
    server.now = 60.0
    server.write()
    server.show(reversed(server.claim.status.devices))  # another driver wrote: the order is not ours
    server.write()
    assert len(server.writes) == 1
    assert list(server.claim.status.devices).count(FOREIGN) == list(server.claim.status.devices).count(NEIGHBOUR) == 1
    assert set(server.writes[0]["metadata"]) == {"resourceVersion", "uid"}


@pytest.mark.parametrize(
    ("problems", "broken", "reason", "text"),
    [
        (problems_with(why="no GPU is left"), {"mig", "whole"}, "DeviceMissing", "no GPU is left"),
        (problems_with(FIRST, why=""), {"whole"}, "DeviceMissing", "Aliquot creates it again"),
        (problems_with(SECOND, why="it fell off the bus"), {"mig"}, "DeviceMissing", "fell off the bus"),
        (problems_with(FIRST, SECOND, why="busy", boot="next"), {"mig", "whole"}, "NotPrepared", "reboot: busy"),
        (problems_with(FIRST, SECOND, mig=DeviceState(False, "XID 79")), {"mig"}, "DeviceUnhealthy", "XID 79"),
        (problems_with(FIRST, SECOND, mig=DeviceState(True)), set(), "", ""),
    ],
)
def test_a_device_that_does_not_work_says_why_and_since_when(
    problems: ClaimProblems, broken: set[str], reason: str, text: str
) -> None:
    server = Server()
    server.write()
    server.now = 60.0
    shown = server.write(problems=problems)
    for name, entry in shown.items():
        bad = name in broken
        expected = ("False", reason, "1970-01-01T00:01:00Z") if bad else ("True", "Prepared", "1970-01-01T00:00:00Z")
        assert condition(entry) == expected
        assert not bad or text in entry["conditions"][0]["message"]
    server.now = 90.0
    assert server.write(problems=problems) == shown
    assert {condition(entry)[0] for entry in server.write().values()} == {"True"}


@pytest.mark.parametrize(
    ("device", "words"),
    [
        (RecordedDevice(("r",), POOL, "mig", "GPU-1", uuid="U", vm="A2-4Q", function="0000:08:00.4"), "0000:08:00.4"),
        (RecordedDevice(("r",), POOL, "mig", "GPU-1", uuid="U", vm="T4-4Q"), "U"),
    ],
)
def test_a_device_of_a_vm_is_named_as_the_vm_opens_it(device: RecordedDevice, words: str) -> None:
    shown = Server().write(msgspec.structs.replace(CLAIM, devices=(device,)))["mig"]
    assert shown["conditions"][0]["message"] == f"VMs of the claim get {device.vm} on {words}"
    assert shown["data"].get("function", "") == device.function


def test_a_released_claim_shows_nothing_of_ours() -> None:
    server = Server(FOREIGN)
    server.write()
    assert server.write(None) == {}
    assert server.claim.status.devices == (FOREIGN,)


def test_a_device_that_is_not_allocated_any_more_is_not_written() -> None:
    # The API server refuses entries of devices that are not allocated.
    server = Server()
    assert set(
        server.write(msgspec.structs.replace(CLAIM, devices=(WHOLE, msgspec.structs.replace(MIG, device="x"))))
    ) == {"whole"}


def test_a_refused_write_is_logged_once_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.error = ForbiddenError("cannot patch resourceclaims/driver")
    for _ in range(3):
        assert server.write() == {}
    assert [r.message for r in caplog.records].count(
        "claims do not show their devices: cannot patch resourceclaims/driver"
    ) == 1
    server.error = ConflictError("the object has been modified")
    assert server.write() == {}
    server.error = None
    assert len(server.write()) == 2
    assert len(caplog.records) == 1


def test_nothing_is_written_while_the_claims_are_not_known() -> None:
    server = Server()
    server.claims.claims.unavailable = "the API server does not answer"
    assert server.write() == {}
    assert not server.writes
