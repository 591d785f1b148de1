"""The device plugins with a kubelet: each test with the double and, if one can run, with a real kubelet.

Real containers get their device by CDI.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aliquot.kubernetes.device_plugin.manager import DevicePlugins, PluginTiming
from aliquot.kubernetes.device_plugin.pod_resources import allocatable, list_uses
from support.cluster_real import RealServer
from system.kubelet.conftest import ONE_G, THREE_G, devices, go, offer, running, until
from system.kubelet.kubeletdouble import AdmissionError, Container, Kubelet, Pod
from system.kubernetes.realnode import RealNode, why_not

TIMING = PluginTiming(poll=0.1, register=15.0, streamless=1.0, first_pause=0.05, longest_pause=1.0)
SCRIPT = (
    "busybox env > /out/{name}.new; busybox ls /dev > /out/{name}.dev; busybox mv /out/{name}.new /out/{name}.env; "
)


class Site:
    """A kubelet with one interface for both kinds. ``admit`` returns the environment that the container sees."""

    def __init__(self, kubelet: Kubelet | RealNode) -> None:
        self.kubelet = kubelet
        self.directory = kubelet.directory
        self.pod_resources = str(kubelet.pod_resources)
        self.restart: Callable[[], None] = kubelet.restart
        self._pods: dict[str, Pod] = {}

    @property
    def figures(self) -> tuple[dict[str, int], dict[str, int]]:
        return self.kubelet.capacity, self.kubelet.allocatable

    def admit(self, name: str, limits: dict[str, int]) -> dict[str, str]:
        if isinstance(self.kubelet, Kubelet):
            self._pods[name] = Pod(name, (Container("main", limits),))
            return self.kubelet.admit(self._pods[name])["main"].envs
        return self._admit_for_real(self.kubelet, name, limits)

    def _admit_for_real(self, node: RealNode, name: str, limits: dict[str, int]) -> dict[str, str]:
        node.create(name, limits, SCRIPT.format(name=name) + "exec busybox sleep 3600")
        path = node.out / f"{name}.env"

        def decided() -> bool:
            status = (node.pod(name) or {}).get("status", {})
            if status.get("phase") == "Failed":
                raise AdmissionError(f"{status.get('reason')}: {status.get('message')}")
            return path.exists()

        node.wait(decided, 60)
        return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)

    def remove(self, name: str) -> None:
        if isinstance(self.kubelet, Kubelet):
            self.kubelet.remove(self._pods.pop(name))
        else:
            self.kubelet.delete(name)


@pytest.fixture(scope="module")
def real_node(request: pytest.FixtureRequest) -> Iterator[RealNode]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    server: RealServer = request.getfixturevalue("real_server")
    folder = Path(tempfile.mkdtemp(prefix="node-"))
    node = RealNode(server, folder)
    _write_cdi(node)
    try:
        yield node
    finally:
        node.close()
        shutil.rmtree(folder, ignore_errors=True)


def _write_cdi(node: RealNode) -> None:
    """Write device files that no driver answers for, and the CDI entries of the tests' devices."""
    (node.folder / "dev").mkdir()
    found = []
    for n, device in enumerate([*devices(7), *devices(1, kind="3g")]):
        path = node.folder / "dev" / f"cap{n}"
        os.mknod(path, 0o600 | 0o020000, os.makedev(122, n))
        edits = {
            "env": [f"INJECTED={device.id}"],
            "deviceNodes": [{"path": f"/dev/{device.id}", "hostPath": str(path), "permissions": "rw"}],
        }
        found.append({"name": device.id, "containerEdits": edits})
    document = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": found}
    (node.cdi / "test.json").write_text(json.dumps(document))


