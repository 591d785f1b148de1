"""Tests of the simulated actors: they do what KubeVirt and Kubernetes do, on both API servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from aliquot.kubernetes.device_plugin.pod_resources import list_uses
from aliquot.kubernetes.gpu.device_resources import DeviceResource, ResourceDevice, ResourceOffer
from support.cluster import Cluster
from support.kubevirt.players import SETTINGS, VmCluster
from system.kubelet.conftest import go, running

RESOURCE = "nvidia.com/NVIDIA_A2-4Q"
PERMITTED = {
    "mediatedDevices": [
        {"mdevNameSelector": "NVIDIA A2-4Q", "resourceName": RESOURCE, "externalResourceProvider": True}
    ]
}


@pytest.fixture
def environment(cluster: Cluster) -> Iterator[VmCluster]:
    made = VmCluster(cluster)
    made.install(PERMITTED)
    yield made
    made.close()


def offered(count: int, first: int = 0) -> ResourceOffer:
    made = tuple(ResourceDevice(f"uuid-{first + n}", "0000:08:00.0", (), str(n), 0) for n in range(count))
    return ResourceOffer((DeviceResource(RESOURCE, made),))


async def settled(cluster_environment: VmCluster, true: Callable[[], object]) -> None:
    await asyncio.to_thread(cluster_environment.until, true)


def test_a_machine_starts_where_its_device_is_and_stops(environment: VmCluster) -> None:
    async def scenario() -> None:
        environment.node("node-0")
        node = environment.node("node-1")
        async with running(node.kubelet.directory) as plugins:
            await plugins.publish(offered(2))
            await asyncio.to_thread(environment.create, "vm", gpus=[RESOURCE, RESOURCE])
            await settled(environment, lambda: environment.phase("vm") == "Running")
            here = environment.launcher("vm")
            assert here.node == "node-1"
            assert here.environment == {"NVIDIA_VISIBLE_DEVICES": "uuid-0,uuid-1"}, "as the plugin of containers says"
            assert "NVIDIA_VISIBLE_DEVICES=uuid-0,uuid-1\n" in here.env
            found = await list_uses(str(node.kubelet.pod_resources))
            assert [(use.pod, use.devices) for use in found] == [(here.pod, ("uuid-0", "uuid-1"))]
            seen = environment.machine("vm")["status"]
            assert (seen["created"], seen["ready"], seen["printableStatus"]) == (True, True, "Running")
            instance = environment.instance("vm") or {}
            assert instance["status"]["nodeName"] == "node-1"

            await asyncio.to_thread(environment.stop, "vm")
            await settled(environment, lambda: environment.instance("vm") is None)
            assert environment.launchers("vm") == []
            assert await list_uses(str(node.kubelet.pod_resources)) == ()
            assert environment.machine("vm")["status"]["printableStatus"] == "Stopped"

            await asyncio.to_thread(environment.start, "vm")
            await settled(environment, lambda: environment.phase("vm") == "Running")
            await asyncio.to_thread(environment.delete, "vm")
            gone = f"{SETTINGS.rsplit('/namespaces', 1)[0]}/namespaces/default/virtualmachines/vm"
            await settled(environment, lambda: environment.cluster.request("GET", gone).status == 404)
            assert environment.instance("vm") is None

    go(scenario)


def test_what_is_not_permitted_does_not_start(environment: VmCluster) -> None:
    environment.node("node-0")
    environment.create("vm", gpus=["nvidia.com/NVIDIA_A2-8Q"], host_devices=["nvidia.com/GA107"])
    environment.settle()
    assert environment.phase("vm") == "Pending"
    assert "GPU nvidia.com/NVIDIA_A2-8Q is not permitted in permittedHostDevices" in environment.why("vm")
    assert "HostDevice nvidia.com/GA107 is not permitted" in environment.why("vm")
    environment.cluster.must(
        "PATCH", f"{SETTINGS}/kubevirt", {"spec": {"configuration": {"permittedHostDevices": None}}}
    )
    environment.until(lambda: "Insufficient" in environment.why("vm"), "KubeVirt permits all devices without a list")
    assert environment.machine("vm")["status"]["printableStatus"] == "ErrorUnschedulable"


def test_what_no_node_has_is_not_scheduled_until_one_has_it(environment: VmCluster) -> None:
    async def scenario() -> None:
        node = environment.node("node-0", {"zone": "a"})
        await asyncio.to_thread(environment.create, "vm", gpus=[RESOURCE], selector={"zone": "a"})
        await asyncio.to_thread(environment.create, "far", gpus=[RESOURCE], selector={"zone": "b"})
        await asyncio.to_thread(environment.settle)
        assert environment.why("vm") == f"0/1 nodes are available: 1 Insufficient {RESOURCE}."
        assert "didn't match Pod's node affinity" in environment.why("far")
        async with running(node.kubelet.directory) as plugins:
            await plugins.publish(offered(1))
            await settled(environment, lambda: environment.phase("vm") == "Running")
        assert environment.phase("far") == "Scheduling"

    go(scenario)


def test_during_a_migration_two_launchers_run(environment: VmCluster) -> None:
    async def scenario() -> None:
        nodes = [environment.node(f"node-{n}") for n in range(2)]
        async with (
            running(nodes[0].kubelet.directory) as one,
            running(nodes[1].kubelet.directory) as other,
        ):
            await one.publish(offered(1))
            await other.publish(offered(1, first=7))
            await asyncio.to_thread(environment.create, "vm", gpus=[RESOURCE])
            await settled(environment, lambda: environment.phase("vm") == "Running")
            source = environment.launcher("vm").node
            environment.hold_migrations = True
            await asyncio.to_thread(environment.migrate, "vm")
            await settled(environment, lambda: len(environment.launchers("vm")) == 2)
            assert (environment.instance("vm") or {})["status"]["nodeName"] == source
            environment.hold_migrations = False
            await settled(environment, lambda: len(environment.launchers("vm")) == 1)
            status = (environment.instance("vm") or {})["status"]
            assert status["nodeName"] == environment.launcher("vm").node != source
            assert status["migrationState"]["completed"] is True
            assert list(status["activePods"].values()) == [status["nodeName"]]

    go(scenario)


def test_a_guest_that_shuts_down_is_started_again(environment: VmCluster) -> None:
    async def scenario() -> None:
        node = environment.node("node-0")
        async with running(node.kubelet.directory) as plugins:
            await plugins.publish(offered(1))
            await asyncio.to_thread(environment.create, "vm", gpus=[RESOURCE])
            await settled(environment, lambda: environment.phase("vm") == "Running")
            first = environment.launcher("vm").pod
            await asyncio.to_thread(environment.power_off, "vm")
            await settled(
                environment, lambda: environment.phase("vm") == "Running" and environment.launcher("vm").pod != first
            )

    go(scenario)


def test_a_device_that_cannot_be_opened_fails_the_machine(environment: VmCluster) -> None:
    def broken(_launcher: object) -> None:
        raise ValueError("vfio 0000:08:00.4: failed to open /dev/vfio/90")

    async def scenario() -> None:
        node = environment.node("node-0", on_start=broken)
        async with running(node.kubelet.directory) as plugins:
            await plugins.publish(offered(1))
            await asyncio.to_thread(environment.create, "vm", gpus=[RESOURCE], strategy="Once")
            await settled(environment, lambda: environment.phase("vm") == "Failed")
            assert await list_uses(str(node.kubelet.pod_resources)) == ()

    go(scenario)
