"""A launcher's container on a real kubelet: the variable, the files, and the address of a vGPU that the kubelet
allocated.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.kubernetes.device_plugin.allocate import AllocationOptions
from aliquot.kubernetes.device_plugin.manager import PluginTiming
from aliquot.kubernetes.device_plugin.pod_resources import list_uses
from aliquot.kubernetes.kinds.kubevirt import DeviceRequest, VmDevices
from aliquot.kubernetes.virtual_machines.harvester.device_offer import mdev_functions, offer
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects
from aliquot.kubernetes.virtual_machines.kubevirt.allocation import allocation_of
from aliquot.kubernetes.virtual_machines.kubevirt.launcher_pod import by_resource, devices
from support.cluster_real import RealServer
from system.kubelet.conftest import go, running, until
from system.kubernetes.realnode import RealNode, why_not
from unit.kubernetes.virtual_machines.harvester.offered import make_gpu, vgpus, view

RESOURCE = "nvidia.com/NVIDIA_A2-4Q"
TIMING = PluginTiming(poll=0.1, register=15.0, streamless=1.0, first_pause=0.05, longest_pause=1.0)
SCRIPT = "busybox find /dev/vfio > /out/{0}.dev; busybox cat /proc/1/environ > /out/{0}.new; "
SCRIPT += "busybox mv /out/{0}.new /out/{0}.env; "
"""A shell drops variables whose names have a hyphen, as these have. The container's first process still has them."""


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[RealNode]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    server: RealServer = request.getfixturevalue("real_server")
    folder = Path(tempfile.mkdtemp(prefix="node-"))
    made = RealNode(server, folder, "node-vm")
    for minor, name in enumerate(("vfio", "120", "121")):
        path = folder / "dev" / "vfio" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, 0o600 | 0o020000, os.makedev(122, minor))  # files without a driver
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_launcher_gets_its_vgpu_and_tells_which(node: RealNode) -> None:
    a2 = make_gpu("NVIDIA A2", ("4Q", 0), ("4Q", 1))
    seen, objects = view(a2, numa=None), Objects(vgpus=vgpus(a2))
    groups = {uuid: 120 + n for n, uuid in enumerate(sorted(mdev_functions(seen.inventory)))}
    by_uuid = {vgpu.uuid: vgpu.function for vgpu in a2.vgpus}

    async def scenario() -> None:
        how = AllocationOptions(dev_root=str(node.folder))
        async with running(node.directory, timing=TIMING, allocation=how) as plugins:
            await plugins.publish(offer(seen, objects, groups))
            await until(lambda: node.allocatable == {RESOURCE: 2}, 60)
            script = SCRIPT.format("virt-launcher-vm") + "exec busybox sleep 3600"
            await asyncio.to_thread(node.create, "virt-launcher-vm", {RESOURCE: 1}, script)
            reported = node.out / "virt-launcher-vm.env"
            await until(reported.exists, 60)
            found = by_resource(devices(reported.read_text()), [RESOURCE])
            (uuid,) = found[RESOURCE]
            inside = (node.out / "virt-launcher-vm.dev").read_text().split()
            assert sorted(inside) == ["/dev/vfio", f"/dev/vfio/{groups[uuid]}", "/dev/vfio/vfio"], "and no other group"
            given = {use.pod: {use.resource: use.devices} for use in await list_uses(str(node.pod_resources))}
            assert given["virt-launcher-vm"] == found, "kubelet and the launcher say the same"
            asked = VmDevices((DeviceRequest("gpu", RESOURCE),))
            assert allocation_of(asked, found, by_uuid).gpus == {RESOURCE: (by_uuid[uuid],)}
            await plugins.publish(offer(view(make_gpu("NVIDIA A2")), Objects(), {}))
            await until(lambda: node.allocatable == {RESOURCE: 0}, 60)
            await asyncio.to_thread(node.delete, "virt-launcher-vm")

    go(scenario)
