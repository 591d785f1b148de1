"""From the hardware to the kubelet: the node offers the devices that exist, and an XID removes one device."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.core.model.xids import XidPolicy
from aliquot.hardware.nvml.backend import NvmlBackend
from aliquot.kubernetes.gpu.device_resources import offer
from aliquot.node.connect import Connection, connect
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from system.kubelet.conftest import ONE_G, THREE_G, go, running, until
from system.kubelet.kubeletdouble import Container, Kubelet, Pod


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    state = str(tmp_path / "state")
    name = control.start(state, "a100-sxm4-40gb")
    SimClient(state, name).set_mode(0, True)
    with connect(name, state_dir=state) as found:
        if not isinstance(found.nvml, NvmlBackend):
            pytest.skip("no C compiler: the node's NVML library cannot be built")
        yield found
    control.stop(state)


def test_a_node_is_cut_again_and_falls_ill(connection: Connection, tmp_path: Path, kubelet: Kubelet) -> None:
    backend = connection.nvml
    assert isinstance(backend, NvmlBackend)
    node = SimClient(str(tmp_path / "state"), connection.node)
    health = backend.health(XidPolicy())

    def cut(*profiles: str) -> list[int]:
        return [node.create(0, profile) for profile in profiles]

    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:

            async def follow() -> None:
                inventory = backend.read()
                await plugins.publish(offer(inventory, backend.facts(), "mixed", unhealthy=health.poll(inventory)))

            ones = cut(*["1g.5gb"] * 7)
            await follow()
            await until(lambda: kubelet.allocatable == {ONE_G: 7})
            node.inject_fault("xid", gpu=0, code=95, instance=f"{ones[0]}/0")
            await follow()
            await until(lambda: (kubelet.capacity, kubelet.allocatable) == ({ONE_G: 7}, {ONE_G: 6}))
            ill = health.poll(backend.read())
            pod = Pod("p", (Container("main", {ONE_G: 6}),))
            given = (await asyncio.to_thread(kubelet.admit, pod))["main"].envs["NVIDIA_VISIBLE_DEVICES"].split(",")
            assert len(given) == 6
            assert not ill & set(given)
            for instance in ones:
                node.destroy(0, instance)
            cut("3g.20gb", "3g.20gb")
            await follow()
            await until(lambda: kubelet.allocatable == {ONE_G: 0, THREE_G: 2})
            assert health.active_xids == ()

    go(scenario)
