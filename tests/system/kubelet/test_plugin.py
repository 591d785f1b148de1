"""Device plugins against a kubelet: registration, lists, allocations to containers, repartitions."""

from __future__ import annotations

import asyncio
import stat

import grpc
import pytest

from aliquot.kubernetes.device_plugin.errors import OfferError
from aliquot.kubernetes.device_plugin.manager import AllocationOptions
from aliquot.kubernetes.device_plugin.pod_resources import PodResourceUse, allocatable, list_uses
from aliquot.kubernetes.gpu.device_resources import DeviceResource, ResourceOffer
from system.kubelet.conftest import ONE_G, THREE_G, devices, go, offer, running, until
from system.kubelet.kubeletdouble import AdmissionError, Container, Kubelet, Pod
from system.kubelet.kubeletdouble.wire import Plugin


def pod(name: str, count: int = 1, resource: str = ONE_G) -> Pod:
    return Pod(name, (Container("main", {resource: count}),))


def test_seven_become_four_and_a_new_name_appears(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(7)))
            await until(lambda: kubelet.allocatable == {ONE_G: 7})
            await plugins.publish(offer(ones=devices(4), threes=devices(1, kind="3g")))
            await until(lambda: kubelet.allocatable == {ONE_G: 4, THREE_G: 1})
            assert kubelet.capacity == {ONE_G: 4, THREE_G: 1}
            assert plugins.registered == {ONE_G: True, THREE_G: True}
            await until(lambda: plugins.problem is None)

    go(scenario)


def test_a_withdrawn_resource_reads_zero_at_once_and_may_come_back(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(7)))
            await until(lambda: kubelet.capacity == {ONE_G: 7})
            await plugins.publish(offer())
            await until(lambda: kubelet.capacity == {ONE_G: 0})
            assert kubelet.allocatable == {ONE_G: 0}
            await plugins.publish(offer(ones=devices(2)))
            await until(lambda: kubelet.allocatable == {ONE_G: 2})

    go(scenario)


def test_what_a_container_gets(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(
            kubelet.directory, allocation=AllocationOptions(device_nodes=True, dev_root="/host")
        ) as plugins:
            await plugins.publish(offer(ones=devices(7)))
            await until(lambda: kubelet.allocatable == {ONE_G: 7})
            mine = pod("a", 2)
            got = (await asyncio.to_thread(kubelet.admit, mine))["main"]
            assert got.envs == {"NVIDIA_VISIBLE_DEVICES": "MIG-1g-0-0,MIG-1g-0-1"}
            assert got.cdi_devices == ("nvidia.com/gpu=MIG-1g-0-0", "nvidia.com/gpu=MIG-1g-0-1")
            assert got.annotations == {}
            assert got.devices[:3] == (
                ("/host/dev/nvidia0", "/dev/nvidia0", "rw"),
                ("/host/dev/nvidia-caps/nvidia-cap0", "/dev/nvidia-caps/nvidia-cap0", "rw"),
                ("/host/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap1", "rw"),
            )
            assert ("/host/dev/nvidiactl", "/dev/nvidiactl", "rw") in got.devices
            found = await list_uses(str(kubelet.pod_resources))
            assert found == (PodResourceUse("default", "a", "main", ONE_G, ("MIG-1g-0-0", "MIG-1g-0-1")),)
            assert set((await allocatable(str(kubelet.pod_resources)))[ONE_G]) == {d.id for d in devices(7)}

    go(scenario)


def test_each_way_to_give_a_device_can_be_chosen(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        how = AllocationOptions(cdi=False, env=False, cdi_annotations=True, cdi_kind="aliquot.dev/mig")
        async with running(kubelet.directory, allocation=how) as plugins:
            await plugins.publish(offer(ones=devices(7)))
            await until(lambda: kubelet.allocatable == {ONE_G: 7})
            got = (await asyncio.to_thread(kubelet.admit, pod("a")))["main"]
            assert (got.envs, got.cdi_devices, got.devices) == ({}, (), ())
            assert got.annotations == {"cdi.k8s.io/aliquot_mig-1g.5gb": "aliquot.dev/mig=MIG-1g-0-0"}

    go(scenario)


def test_pods_fill_one_gpu_before_the_next(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(14)))
            await until(lambda: kubelet.allocatable == {ONE_G: 14})
            got = [(await asyncio.to_thread(kubelet.admit, pod(f"p{n}")))["main"].cdi_devices[0] for n in range(8)]
            assert [name.split("-")[2] for name in got] == ["0"] * 7 + ["1"]

    go(scenario)


def test_an_unhealthy_device_is_shown_and_refused(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            sick = tuple(
                d if n else type(d)(d.id, d.gpu, d.paths, d.index, d.numa, False) for n, d in enumerate(devices(2))
            )
            await plugins.publish(offer(ones=sick))
            await until(lambda: kubelet.capacity == {ONE_G: 2})
            assert kubelet.allocatable == {ONE_G: 1}
            await asyncio.to_thread(refused, kubelet, ["MIG-1g-0-0"], grpc.StatusCode.FAILED_PRECONDITION, "unhealthy")

    go(scenario)


def refused(kubelet: Kubelet, ids: list[str], code: grpc.StatusCode, word: str) -> None:
    plugin = Plugin(str(kubelet.directory / "aliquot-nvidia.com_mig-1g.5gb.sock"))
    with pytest.raises(grpc.RpcError) as caught:
        plugin.allocate(ids)
    plugin.close()
    assert caught.value.code() == code
    assert word in caught.value.details()


def test_root_alone_can_open_its_sockets(kubelet: Kubelet) -> None:
    # A process that can connect could request devices as the kubelet does.
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(2)))
            await until(lambda: kubelet.allocatable == {ONE_G: 2})
            sockets = [path for path in kubelet.directory.glob("*.sock") if path.name != "kubelet.sock"]
            assert [stat.S_IMODE(path.stat().st_mode) for path in sockets] == [0o600]

    go(scenario)


