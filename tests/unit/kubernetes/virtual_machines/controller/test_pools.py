"""The controller of pools: it writes until nothing is left to do, and reads the VMs before it takes a vGPU away."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ForbiddenError, NotFoundError
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import FullList, ObjectChanged
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.kinds.vgpu_pools import POOL_FINALIZER, POOL_LABEL, VGPUPool
from aliquot.kubernetes.kinds.vm_claims import VmClaim
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers
from aliquot.kubernetes.virtual_machines.controller.pools import PoolController
from aliquot.metrics.controller_metrics import ControllerMetrics
from support.admissions import entry, instance, machine, resource_claim
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import merged

TYPE, RESOURCE, DEVICE = "NVIDIA A2-4Q", "nvidia.com/NVIDIA_A2-4Q", "n1-000001004"


class Server:
    """An API server that keeps objects by kind and name, and lists the VMs."""

    def __init__(self) -> None:
        self.objects: dict[tuple[type[Any], str], Any] = {}
        self.vms: dict[type[Any], tuple[Any, ...]] = {}
        self.lists: list[type[Any]] = []

    def put(self, kind: type[Any], name: str, **body: Any) -> Any:
        meta = {"name": name, "generation": 1, "resourceVersion": "1", **body.pop("metadata", {})}
        self.objects[kind, name] = msgspec.convert({"metadata": meta, **body}, kind)
        return self.objects[kind, name]

    async def patch(self, kind: type[Any], name: str, body: Any, *, subresource: str | None = None) -> Any:
        found = msgspec.to_builtins(self.objects[kind, name])
        after = merged(found, body)
        version = str(int(found["metadata"]["resourceVersion"]) + 1)
        after["metadata"]["resourceVersion"] = version
        self.objects[kind, name] = msgspec.convert(after, kind)
        return self.objects[kind, name]

    async def list(self, kind: type[Any], namespace: str) -> tuple[Any, ...]:
        self.lists.append(kind)
        return self.vms.get(kind, ())


class Site:
    """A controller whose caches have a pool with one device. ``rounds`` counts how often it asked for a round."""

    def __init__(self, *, held: bool = False, count: int = 1, **metadata: Any) -> None:
        self.server, self.rounds = Server(), 0
        device = self.server.put(
            VGPUDevice,
            DEVICE,
            metadata={"labels": {POOL_LABEL: "desk"}},
            spec={"enabled": True, "nodeName": "n1", "parentGPUDeviceAddress": "0000:01:00.0", "vGPUTypeName": TYPE},
            status={"configureVGPUTypeName": TYPE, "vGPUStatus": "vGPUConfigured"},
        )
        gpu = self.server.put(
            SRIOVGPUDevice, "n1-000001000", spec={"enabled": True, "nodeName": "n1", "address": "0000:01:00.0"}
        )
        pool = self.server.put(
            VGPUPool,
            "desk",
            metadata={"finalizers": [POOL_FINALIZER], **metadata},
            spec={"vGPUTypeName": TYPE, "count": count},
        )
        vms = (msgspec.convert(machine("vm", entry(DEVICE, RESOURCE)), VirtualMachine),)
        running = (msgspec.convert(instance("vm", "n1", entry(DEVICE, RESOURCE)), VirtualMachineInstance),)
        self.server.vms = {VirtualMachine: vms, VirtualMachineInstance: running}
        self.informers = VmClusterInformers(Informer(Node), Informer(SRIOVGPUDevice), lambda: None)
        for informer in self.informers.all_informers:
            informer.apply(FullList((), "1"))
        self.informers.resource_claims.apply(FullList((), "1"))
        self.informers.gpus.apply(FullList((gpu,), "1"))
        self.informers.vgpus.apply(FullList((device,), "1"))
        if held:
            self.informers.vms.apply(FullList(vms, "1"))
            self.informers.instances.apply(FullList(running, "1"))
        metrics, api = ControllerMetrics(), cast(Api, self.server)
        self.controller = PoolController(api, self.informers, metrics, self.wake, recheck_s=0.01)
        self.controller.pools.apply(FullList((pool,), "1"))
        self.rounds = 0

    def wake(self) -> None:
        self.rounds += 1

    async def work(self) -> None:
        """Run rounds as long as the controller asks for them."""
        await self.controller.run(lambda: True)
        for _ in range(8):
            if not self.rounds:
                return
            self.rounds = 0
            await self.controller.run(lambda: True)
        raise AssertionError("it does not come to rest")


def test_a_deleted_pool_goes_although_no_agent_writes_anything() -> None:
    site = Site(held=True, deletionTimestamp="2026-01-02T00:00:00Z")
    asyncio.run(site.work())
    assert site.server.objects[VGPUPool, "desk"].metadata.finalizers == ()
    assert site.server.objects[VGPUDevice, DEVICE].spec.enabled
    assert POOL_LABEL not in site.server.objects[VGPUDevice, DEVICE].metadata.labels


@pytest.mark.parametrize("count", [0, 1])
def test_it_lists_vms_before_it_disables_a_device(count: int) -> None:
    site = Site(count=count)
    asyncio.run(site.controller.run(lambda: True))
    assert site.server.objects[VGPUDevice, DEVICE].spec.enabled
    assert bool(site.server.lists) == (count == 0)


CLAIM = msgspec.convert(resource_claim("gpu", "virt-launcher-vm-x7k2p", function="0000:01:00.4"), VmClaim)


def claiming(**metadata: Any) -> Site:
    """Build a site without a VM that names the device, and with a claim that the watch does not show yet."""
    site = Site(count=0, **metadata)
    site.server.vms = {VmClaim: (CLAIM,)}
    return site


def test_it_lists_claims_before_it_disables_a_device() -> None:
    site = claiming()
    asyncio.run(site.controller.run(lambda: True))
    assert site.server.lists == [VirtualMachine, VirtualMachineInstance, VmClaim]
    assert site.server.objects[VGPUDevice, DEVICE].spec.enabled
    site.server.vms.clear()
    asyncio.run(site.controller.run(lambda: True))
    assert not site.server.objects[VGPUDevice, DEVICE].spec.enabled


def test_a_cluster_without_resource_claims_is_not_asked_for_them() -> None:
    site = claiming()
    site.informers.resource_claims.note_failure(NotFoundError("resourceclaims"))
    asyncio.run(site.controller.run(lambda: True))
    assert site.server.lists == [VirtualMachine, VirtualMachineInstance]
    assert not site.server.objects[VGPUDevice, DEVICE].spec.enabled


def test_pools_wait_until_claims_are_read_or_cannot_be() -> None:
    site = claiming()
    claims = site.informers.resource_claims
    claims.synced = False
    asyncio.run(site.controller.run(lambda: True))
    assert site.server.lists == []
    claims.note_failure(ForbiddenError("resourceclaims"))
    asyncio.run(site.controller.run(lambda: True))
    assert VmClaim in site.server.lists


def test_only_what_vms_use_by_claims_starts_a_round() -> None:
    woken: list[int] = []
    informers = VmClusterInformers(Informer(Node), Informer(SRIOVGPUDevice), lambda: woken.append(1))
    informers.resource_claims.apply(FullList((), "1"))
    woken.clear()
    pods = msgspec.convert(resource_claim("train", "job-x7k2p", uuid="MIG-1"), VmClaim)
    reserved = msgspec.convert(resource_claim("train", "job-x7k2p"), VmClaim)
    for claim in (pods, reserved):
        informers.resource_claims.apply(ObjectChanged(claim))
    assert len(woken) == 1  # it is new
    prepared = msgspec.structs.replace(CLAIM, status=CLAIM.status)
    informers.resource_claims.apply(
        ObjectChanged(msgspec.convert(resource_claim("gpu", "virt-launcher-vm-x7k2p"), VmClaim))
    )
    informers.resource_claims.apply(ObjectChanged(prepared))
    assert len(woken) == 3
    assert informers.snapshot().resource_claims == {reserved.key: reserved, CLAIM.key: CLAIM}


def test_a_pool_that_is_not_ready_is_looked_at_again() -> None:
    async def wait(site: Site) -> int:
        await site.work()
        await asyncio.sleep(0.2)
        return site.rounds

    assert asyncio.run(wait(Site(count=3))) == 1
    assert asyncio.run(wait(Site())) == 0
