"""Kubelets and agents that start and stop, in every order."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from aliquot.kubernetes.device_plugin.manager import DevicePlugins
from aliquot.kubernetes.gpu.device_resources import DeviceResource, ResourceOffer
from system.kubelet.conftest import ONE_G, QUICK, THREE_G, devices, go, offer, running, until
from system.kubelet.kubeletdouble import AdmissionError, Container, Kubelet, Pod

SOCKET = "aliquot-nvidia.com_mig-1g.5gb.sock"


def test_a_kubelet_that_restarts_gets_everything_again(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(7), threes=devices(1, kind="3g")))
            await until(lambda: kubelet.allocatable == {ONE_G: 7, THREE_G: 1})
            await plugins.publish(offer(ones=devices(7)))
            pod = Pod("a", (Container("main", {ONE_G: 2}),))
            await asyncio.to_thread(kubelet.admit, pod)
            for _ in range(2):
                await asyncio.to_thread(kubelet.restart)
                await until(lambda: kubelet.allocatable == {ONE_G: 7, THREE_G: 0})
            other = (await asyncio.to_thread(kubelet.admit, Pod("b", (Container("main", {ONE_G: 5}),))))["main"]
            assert "MIG-1g-0-0" not in other.envs["NVIDIA_VISIBLE_DEVICES"].split(",")
            await until(lambda: plugins.problem is None)

    go(scenario)


@pytest.mark.parametrize("turns", range(6))
def test_it_ends_whatever_happens_at_that_moment(root: Path, turns: int) -> None:
    async def scenario() -> None:
        plugins = DevicePlugins(str(root), timing=QUICK)
        task = asyncio.create_task(plugins.run())
        await asyncio.sleep(0.01)
        plugins._wake.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=1)
        task.cancel()
        await plugins.close()
        assert done

    go(scenario)


def test_a_kubelet_that_comes_later(root: Path) -> None:
    # Not even its directory exists at first.
    async def scenario() -> None:
        kubelet = Kubelet(root)
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(7)))
            await until(lambda: plugins.problem is not None)
            assert plugins.problem is not None
            assert "kubelet is unavailable" in plugins.problem
            await asyncio.to_thread(kubelet.start)
            await until(lambda: kubelet.allocatable == {ONE_G: 7})
            await until(lambda: plugins.problem is None)
            await asyncio.to_thread(kubelet.stop)
            await until(lambda: plugins.problem is not None)

    go(scenario)


def test_sockets_that_are_wiped_are_made_again(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(7)))
            await until(lambda: kubelet.allocatable == {ONE_G: 7})
            (kubelet.directory / SOCKET).unlink()
            await until((kubelet.directory / SOCKET).is_socket)

            def admitted() -> bool:
                with suppress(AdmissionError):  # until kubelet has the new socket
                    return bool(kubelet.admit(Pod("a", (Container("main", {ONE_G: 1}),)))["main"].envs)
                return False

            await until(admitted)
            await until(lambda: kubelet.allocatable == {ONE_G: 7})

    go(scenario)


def test_the_socket_of_a_killed_agent_is_taken_over(kubelet: Kubelet) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(kubelet.directory / SOCKET))
    left.close()

    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(7)))
            await until(lambda: kubelet.allocatable == {ONE_G: 7})

    go(scenario)


def test_an_agent_that_ends_leaves_no_socket_and_unhealthy_devices(root: Path) -> None:
    async def scenario() -> None:
        kubelet = Kubelet(root, grace_s=1.0)
        await asyncio.to_thread(kubelet.start)
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(7)))
            await until(lambda: kubelet.allocatable == {ONE_G: 7})
        assert not (kubelet.directory / SOCKET).exists()
        await until(lambda: (kubelet.capacity, kubelet.allocatable) == ({ONE_G: 7}, {ONE_G: 0}))
        await until(lambda: (kubelet.capacity, kubelet.allocatable) == ({ONE_G: 0}, {ONE_G: 0}))
        await asyncio.to_thread(kubelet.stop)

    go(scenario)


def test_a_new_agent_takes_over_while_the_old_one_still_runs(kubelet: Kubelet) -> None:
    # A rolling update: when the old agent ends, the kubelet disconnects the plugin that has the name, and the new one
    # registers again.
    async def scenario() -> None:
        async with running(kubelet.directory) as new:
            old = DevicePlugins(str(kubelet.directory), timing=QUICK)
            task = asyncio.create_task(old.run())
            await old.publish(offer(ones=devices(7)))
            await until(lambda: kubelet.allocatable == {ONE_G: 7})
            task.cancel()  # it answers, but does not defend its socket any more
            await new.publish(offer(ones=devices(4)))
            await until(lambda: kubelet.allocatable == {ONE_G: 4})
            await old.close()
            assert (kubelet.directory / SOCKET).is_socket(), "the old one removed the new one's socket"
            await until(lambda: not new.registered[ONE_G])
            await until(lambda: new.registered[ONE_G])
            await until(lambda: kubelet.allocatable == {ONE_G: 4})

    go(scenario)


def test_a_kubelet_that_does_not_answer_delays_nothing(root: Path) -> None:
    # A process accepts connections on kubelet.sock and never answers.
    async def scenario() -> None:
        directory = root / "device-plugins"
        directory.mkdir()
        silent = socket.socket(socket.AF_UNIX)
        silent.bind(str(directory / "kubelet.sock"))
        silent.listen()
        quick = type(QUICK)(poll=0.05, register=0.3, streamless=0.3, first_pause=0.02, longest_pause=0.1)
        plugins = DevicePlugins(str(directory), timing=quick)
        task = asyncio.create_task(plugins.run())
        await plugins.publish(offer(ones=devices(7)))
        await until(lambda: plugins.problem is not None)
        assert plugins.problem is not None
        assert "timed out" in plugins.problem
        task.cancel()
        await plugins.close()
        silent.close()

    go(scenario)


@pytest.mark.parametrize("name", ["nvidia.com", "kubernetes.io/gpu", "nvidia.com/bad name"])
def test_a_name_that_kubelet_refuses_is_reported(kubelet: Kubelet, name: str) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            await plugins.publish(ResourceOffer((DeviceResource(name, devices(1)),)))
            await until(lambda: plugins.problem is not None and "is invalid" in plugins.problem)
            assert kubelet.refused

    go(scenario)


def test_a_path_that_no_socket_can_have_is_reported(root: Path) -> None:
    async def scenario() -> None:
        directory = root / ("x" * 100)
        directory.mkdir()
        (directory / "kubelet.sock").touch()
        async with running(directory) as plugins:
            await plugins.publish(offer(ones=devices(1)))
            await until(lambda: plugins.problem is not None and "longer than" in plugins.problem)

    go(scenario)


def test_the_policy_can_be_distributed(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory, policy="distributed") as plugins:
            await plugins.publish(offer(ones=devices(14)))
            await until(lambda: kubelet.allocatable == {ONE_G: 14})
            got = []
            for n in range(4):
                options = await asyncio.to_thread(kubelet.admit, Pod(f"p{n}", (Container("main", {ONE_G: 1}),)))
                got.append(options["main"].cdi_devices[0].split("-")[2])
            assert got == ["0", "1", "0", "1"]

    go(scenario)
