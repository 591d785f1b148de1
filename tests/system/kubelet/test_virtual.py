"""Device plugins for VMs: allocations to a launcher, counts, withdrawal, a kubelet that restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aliquot.core.model.inventory import Gpu
from aliquot.core.model.peripherals import Peripherals, UsbDevice
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.device_plugin.pod_resources import list_uses
from aliquot.kubernetes.gpu.device_resources import ResourceOffer
from aliquot.kubernetes.kinds.harvester_peripherals import USBDevice, USBDeviceClaim, USBDeviceStatus
from aliquot.kubernetes.node_agent.device_offering import DeviceOffering
from aliquot.kubernetes.virtual_machines.harvester.device_offer import mdev_functions, offer
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects
from system.kubelet.conftest import go, until
from system.kubelet.kubeletdouble import AdmissionError, Container, Kubelet, Pod, RunOptions
from unit.kubernetes.virtual_machines.harvester.offered import NODE, address, make_gpu, replace, vgpus, view

A2_4A, A2_4Q, L40S_12A = "nvidia.com/NVIDIA_A2-4A", "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_L40S-12A"


def offered(*gpus: Gpu) -> ResourceOffer:
    seen = view(*gpus)
    groups = {uuid: 120 + n for n, uuid in enumerate(sorted(mdev_functions(seen.inventory)))}
    return offer(seen, Objects(vgpus=vgpus(*gpus)), groups)


@asynccontextmanager
async def offering(kubelet: Kubelet) -> AsyncIterator[DeviceOffering]:
    made = DeviceOffering(str(kubelet.directory))
    try:
        yield made
    finally:
        await made.close()


async def given(kubelet: Kubelet, name: str, **counts: int) -> RunOptions:
    resources = {"a2_4a": A2_4A, "a2_4q": A2_4Q, "l40s": L40S_12A}
    pod = Pod(name, (Container("compute", {resources[word]: n for word, n in counts.items()}),))
    return (await asyncio.to_thread(kubelet.admit, pod))["compute"]


def test_a_launcher_gets_variables_and_files_and_nothing_of_containers(kubelet: Kubelet) -> None:
    # Two equal vGPUs and another one in a VM: one variable with both ids, each file once.
    card_of_two = make_gpu("NVIDIA A2", ("4A", 0), ("4A", 2), ("4Q", 5))

    async def scenario() -> None:
        async with offering(kubelet) as plugins:
            await plugins.publish(offered(card_of_two))
            await until(lambda: kubelet.allocatable == {A2_4A: 2, A2_4Q: 1})
            got = await given(kubelet, "vm", a2_4a=2, a2_4q=1)
            first, second, third = (v.uuid for v in card_of_two.vgpus)
            assert got.envs == {
                "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4A": f"{first},{second}",
                "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4Q": third,
            }
            files = [(host, rights) for host, _, rights in got.devices]
            assert sorted(set(files)) == [
                *[(f"/dev/vfio/{n}", "mrw") for n in (120, 121, 122)],
                ("/dev/vfio/vfio", "mrw"),
            ]
            assert (got.cdi_devices, got.annotations) == ((), {})

    go(scenario)


def test_with_vendor_vfio_a_launcher_gets_addresses(kubelet: Kubelet) -> None:
    one = make_gpu("NVIDIA L40S", ("12A", 0), ("12A", 7))

    async def scenario() -> None:
        async with offering(kubelet) as plugins:
            await plugins.publish(offered(one))
            await until(lambda: kubelet.allocatable == {L40S_12A: 2})
            got = await given(kubelet, "vm", l40s=2)
            assert got.envs == {"PCI_RESOURCE_NVIDIA_COM_NVIDIA_L40S-12A": f"{address(0)},{address(7)}"}
            files = [host for host, _, _ in got.devices]
            assert files == ["/dev/vfio/vfio", "/dev/vfio/90", "/dev/vfio/97"]

    go(scenario)


def test_a_type_that_is_withdrawn_reads_zero_and_an_exhausted_one_gives_no_more(kubelet: Kubelet) -> None:
    # Allocatable of a node whose 4C was disabled again stays, as 0.
    async def scenario() -> None:
        async with offering(kubelet) as plugins:
            await plugins.publish(offered(make_gpu("NVIDIA A2", ("4A", 0), ("4Q", 1))))
            await until(lambda: kubelet.allocatable == {A2_4A: 1, A2_4Q: 1})
            await given(kubelet, "one", a2_4a=1)
            with pytest.raises(AdmissionError, match="Requested: 1, Available: 0"):
                await given(kubelet, "two", a2_4a=1)
            await plugins.publish(offered(make_gpu("NVIDIA A2", ("4A", 0))))
            await until(lambda: kubelet.allocatable == {A2_4A: 1, A2_4Q: 0})
            await plugins.publish(offered(make_gpu("NVIDIA A2")))
            await until(lambda: kubelet.capacity == {A2_4A: 0, A2_4Q: 0})

    go(scenario)


def test_a_kubelet_that_restarts_is_registered_with_again_and_keeps_what_it_gave(kubelet: Kubelet) -> None:
    async def scenario() -> None:
        async with offering(kubelet) as plugins:
            await plugins.publish(offered(make_gpu("NVIDIA A2", ("4A", 0), ("4A", 1))))
            await until(lambda: kubelet.allocatable == {A2_4A: 2})
            first = await given(kubelet, "one", a2_4a=1)
            await asyncio.to_thread(kubelet.restart)
            await until(lambda: kubelet.allocatable == {A2_4A: 2}, 30)
            second = await given(kubelet, "two", a2_4a=1)
            assert first.envs != second.envs, "no device twice"
            found = {use.pod: use.devices for use in await list_uses(str(kubelet.pod_resources))}
            assert len({*found["one"], *found["two"]}) == 2

    go(scenario)


def test_a_usb_device_is_allocated_once_and_unhealthy_while_unplugged(kubelet: Kubelet) -> None:
    name, resource = f"{NODE}-0951-1666-001002", f"kubevirt.io/{NODE}-0951-1666-001002"
    stick = UsbDevice("0951", "1666", 1, 2, "/dev/bus/usb/001/002", "0000:00:14.0")
    objects = Objects(
        usb={name: USBDevice(ObjectMeta(name=name), USBDeviceStatus(node_name=NODE))},
        usb_claims={name: USBDeviceClaim(ObjectMeta(name=name))},
    )

    def offer_of(*plugged: UsbDevice) -> ResourceOffer:
        return offer(replace(view(), peripherals=Peripherals(plugged)), objects, {}, owner=None)

    async def scenario() -> None:
        async with offering(kubelet) as plugins:
            await plugins.publish(offer_of(stick))
            await until(lambda: kubelet.allocatable == {resource: 1})
            pod = Pod("vm", (Container("compute", {resource: 1}),))
            got = (await asyncio.to_thread(kubelet.admit, pod))["compute"]
            assert got.envs == {f"USB_RESOURCE_KUBEVIRT_IO_{name.upper()}": "1:2"}
            assert list(got.devices) == [("/dev/bus/usb/001/002", "/dev/bus/usb/001/002", "mrw")]
            await asyncio.to_thread(kubelet.restart)
            await until(lambda: kubelet.allocatable == {resource: 1}, 30)
            await plugins.publish(offer_of())
            await until(lambda: kubelet.allocatable == {resource: 0} and kubelet.capacity == {resource: 1})
            await plugins.publish(offer_of(stick))
            await until(lambda: kubelet.allocatable == {resource: 1})

    go(scenario)


def test_what_is_about_to_end_is_not_allocated_and_who_got_it_just_now_is_reported(kubelet: Kubelet) -> None:
    one = make_gpu("NVIDIA A2", ("4A", 0), ("4A", 1))
    first, second = (v.uuid for v in one.vgpus)

    async def scenario() -> None:
        async with offering(kubelet) as plugins:
            assert plugins.withhold(frozenset({first})) == frozenset(), "nothing is offered yet"
            await plugins.publish(offered(one))
            await until(lambda: kubelet.allocatable == {A2_4A: 2})
            await given(kubelet, "early", a2_4a=1)
            assert plugins.withhold(frozenset({first, second})) == {first}
            await until(lambda: kubelet.allocatable == {A2_4A: 0})
            with pytest.raises(AdmissionError):
                await given(kubelet, "late", a2_4a=1)
            plugins.release()
            await until(lambda: kubelet.allocatable == {A2_4A: 2})

    go(scenario)


def test_numa_reaches_kubelet_and_one_machine_gets_neighbours(kubelet: Kubelet) -> None:
    near, remote = (
        make_gpu("NVIDIA A2", ("4A", 0), ("4A", 1)),
        make_gpu("NVIDIA A2", ("4A", 2), ("4A", 3), pci="0000:88:00.0"),
    )
    seen = view(near, remote)
    there = tuple(replace(f, numa=int(f.address.startswith("0000:88"))) for f in seen.functions)

    async def scenario() -> None:
        async with offering(kubelet) as plugins:
            groups = dict.fromkeys(mdev_functions(seen.inventory), 5)
            await plugins.publish(offer(replace(seen, functions=there), Objects(vgpus=vgpus(near, remote)), groups))
            await until(lambda: kubelet.allocatable == {A2_4A: 4})
            nodes = {i: [n.ID for n in d.topology.nodes] for i, d in kubelet.manager.devices[A2_4A].items()}
            assert sorted(nodes.values()) == [[0], [0], [1], [1]]
            got = await given(kubelet, "vm", a2_4a=2)
            (value,) = got.envs.values()
            assert len({tuple(nodes[each]) for each in value.split(",")}) == 1

    go(scenario)
