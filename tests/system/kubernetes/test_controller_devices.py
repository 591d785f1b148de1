"""The leader's part for VMs against an API server: KubeVirt's settings, removed nodes, with the rights and policies of
the manifests.

Their webhooks are left out, since no server runs for them here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.leader_election import LeaseTiming
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.controller.controller import Controller, ControllerPace
from aliquot.kubernetes.gpu.names import RESERVED_ANNOTATION
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds import harvester_peripherals
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION, PCIDEVICES_RUNS
from support.cluster import Cluster
from support.kubevirt.players import SETTINGS, SETTINGS_NAMESPACE, VmCluster
from system.kubernetes.agent_rights import CONTROLLER, NS, ROOT, manifests

JSON = dict[str, Any]
MANIFESTS = ROOT / "kubernetes-machines"
API = "/apis/devices.harvesterhci.io/v1beta1"
PERIPHERALS = ("usbdevices", "usbdeviceclaims", "sriovnetworkdevices")
PLURALS = ("pcidevices", "pcideviceclaims", "sriovgpudevices", "vgpudevices", "migconfigurations", *PERIPHERALS)
QUICK = ControllerPace(
    LeaseTiming(lease_s=3, renew_s=2, retry_s=0.2), WatchTiming(refused_s=0.3, first_backoff_s=0.1), missing_s=1.0
)
Q, PF, VF = "nvidia.com/NVIDIA_A2-4Q", "0000:08:00.0", "0000:08:00.4"
ENTRY = {"mdevNameSelector": "NVIDIA A2-4Q", "resourceName": Q, "externalResourceProvider": True}
NIC = {"pciVendorSelector": "8086:10ed", "resourceName": "intel.com/82599", "externalResourceProvider": True}
UUID = "dd6772a8-7db8-4e96-9a73-f94c389d9bc3"


class Bed:
    """A cluster with both groups' kinds, and short methods for the writes of agents."""

    def __init__(self, cluster: Cluster, permitted: JSON | None = None) -> None:
        self.cluster = cluster
        cluster.apply(crds.all_definitions())
        VmCluster(cluster).install(permitted)
        for plural in PLURALS:
            cluster.wait(lambda p=plural: cluster.request("GET", f"{API}/{p}").status == 200, plural)  # type: ignore[misc]
        cluster.apply([each for each in manifests(MANIFESTS) if not each["kind"].endswith("WebhookConfiguration")])
        self.config = cluster.kubeconfig(NS, CONTROLLER)

    def node(self, name: str, standing: str = "Working") -> None:
        meta = {"name": name, "annotations": {DEVICES_ANNOTATION: json.dumps({"state": "x", "reason": standing})}}
        self.cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta})

    def make(self, plural: str, kind: str, name: str, spec: JSON, status: JSON, **meta: Any) -> None:
        body = {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": kind, "metadata": {"name": name, **meta}}
        self.cluster.must("POST", f"{API}/{plural}", body | ({} if plural == "usbdevices" else {"spec": spec}))
        if status:
            self.cluster.must("PATCH", f"{API}/{plural}/{name}/status", {"status": status})

    def gpu(self, node: str) -> None:
        """Create all objects of a node with one GPU, with a vGPU and a claim."""
        name, vf = names.object_name(node, PF), names.object_name(node, VF)
        where = {"nodeName": node}
        self.make("sriovgpudevices", "SRIOVGPUDevice", name, {"address": PF, "enabled": True} | where, {})
        self.make(
            *("migconfigurations", "MigConfiguration", name),
            {"enabled": False, "gpuAddress": PF, "profileSpec": [{"id": 19, "name": "MIG 1g.5gb", "requested": 0}]}
            | where,
            {},
        )
        self.make("pcidevices", "PCIDevice", vf, {}, {"address": VF, "vendorId": "10de", "deviceId": "25b6"} | where)
        spec = {"address": VF, "userName": "admin"} | where
        self.make("pcideviceclaims", "PCIDeviceClaim", vf, spec, {}, finalizers=[names.CLAIM_FINALIZER])
        self.vgpu(node)

    def vgpu(self, node: str, named: str = "NVIDIA A2-4Q") -> None:
        spec = {"address": VF, "enabled": True, "parentGPUDeviceAddress": PF, "vGPUTypeName": named}
        status = {"configureVGPUTypeName": named, "uuid": UUID, "vGPUStatus": names.CONFIGURED}
        self.make("vgpudevices", "VGPUDevice", names.object_name(node, VF), spec | {"nodeName": node}, status)

    def peripherals(self, node: str) -> None:
        """Create the objects of a node with a claimed USB device and a network port, as its agent writes them."""
        name, where = f"{node}-0951-1666-001002", {"nodeName": node}
        ready = {"type": "Ready", "status": "True", "reason": "Present", "message": "", "lastTransitionTime": None}
        status = {"vendorID": "0951", "productID": "1666", "resourceName": f"kubevirt.io/{name}", "enabled": True}
        self.make("usbdevices", "USBDevice", name, {}, status | where | {"conditions": [ready]})
        keep = [harvester_peripherals.USB_FINALIZER]
        self.make("usbdeviceclaims", "USBDeviceClaim", name, {"userName": "admin"}, where, finalizers=keep)
        spec = {"address": "0000:06:00.0", "numVFs": 2} | where
        self.make("sriovnetworkdevices", "SRIOVNetworkDevice", f"{node}-ens6f0np0", spec, {})

    def objects(self) -> dict[str, list[str]]:
        """Return the names of the existing objects, by plural, including those that are being deleted."""
        found = {p: [i["metadata"]["name"] for i in self.cluster.get(f"{API}/{p}")["items"]] for p in PLURALS}
        return {plural: items for plural, items in found.items() if items}

    def permitted(self) -> Any:
        configuration = self.cluster.get(f"{SETTINGS}/kubevirt")["spec"].get("configuration", {})
        return configuration.get("permittedHostDevices")

    @asynccontextmanager
    async def controller(self, identity: str = "one") -> AsyncIterator[Controller]:
        async with Api.connect(str(self.config), namespace=NS) as api:
            controller = Controller(api, identity=identity, pace=QUICK, kubevirt_namespace=SETTINGS_NAMESPACE)
            task = asyncio.create_task(controller.run())
            try:
                yield controller
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def until(check: Callable[[], Any], what: str, timeout_s: float = 15) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while not check():
        assert loop.time() < end, f"waited {timeout_s} s for {what}"
        await asyncio.sleep(0.05)


async def settled(controller: Controller) -> int:
    """Return how many writes there were, once they have ended."""
    written = -1
    while written != controller.metrics.written:
        written = controller.metrics.written
        await asyncio.sleep(1.0)
    return written


def test_a_type_is_permitted_once_for_two_nodes_and_goes_with_the_last(cluster: Cluster) -> None:
    bed = Bed(cluster, {"pciHostDevices": [NIC]})
    for node in ("n1", "n2"):
        bed.node(node)
        bed.vgpu(node)

    async def main() -> None:
        async with bed.controller() as controller:
            await until(lambda: (bed.permitted() or {}).get("mediatedDevices") == [ENTRY], "the entry")
            assert bed.permitted()["pciHostDevices"] == [NIC]
            wrote = await settled(controller)
            cluster.must("DELETE", f"{API}/vgpudevices/{names.object_name('n1', VF)}")
            assert await settled(controller) == wrote
            cluster.must("DELETE", f"{API}/vgpudevices/{names.object_name('n2', VF)}")
            await until(lambda: bed.permitted()["mediatedDevices"] == [], "the entry to go")
            assert bed.permitted()["pciHostDevices"] == [NIC]

    asyncio.run(main())


def test_entries_that_pcidevices_repeated_are_one_again(cluster: Cluster) -> None:
    bed = Bed(cluster, {"mediatedDevices": [ENTRY, ENTRY, ENTRY], "pciHostDevices": [NIC, NIC]})
    bed.node("n1")
    bed.vgpu("n1")

    async def main() -> None:
        async with bed.controller() as controller:
            await until(lambda: bed.permitted()["mediatedDevices"] == [ENTRY], "one entry")
            assert bed.permitted()["pciHostDevices"] == [NIC, NIC]
            assert await settled(controller) == 1

    asyncio.run(main())


def test_a_removed_node_takes_its_objects_along_and_no_others(cluster: Cluster) -> None:
    # Claims included, whose finalizer only the agent of that node would have removed, and MigConfigurations too.
    bed = Bed(cluster)
    for node in ("n1", "n2"):
        bed.node(node)
        bed.gpu(node)
    foreign = ["example.com/keep"]
    claim = f"{API}/pcideviceclaims/{names.object_name('n1', VF)}"
    cluster.must("PATCH", claim, {"metadata": {"finalizers": [names.CLAIM_FINALIZER, *foreign]}})
    pf, vf = names.object_name("n2", PF), names.object_name("n2", VF)
    kept = {"pcidevices": [vf], "pcideviceclaims": [vf], "sriovgpudevices": [pf], "vgpudevices": [vf]}

    async def main() -> None:
        async with bed.controller() as controller:
            await settled(controller)
            assert len(bed.objects()["vgpudevices"]) == 2
            cluster.must("DELETE", "/api/v1/nodes/n1")
            expected = kept | {"migconfigurations": [pf], "pcideviceclaims": [names.object_name("n1", VF), vf]}
            await until(lambda: bed.objects() == expected, "everything of n1 to go but what others hold on to")
            assert cluster.get(claim)["metadata"]["finalizers"] == foreign
            cluster.must("PATCH", claim, {"metadata": {"finalizers": []}})
            await until(lambda: bed.objects() == kept | {"migconfigurations": [pf]}, "the claim")
            assert (bed.permitted() or {}).get("mediatedDevices") == [ENTRY]

    asyncio.run(main())


def test_usb_devices_are_permitted_and_go_with_their_node(cluster: Cluster) -> None:
    bed = Bed(cluster)
    for node in ("n1", "n2"):
        bed.node(node)
        bed.peripherals(node)

    def entry(node: str) -> JSON:
        selectors = [{"vendor": "0951", "product": "1666"}]
        resource = f"kubevirt.io/{node}-0951-1666-001002"
        return {"selectors": selectors, "resourceName": resource, "externalResourceProvider": True}

    async def main() -> None:
        async with bed.controller():
            await until(lambda: (bed.permitted() or {}).get("usb") == [entry("n1"), entry("n2")], "both entries")
            cluster.must("DELETE", "/api/v1/nodes/n1")
            await until(lambda: all(len(rows) == 1 for rows in bed.objects().values()), "the objects of n1 to go")
            await until(lambda: (bed.permitted() or {}).get("usb") == [entry("n2")], "the entry of n1 to go")

    asyncio.run(main())


def test_a_node_that_registers_again_keeps_its_objects(cluster: Cluster) -> None:
    bed = Bed(cluster)
    bed.node("n1")
    bed.gpu("n1")
    before = bed.objects()

    async def main() -> None:
        async with bed.controller() as controller:
            await settled(controller)
            cluster.must("DELETE", "/api/v1/nodes/n1")
            await asyncio.sleep(0.6 * QUICK.missing_s)
            bed.node("n1")
            await asyncio.sleep(2 * QUICK.missing_s)
            assert bed.objects() == before

    asyncio.run(main())


def test_beside_pcidevices_our_nodes_types_are_permitted_and_its_entries_stay(cluster: Cluster) -> None:
    # pcidevices serves n1: it wrote its own entries (twice) and knows only its own nodes.
    theirs = {"mdevNameSelector": "NVIDIA A2-8C", "resourceName": "nvidia.com/NVIDIA_A2-8C"} | {
        "externalResourceProvider": True
    }
    bed = Bed(cluster, {"mediatedDevices": [theirs, theirs]})
    bed.node("n1", PCIDEVICES_RUNS)
    bed.node("n2")
    bed.vgpu("n1", "NVIDIA A2-8C")
    bed.vgpu("n2")

    async def main() -> None:
        async with bed.controller() as controller:
            await until(lambda: bed.permitted()["mediatedDevices"] == [theirs, theirs, ENTRY], "ours beside theirs")
            cluster.must("DELETE", f"{API}/vgpudevices/{names.object_name('n2', VF)}")
            await until(lambda: bed.permitted()["mediatedDevices"] == [theirs, theirs], "ours to go")
            wrote = await settled(controller)
            bed.node("n1")
            await until(lambda: bed.permitted()["mediatedDevices"] == [theirs], "its turn")
            assert await settled(controller) == wrote + 1

    asyncio.run(main())


def test_two_controllers_write_once(cluster: Cluster) -> None:
    bed = Bed(cluster)
    bed.node("n1")

    async def main() -> None:
        async with bed.controller("one") as one, bed.controller("two") as two:
            await until(lambda: one.leader.is_leader or two.leader.is_leader, "a leader")
            bed.vgpu("n1")
            await until(lambda: (bed.permitted() or {}).get("mediatedDevices") == [ENTRY], "the entry")
            assert (await settled(one)) + (await settled(two)) == 1

    asyncio.run(main())


def test_another_controller_changes_kubevirts_settings_all_the_time(cluster: Cluster) -> None:
    # A write is bound to the version that was read, so no change of another writer is lost.
    bed = Bed(cluster)
    bed.node("n1")

    async def main() -> None:
        async with bed.controller():
            bed.vgpu("n1")
            for n in range(20):
                now = cluster.get(f"{SETTINGS}/kubevirt")
                rows = ((bed.permitted() or {}).get("pciHostDevices") or []) + [
                    NIC | {"resourceName": f"intel.com/{n}"}
                ]
                change = {"spec": {"configuration": {"permittedHostDevices": {"pciHostDevices": rows}}}}
                change["metadata"] = {"resourceVersion": now["metadata"]["resourceVersion"]}
                cluster.request("PATCH", f"{SETTINGS}/kubevirt", change)
                await asyncio.sleep(0.05)
            await until(lambda: bed.permitted().get("mediatedDevices") == [ENTRY], "the entry")
        written = [row["resourceName"] for row in bed.permitted()["pciHostDevices"]]
        assert written == sorted(set(written), key=written.index)
        assert len(written) >= 15

    asyncio.run(main())


@pytest.mark.parametrize("spoilt", ["{", "[]", '{"reason": 7}'])
def test_a_spoilt_annotation_of_a_node_stops_nothing(cluster: Cluster, spoilt: str) -> None:
    bed = Bed(cluster)
    meta = {"name": "n1", "annotations": {DEVICES_ANNOTATION: spoilt}}
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta})
    bed.vgpu("n1")

    async def main() -> None:
        async with bed.controller():
            await until(lambda: (bed.permitted() or {}).get("mediatedDevices") == [ENTRY], "the entry")

    asyncio.run(main())


