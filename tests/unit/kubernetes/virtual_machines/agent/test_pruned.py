"""CRDs of other products may drop fields that the agent writes: it reports that, and does not write forever."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice
from aliquot.kubernetes.virtual_machines.agent.crd_pruning import RETRY_S, PrunedFields
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.agent.object_writer import ObjectWriter
from aliquot.kubernetes.virtual_machines.harvester.node_view import ObjectChange

KIND, NAME = "SRIOVGPUDevice", "n-000008000"


class Server:
    """An API server with one object. ``drops`` are the fields of a status that its CRD lacks."""

    def __init__(self) -> None:
        self.drops = {"conditions", "observedGeneration"}
        self.asked: list[set[str]] = []
        self.status: dict[str, Any] = {}

    async def patch(self, kind: object, name: str, body: dict[str, Any], *, subresource: str | None) -> SRIOVGPUDevice:
        assert subresource == "status"
        self.asked.append(set(body["status"]))
        status = self.status | {field: value for field, value in body["status"].items() if field not in self.drops}
        self.status = {field: value for field, value in status.items() if value is not None}
        return msgspec.convert({"metadata": {"name": name, "uid": "u"}, "status": self.status}, SRIOVGPUDevice)


class Bed:
    """A stub that also replaces the informer."""

    def __init__(self) -> None:
        self.now = 0.0
        self.api = Server()
        self._informer = Informer(SRIOVGPUDevice)
        self.writer = ObjectWriter(
            cast(NodeDeviceInformers, self), self._reported, lambda verb, kind: None, PrunedFields(lambda: self.now)
        )

    def informer(self, kind: str) -> Informer[SRIOVGPUDevice]:
        return self._informer

    async def _reported(self, previous: object, now: object) -> None: ...

    def observe(self, **status: object) -> bool:
        """Run one observation that should report this next to a condition. Return whether anything was written."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": str(self.now)}
        body = {"status": {"conditions": [ready], "observedGeneration": 1, **status}}
        self.writer.begin_round()
        return asyncio.run(self.writer.write([ObjectChange("status", KIND, NAME, body)]))


def test_what_is_dropped_is_not_written_at_each_look() -> None:
    bed = Bed()
    for bed.now in range(10):
        bed.observe()
    assert len(bed.api.asked) == 1


def test_it_says_what_is_lost_and_what_to_type() -> None:
    bed = Bed()
    assert bed.writer.error == ""
    bed.observe()
    assert "drop conditions, observedGeneration" in bed.writer.error
    assert bed.writer.error.endswith("kubectl apply --server-side --force-conflicts -f deploy/crds")


def test_what_the_definition_has_is_written_all_the_same() -> None:
    bed = Bed()
    bed.observe()
    assert bed.observe(vfAddresses=["0000:08:00.4"])
    assert bed.api.asked[-1] == {"vfAddresses"}
    assert bed.observe(vfAddresses=None), "and removed"


def test_it_is_whole_again_soon_after_the_definitions_are() -> None:
    bed = Bed()
    bed.observe()
    bed.now = RETRY_S
    bed.observe()
    assert len(bed.api.asked) == 2
    bed.api.drops = set()
    bed.now += RETRY_S - 1
    assert not bed.observe()
    bed.now += 1
    assert bed.observe()
    assert "conditions" in bed.api.status
    assert bed.writer.error == ""


def test_a_value_that_is_left_out_when_empty_is_not_lost() -> None:
    bed = Bed()
    bed.api.drops = set()
    bed.observe(vfAddresses=[], vGPUDevices=[])
    assert bed.writer.error == ""