def test_allocate_refuses_what_it_does_not_know(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(2)))
            await until(lambda: kubelet.allocatable == {ONE_G: 2})
            unknown = (grpc.StatusCode.NOT_FOUND, "repartitioned")
            await asyncio.to_thread(refused, kubelet, ["MIG-gone"], *unknown)
            wrong = (grpc.StatusCode.INVALID_ARGUMENT, "twice")
            await asyncio.to_thread(refused, kubelet, ["MIG-1g-0-0", "MIG-1g-0-0"], *wrong)
            await asyncio.to_thread(refused, kubelet, [], *wrong)

    go(scenario)


def test_a_held_device_is_not_passed_through_even_if_kubelet_has_not_heard(kubelet: Kubelet) -> None:
    # The race of a repartition: the kubelet chose before it saw the device become unhealthy.
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(2)))
            await until(lambda: kubelet.allocatable == {ONE_G: 2})
            mine = pod("early")
            await asyncio.to_thread(kubelet.admit, mine)
            ids = frozenset(d.id for d in devices(2))
            assert plugins.hold(ids) == {"MIG-1g-0-0"}, "it was given out just now"
            await asyncio.to_thread(
                refused, kubelet, ["MIG-1g-0-1"], grpc.StatusCode.UNAVAILABLE, "about to be destroyed"
            )
            await until(lambda: kubelet.allocatable == {ONE_G: 0})
            assert kubelet.capacity == {ONE_G: 2}
            with pytest.raises(AdmissionError, match="no healthy devices"):
                await asyncio.to_thread(kubelet.admit, pod("late"))
            await plugins.publish(offer(ones=devices(3)))
            await until(lambda: kubelet.allocatable == {ONE_G: 1})
            plugins.release()
            await until(lambda: kubelet.allocatable == {ONE_G: 3})

    go(scenario)


def test_an_equal_offer_is_not_sent_again(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            for _ in range(5):
                await plugins.publish(offer(ones=devices(7)))
                await until(lambda: kubelet.allocatable == {ONE_G: 7})
            await plugins.publish(offer(ones=devices(6)))
            await until(lambda: kubelet.allocatable == {ONE_G: 6})
            assert kubelet.manager.pushes == [(ONE_G, 7), (ONE_G, 6)]

    go(scenario)


def test_what_is_named_twice_is_refused(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            twice = ResourceOffer((DeviceResource(ONE_G, devices(2)), DeviceResource(THREE_G, devices(1))))
            with pytest.raises(OfferError, match="MIG-1g-0-0"):
                await plugins.publish(twice)
            with pytest.raises(OfferError, match=ONE_G):
                await plugins.publish(ResourceOffer((DeviceResource(ONE_G, ()), DeviceResource(ONE_G, ()))))

    go(scenario)


def test_an_unknown_method_is_answered_so_that_clients_understand(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            await plugins.publish(offer(ones=devices(1)))
            await until(lambda: kubelet.allocatable == {ONE_G: 1})

            def call() -> None:
                plugin = Plugin(str(kubelet.directory / "aliquot-nvidia.com_mig-1g.5gb.sock"))
                with pytest.raises(grpc.RpcError) as caught:
                    plugin.unknown()
                plugin.close()
                assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
                assert caught.value.details() == "unknown method"

            await asyncio.to_thread(call)

    go(scenario)