def test_a_cluster_without_kubevirt_or_our_kinds_is_left_in_peace(cluster: Cluster) -> None:
    cluster.namespace("gpu-operator")
    cluster.namespace(SETTINGS_NAMESPACE)
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})

    async def main() -> None:
        async with Api.connect(str(cluster.kubeconfig()), namespace="gpu-operator") as api:
            controller = Controller(api, pace=QUICK, kubevirt_namespace=SETTINGS_NAMESPACE)
            task = asyncio.create_task(controller.run())
            await until(lambda: controller.vms is not None and controller.vms.informers.synced, "the world")
            assert controller.vms is not None
            assert controller.vms.informers.capacity().resources == {}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_containers_are_kept_off_a_claimed_gpu_and_let_on_again(cluster: Cluster) -> None:
    # After a reboot NVIDIA's driver has it first: a container that got it then would withhold it from its VM.
    bed = Bed(cluster)
    bed.node("n")
    name = names.object_name("n", PF)

    def reported() -> Any:
        return bed.cluster.get("/api/v1/nodes/n")["metadata"]["annotations"].get(RESERVED_ANNOTATION)

    async def main() -> None:
        async with bed.controller():
            spec = {"address": PF, "nodeName": "n", "userName": "admin"}
            bed.make("pcideviceclaims", "PCIDeviceClaim", name, spec, {})
            await until(lambda: reported() == PF, "the GPU to be reserved")
            bed.cluster.must("DELETE", f"{API}/pcideviceclaims/{name}")
            await until(lambda: reported() is None, "it to be free again")

    asyncio.run(main())