@pytest.fixture(params=["double", "real"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    if request.param == "real":
        node: RealNode = request.getfixturevalue("real_node")
        yield Site(node)
        for pod in list((node.api.get("/api/v1/namespaces/default/pods") or {})["items"]):
            node.delete(pod["metadata"]["name"])
        return
    root = Path(tempfile.mkdtemp(prefix="kubelet-"))
    kubelet = Kubelet(root)
    kubelet.start()
    yield Site(kubelet)
    kubelet.stop()
    shutil.rmtree(root)


async def offered(site: Site, plugins: DevicePlugins, ones: int, threes: int = 0) -> None:
    """Offer so many devices and wait until the node has them."""
    await plugins.publish(offer(ones=devices(ones), threes=devices(threes, kind="3g")))
    requested = {ONE_G: ones, THREE_G: threes}
    await until(lambda: site.figures == (requested, requested), 60)


def test_seven_become_four(site: Site) -> None:
    async def scenario() -> None:
        async with running(site.directory, timing=TIMING) as plugins:
            await offered(site, plugins, 7)
            await offered(site, plugins, 4, 1)
            known = await allocatable(site.pod_resources)
            assert {name: len(ids) for name, ids in known.items()} == {ONE_G: 4, THREE_G: 1}

    go(scenario)


def test_a_pod_gets_its_device(site: Site) -> None:
    async def scenario() -> None:
        async with running(site.directory, timing=TIMING) as plugins:
            await offered(site, plugins, 7)
            seen = await asyncio.to_thread(site.admit, "alone", {ONE_G: 1})
            uuid = seen["NVIDIA_VISIBLE_DEVICES"]
            assert uuid == "MIG-1g-0-0", "the first of an idle node"
            if isinstance(site.kubelet, RealNode):
                assert seen["INJECTED"] == uuid
                inside = (site.kubelet.out / "alone.dev").read_text().split()
                assert [name for name in inside if name.startswith("MIG-")] == [uuid], "that device and no other"
            found = [u for u in await list_uses(site.pod_resources) if u.pod == "alone"]
            assert [(u.namespace, u.container, u.resource, u.devices) for u in found] == [
                ("default", "main", ONE_G, (uuid,))
            ]

    go(scenario)


def test_a_kubelet_that_restarts_knows_its_pods_and_gets_the_devices_again(site: Site) -> None:
    async def scenario() -> None:
        async with running(site.directory, timing=TIMING) as plugins:
            await offered(site, plugins, 7)
            first = await asyncio.to_thread(site.admit, "first", {ONE_G: 2})
            await asyncio.to_thread(site.restart)
            await until(lambda: plugins.registered == {ONE_G: True, THREE_G: True}, 30)
            await offered(site, plugins, 7)
            second = await asyncio.to_thread(site.admit, "second", {ONE_G: 5})
            both = [s["NVIDIA_VISIBLE_DEVICES"].split(",") for s in (first, second)]
            assert sorted(both[0] + both[1]) == sorted(d.id for d in devices(7)), "no device twice"

    go(scenario)


def test_a_held_device_is_not_allocated(site: Site) -> None:
    async def scenario() -> None:
        async with running(site.directory, timing=TIMING) as plugins:
            await offered(site, plugins, 2)
            plugins.hold(frozenset(d.id for d in devices(2)))
            with pytest.raises(AdmissionError, match=r"no healthy devices|about to be destroyed"):
                await asyncio.to_thread(site.admit, "late", {ONE_G: 1})
            await until(lambda: site.figures == ({ONE_G: 2, THREE_G: 0}, {ONE_G: 0, THREE_G: 0}), 30)
            plugins.release()
            await until(lambda: site.figures[1][ONE_G] == 2, 30)
            assert await asyncio.to_thread(site.admit, "later", {ONE_G: 2})

    go(scenario)


def test_an_agent_that_ends_takes_its_devices_out_of_use(site: Site) -> None:
    async def scenario() -> None:
        async with running(site.directory, timing=TIMING) as plugins:
            await offered(site, plugins, 7)
        await until(lambda: site.figures[1][ONE_G] == 0, 30)
        async with running(site.directory, timing=TIMING) as plugins:
            await offered(site, plugins, 7)

    go(scenario)
