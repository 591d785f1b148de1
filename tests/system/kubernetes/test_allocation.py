"""The VM's annotation lists its devices correctly, from its start over migration to its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from aliquot.core.model.inventory import Gpu
from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.device_plugin.pod_resources import PodResourceUse, list_uses
from aliquot.kubernetes.kinds.harvester_names import ALLOCATION_ANNOTATION, object_name
from aliquot.kubernetes.node_agent.device_offering import DeviceOffering
from aliquot.kubernetes.virtual_machines.agent import allocation
from aliquot.kubernetes.virtual_machines.agent.allocation import VmAllocationPublisher
from aliquot.kubernetes.virtual_machines.agent.launcher_devices import Environment
from aliquot.kubernetes.virtual_machines.harvester.device_offer import mdev_functions, offer
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects
from support.cluster import Cluster
from support.kubevirt.players import VmCluster, machines
from system.kubelet.conftest import go
from unit.kubernetes.virtual_machines.harvester.offered import address, make_gpu, replace, vgpus, view

A2_4Q, A2_4A, L40S_12Q = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-4A", "nvidia.com/NVIDIA_L40S-12Q"
PERMITTED = {
    "mediatedDevices": [
        {"mdevNameSelector": name.rpartition("_")[2], "resourceName": name, "externalResourceProvider": True}
        for name in (A2_4Q, A2_4A)
    ],
    "pciHostDevices": [{"pciVendorSelector": "10de:26b9", "resourceName": L40S_12Q, "externalResourceProvider": True}],
}


@pytest.fixture
def vm_cluster(cluster: Cluster) -> Iterator[VmCluster]:
    made = VmCluster(cluster)
    made.install(PERMITTED)
    yield made
    made.close()


class Side:
    """The agent's part on one node: plugins, and the VMs' annotations."""

    def __init__(self, vm_cluster: VmCluster, api: Api, name: str, *gpus: Gpu, first: int, env: bool = False) -> None:
        self.vm_cluster, self.api, self.name, self.gpus = vm_cluster, api, name, gpus
        self.node = vm_cluster.machines.get(name) or vm_cluster.node(name)
        self.offering = DeviceOffering(str(self.node.kubelet.directory))
        self.first = first
        self.allocations = self.fresh(env=env)

    def fresh(self, *, env: bool = False) -> VmAllocationPublisher:
        """Create the publisher of the annotations, as after a start of the agent."""
        asked = _silent if env else self._uses
        environment: Environment | None = self._env if env else None
        return VmAllocationPublisher(self.api, self.name, lambda: None, uses=asked, environment=environment)

    async def _uses(self) -> tuple[PodResourceUse, ...]:
        return await list_uses(str(self.node.kubelet.pod_resources))

    async def _env(self, pod: Pod) -> str:
        return self.node.launchers[pod.key].env

    @property
    def make_observation(self) -> tuple[NodeView, Objects]:
        seen, objects = replace(view(*self.gpus), node=self.name), {}
        for each in vgpus(*self.gpus).values():
            name = object_name(self.name, each.spec.address)
            spec = replace(each.spec, node_name=self.name)
            objects[name] = replace(each, metadata=replace(each.metadata, name=name), spec=spec)
        return seen, Objects(vgpus=objects)

    async def publish(self) -> None:
        seen, objects = self.make_observation
        groups = {uuid: self.first + n for n, uuid in enumerate(sorted(mdev_functions(seen.inventory)))}
        await self.offering.publish(offer(seen, objects, groups))

    async def keep(self) -> None:
        seen, objects = self.make_observation
        pods = await self.api.list(Pod, ALL_NAMESPACES, fields={"spec.nodeName": self.name})
        await self.allocations.sync(seen, objects, pods)

    async def close(self) -> None:
        await self.allocations.close()
        await self.offering.close()


async def _silent() -> tuple[PodResourceUse, ...]:
    return ()


@asynccontextmanager
async def sides(vm_cluster: VmCluster, *made: tuple[str, Gpu], env: bool = False) -> AsyncIterator[list[Side]]:
    async with Api.connect(str(vm_cluster.cluster.kubeconfig())) as api:
        found = [Side(vm_cluster, api, name, gpu, first=100 * n, env=env) for n, (name, gpu) in enumerate(made, 1)]
        try:
            for each in found:
                each.allocations.start()
                await each.publish()
            yield found
        finally:
            for each in found:
                await each.close()


async def kept(vm_cluster: VmCluster, all_sides: list[Side], true: Callable[[], object]) -> None:
    """Run all actors until something holds."""
    async with asyncio.timeout(40):
        while True:
            await asyncio.to_thread(vm_cluster.settle)
            for each in all_sides:
                await each.keep()
            if await asyncio.to_thread(true):
                return
            await asyncio.sleep(0.05)


def messages(vm_cluster: VmCluster, name: str = "vm") -> dict[str, dict[str, list[str]]] | None:
    text = vm_cluster.annotation(name, ALLOCATION_ANNOTATION)
    return json.loads(text) if text else None


def entries(vm_cluster: VmCluster, field: str = "gpus", name: str = "vm") -> list[str]:
    inside = vm_cluster.machine(name)["spec"]["template"]["spec"]["domain"]["devices"]
    return [each["name"] for each in inside.get(field, [])]


def test_a_machine_says_what_it_has_while_it_runs_and_its_spec_afterwards(vm_cluster: VmCluster) -> None:
    # Two equal vGPUs: one variable, two names. A stopped VM has nothing, and its spec names the previous devices.
    a2 = make_gpu("NVIDIA A2", ("4Q", 3), ("4Q", 10), ("4A", 2))

    async def scenario() -> None:
        async with sides(vm_cluster, ("node-0", a2)) as (side,):
            await asyncio.to_thread(vm_cluster.create, "vm", gpus=[A2_4Q, A2_4Q, A2_4A])
            await kept(vm_cluster, [side], lambda: messages(vm_cluster))
            qs = [object_name("node-0", address(n)) for n in (3, 10)]
            a = object_name("node-0", address(2))
            assert messages(vm_cluster) == {"gpus": {A2_4A: [a], A2_4Q: qs}}
            text = vm_cluster.annotation("vm", ALLOCATION_ANNOTATION)
            assert text == json.dumps({"gpus": {A2_4A: [a], A2_4Q: qs}}, separators=(",", ":")), "as Go writes it"
            assert entries(vm_cluster) == ["gpus0", "gpus1", "gpus2"], "while it runs its spec stays"

            await asyncio.to_thread(vm_cluster.stop, "vm")
            await kept(vm_cluster, [side], lambda: vm_cluster.instance("vm") is None and messages(vm_cluster) is None)
            assert entries(vm_cluster) == [*qs, a]
            assert side.allocations.error == ""

            await asyncio.to_thread(vm_cluster.start, "vm")
            await kept(vm_cluster, [side], lambda: messages(vm_cluster))

    go(scenario)


def test_with_vendor_vfio_the_same_by_addresses_and_from_the_launchers_environment(vm_cluster: VmCluster) -> None:
    l40s = make_gpu("NVIDIA L40S", ("12Q", 9), ("12Q", 1))

    async def scenario() -> None:
        async with sides(vm_cluster, ("node-0", l40s), env=True) as (side,):
            await asyncio.to_thread(vm_cluster.create, "vm", host_devices=[L40S_12Q])
            await kept(vm_cluster, [side], lambda: messages(vm_cluster))
            assert messages(vm_cluster) == {"hostdevices": {L40S_12Q: [object_name("node-0", address(1))]}}

    go(scenario)


def test_a_machine_that_moves_is_the_other_nodes_to_tell(vm_cluster: VmCluster) -> None:
    both = make_gpu("NVIDIA A2", ("4Q", 3)), make_gpu("NVIDIA A2", ("4Q", 5))
    objects = "node-0-000008007", "node-1-000008011"

    async def scenario() -> None:
        async with sides(vm_cluster, ("node-0", both[0]), ("node-1", both[1])) as found:
            await asyncio.to_thread(vm_cluster.create, "vm", gpus=[A2_4Q])
            await kept(vm_cluster, found, lambda: messages(vm_cluster))
            here = next(each for each in objects if messages(vm_cluster) == {"gpus": {A2_4Q: [each]}})
            there = next(each for each in objects if each != here)  # it started where a plugin was ready first
            vm_cluster.hold_migrations = True
            await asyncio.to_thread(vm_cluster.migrate, "vm")
            await kept(vm_cluster, found, lambda: len(vm_cluster.launchers("vm")) == 2)
            assert messages(vm_cluster) == {"gpus": {A2_4Q: [here]}}, "it still runs there"
            vm_cluster.hold_migrations = False
            await kept(vm_cluster, found, lambda: messages(vm_cluster) == {"gpus": {A2_4Q: [there]}})
            await asyncio.to_thread(vm_cluster.stop, "vm")
            await kept(vm_cluster, found, lambda: messages(vm_cluster) is None)
            assert entries(vm_cluster) == [there]

    go(scenario)


def test_a_guest_that_shuts_itself_down_holds_nothing_although_its_instance_stays(vm_cluster: VmCluster) -> None:
    async def scenario() -> None:
        async with sides(vm_cluster, ("node-0", make_gpu("NVIDIA A2", ("4Q", 3)))) as (side,):
            await asyncio.to_thread(vm_cluster.create, "vm", gpus=[A2_4Q], strategy="Once")
            await kept(vm_cluster, [side], lambda: messages(vm_cluster))
            await asyncio.to_thread(vm_cluster.power_off, "vm")
            await kept(vm_cluster, [side], lambda: messages(vm_cluster) is None)
            assert vm_cluster.phase("vm") == "Succeeded"

    go(scenario)


def test_a_machine_that_stopped_while_no_agent_ran_is_put_right_at_the_next_start(vm_cluster: VmCluster) -> None:
    async def scenario() -> None:
        async with sides(vm_cluster, ("node-0", make_gpu("NVIDIA A2", ("4Q", 3)))) as (side,):
            await asyncio.to_thread(vm_cluster.create, "vm", gpus=[A2_4Q])
            await kept(vm_cluster, [side], lambda: messages(vm_cluster))
            await side.allocations.close()
            await asyncio.to_thread(vm_cluster.stop, "vm")
            await asyncio.to_thread(vm_cluster.until, lambda: vm_cluster.instance("vm") is None)
            assert messages(vm_cluster), "nobody looked"
            side.allocations = side.fresh()
            side.allocations.start()
            await kept(vm_cluster, [side], lambda: messages(vm_cluster) is None)
            assert entries(vm_cluster) == ["node-0-000008007"]

    go(scenario)


def test_what_was_overwritten_is_written_again_and_foreign_notes_stay(
    vm_cluster: VmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "SWEEP_S", 0.0)

    def note(text: str | None) -> None:
        body = {"metadata": {"annotations": {ALLOCATION_ANNOTATION: text}}}
        vm_cluster.cluster.must("PATCH", f"{machines('default')}/vm", body)

    async def scenario() -> None:
        async with sides(vm_cluster, ("node-0", make_gpu("NVIDIA A2", ("4Q", 3)))) as (side,):
            await asyncio.to_thread(vm_cluster.create, "vm", gpus=[A2_4Q])
            await kept(vm_cluster, [side], lambda: messages(vm_cluster))
            right = {"gpus": {A2_4Q: ["node-0-000008007"]}}
            stale = json.dumps({"gpus": {A2_4Q: ["node-0-000008004"]}})
            for wrong in ("{", "[]", None, '{"gpus":{}}', stale):
                await asyncio.to_thread(note, wrong)
                await kept(vm_cluster, [side], lambda: messages(vm_cluster) == right)
            card_of_others = {"hostdevices": {"intel.com/82599": ["node-0-000001000"]}}
            await asyncio.to_thread(note, json.dumps(card_of_others))
            await kept(vm_cluster, [side], lambda: messages(vm_cluster) == right | card_of_others)

    go(scenario)


def test_a_machine_without_devices_and_one_of_another_node_are_left_alone(vm_cluster: VmCluster) -> None:
    other = {"hostdevices": {"nvidia.com/X": ["node-7-000008000"]}}

    async def scenario() -> None:
        async with sides(vm_cluster, ("node-0", make_gpu("NVIDIA A2", ("4Q", 3)))) as (side,):
            await asyncio.to_thread(vm_cluster.create, "vm")
            await asyncio.to_thread(vm_cluster.create, "far", strategy="Halted")
            body = {"metadata": {"annotations": {ALLOCATION_ANNOTATION: json.dumps(other)}}}
            await asyncio.to_thread(vm_cluster.cluster.must, "PATCH", f"{machines('default')}/far", body)
            await kept(vm_cluster, [side], lambda: vm_cluster.phase("vm") == "Running")
            await side.keep()
            assert messages(vm_cluster) is None
            assert messages(vm_cluster, "far") == other

    go(scenario)


def test_without_kubevirt_nothing_is_done_and_nothing_is_wrong(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with Api.connect(str(cluster.kubeconfig())) as api:
            kept_true = VmAllocationPublisher(api, "node-0", lambda: None)
            kept_true.start()
            await asyncio.sleep(0.3)
            await kept_true.sync(view(), Objects(), ())
            assert kept_true.error == ""
            await kept_true.close()

    go(scenario)


def test_kubelets_silence_is_reported_and_ends(vm_cluster: VmCluster) -> None:
    async def scenario() -> None:
        async with sides(vm_cluster, ("node-0", make_gpu("NVIDIA A2", ("4Q", 3)))) as (side,):
            await side.allocations.close()
            side.allocations = VmAllocationPublisher(
                side.api, "node-0", lambda: None, uses=lambda: list_uses("/nowhere/kubelet.sock", timeout_s=0.2)
            )
            side.allocations.start()
            await asyncio.to_thread(vm_cluster.create, "vm", gpus=[A2_4Q])
            await kept(vm_cluster, [side], lambda: side.allocations.error)
            assert "virtual machine default/vm: kubelet's pod resources" in side.allocations.error
            side.allocations._launchers._uses = side._uses
            await kept(vm_cluster, [side], lambda: messages(vm_cluster))
            assert side.allocations.error == ""

    go(scenario)
