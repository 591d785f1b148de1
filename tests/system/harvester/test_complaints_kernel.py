"""User reports about kernels without mdev, drivers, and GPUs that cannot be enabled. Numbers are of public threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.hardware.kernel.bus_scan import scan
from aliquot.kubernetes.virtual_machines.harvester.device_offer import offer
from aliquot.kubernetes.virtual_machines.harvester.driver_pods import choose_pod
from support.admissions import claim, entry, function, gpu, instance, machine, merged, vgpu
from support.driverpods import driver_pod
from system.harvester.bench import A2, L40S, carry, enabled, filled, give_up, refused, types
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import NAMES, One, message, ready
from unit.kubernetes.virtual_machines.harvester.test_drivers import pods, restarted

RESOURCE = "nvidia.com/NVIDIA_L40S-12Q"
VENDOR = [vgpu(f"0000:26:00.{n}", "NVIDIA L40S-12Q", True, uuid="1155") for n in (4, 5)]


# -- vendor-specific VFIO


@pytest.mark.parametrize(("template", "pci"), [("l40s:vfio", L40S), ("a2:vfio", A2), ("a2:mdev", A2)])
def test_after_the_upgrade_there_was_no_mdev_and_no_vgpu(tmp_path: Path, template: str, pci: str) -> None:
    """harvester/harvester#10026; NVIDIA/vgpu-device-manager#139, #195; NVIDIA/gpu-operator#2594: the framework of the
    kernel is read from its files, and the same objects lead to the same vGPU.
    """
    one = enabled(template, tmp_path, pci)
    first = one.device(pci)["status"]["vfAddresses"][0]
    kind = sorted(types(one, first))[0]
    carry(one, first, kind)
    assert one.live() == {first: kind}
    give_up(one, first)
    assert one.live() == {}


def test_a_node_that_comes_up_with_another_kernel_keeps_its_vgpus(tmp_path: Path) -> None:
    """harvester/harvester#10026 on one node: a kernel upgrade removes mdevs; the objects' requests stay and are
    applied.
    """
    one = enabled("a2:mdev", tmp_path, A2)
    carry(one, "0000:08:00.4", "NVIDIA A2-4Q")
    one.control("reboot", boot_id="boot-2", kernel="vfio")
    one.settle()
    assert one.live() == {"0000:08:00.4": "NVIDIA A2-4Q"}
    assert one.vgpu("0000:08:00.4")["status"]["uuid"] == "746"
    assert list(one.store.of("PCIDeviceClaim")) == ["n1-000008004"]


def test_machines_lost_their_vgpus_by_an_upgrade() -> None:
    """harvester/harvester#10394: a VM's ``gpus`` do not work on a kernel without mdev. They become host devices at its
    next start. A running VM is not changed.
    """
    stopped = machine("vm", entry("a", RESOURCE), strategy="Halted")
    started = merged(stopped, spec={"runStrategy": "Always"})
    devices, _ = filled(started, stopped, vgpus=VENDOR)
    assert (devices.get("gpus"), devices["hostDevices"]) == (None, [{"name": "a", "deviceName": RESOURCE}])
    running = {"instances": [instance("vm", "n1", entry("a", RESOURCE))]}
    noted = merged(started, metadata={"labels": {"a": "b"}})
    assert filled(noted, started, vgpus=VENDOR, **running)[1] == {"patches": ()}


def test_a_function_with_the_nvidia_driver_was_not_advertised(tmp_path: Path) -> None:
    """kubevirt/kubevirt#17642, NVIDIA/kubevirt-gpu-device-plugin#192: only vfio-pci counted. A function that carries a
    type is offered. The physical function and empty functions are not.
    """
    one = enabled("l40s:vfio", tmp_path, L40S)
    first = one.device(L40S)["status"]["vfAddresses"][0]
    carry(one, first, "NVIDIA L40S-12Q")
    (resource,) = offer(one.view(), one.store.typed(), {}).resources
    assert (resource.name, [(d.id, d.healthy) for d in resource.devices]) == (RESOURCE, [(first, True)])
    assert next(f.driver for f in one.view().functions if f.address == first) == "nvidia"


# -- GPUs that cannot be enabled


@pytest.mark.parametrize("url", ["HTTPENDPOINT/NVIDIA-Linux-x86_64-vgpu-kvm.run", ""])
def test_could_not_resolve_host_httpendpoint(url: str) -> None:
    """harvester/harvester#5112, #5438, #7682, #6521, #11469: the placeholder (or the value emptied by an upgrade) was
    installed, and only the log of a pod that crashed for ever showed it.
    """
    found = choose_pod(pods(restarted(driver_pod("n1", ready=False, url=url), 7)), "n1")
    assert (found.pod, found.reason) == (None, "DriverLocationMissing")
    assert "DRIVER_LOCATION" in found.message
    assert "driverToolkit.location" in found.next_step


def test_enabling_failed_without_a_word(tmp_path: Path) -> None:
    """harvester/harvester#10707: the driver could not enable it. The message of its program is in the object."""
    one = One("a2:mdev", tmp_path, "n1", A2).settle()
    one.control("fault", kind="unbind-lock", gpu=A2, calls=1000)
    one.kubectl("SRIOVGPUDevice", one.name_of(A2), enabled=True)
    status, reason = ready(one.device(A2))
    assert (status, reason.isalnum()) == ("False", True)
    assert "a client still has the GPU open, so its driver cannot be unbound" in message(one.device(A2))
    assert one.store.of("VGPUDevice") == {}


def test_clicking_enable_had_no_effect_on_a_claimed_gpu() -> None:
    """harvester/harvester#6217, #8516: the whole GPU was passed through, or had been. The request is refused and names
    the holder.
    """
    answer = refused("sriovgpudevices", gpu(False), gpu(True), claims=[claim()])
    assert "is claimed for passthrough by alice: delete PCIDeviceClaim n1-000008000 first" in answer
    assert "vGPUs exist on" in refused("pcideviceclaims", None, claim(), functions=[function()], gpus=[gpu(True)])


def test_a_gpu_could_not_be_enabled_after_its_passthrough_had_ended(tmp_path: Path) -> None:
    """harvester/harvester#6217: the driver did not come back. Here it does, and the functions appear."""
    one = One("a2:mdev", tmp_path, "n1", A2).settle()
    body = {"address": A2, "nodeName": "n1", "userName": "admin"}
    kind = {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "PCIDeviceClaim"}
    one.store.create("PCIDeviceClaim", {**kind, "metadata": {"name": one.name_of(A2)}, "spec": body})
    one.settle()
    one.store.delete("PCIDeviceClaim", one.name_of(A2))
    one.settle().kubectl("SRIOVGPUDevice", one.name_of(A2), enabled=True)
    assert len(one.store.of("VGPUDevice")) == 16
    assert ready(one.device(A2)) == ("True", "Enabled")


@pytest.mark.parametrize("board", ["t4:mdev", "t4"])
def test_a_t4_was_not_shown(tmp_path: Path, board: str) -> None:
    """harvester/harvester#6973, #6179, #8059: Harvester has no SRIOVGPUDevice for boards without SR-IOV. Here they have
    one, beside the PCIDevice, and vGPUs if a vGPU host driver runs.
    """
    one = One(board, tmp_path, "n1").settle()
    shown = [body["status"] for body in one.store.of("PCIDevice").values()]
    assert ["T4" in each["description"] for each in shown] == [True]
    (name,) = one.store.of("SRIOVGPUDevice")
    one.kubectl("SRIOVGPUDevice", name, enabled=True)
    assert len(one.store.of("VGPUDevice")) == (16 if ":mdev" in board else 0)


def test_an_h100_had_functions_but_no_vgpu_objects(tmp_path: Path) -> None:
    """harvester/harvester#7111: another actor had enabled them. Objects follow the hardware within one observation."""
    one = One("h100-pcie:vfio", tmp_path, "n1", A2)
    one.functions_by_hand(True)
    one.publish()
    assert one.device(A2)["spec"]["enabled"] is True
    assert sorted(one.store.of("VGPUDevice")) == sorted(one.device(A2)["status"]["vGPUDevices"])
    assert len(one.store.of("VGPUDevice")) > 15


def test_functions_of_an_l40s_were_bound_to_vfio_pci(tmp_path: Path) -> None:
    """harvester/harvester#6487: one card's passthrough wrote its model to ``new_id``, and vfio-pci then took every
    function of that model. A claim here binds only its own function.
    """
    one = One("a2:vfio*2", tmp_path, "n1").settle()
    handed_out, shared = sorted(body["spec"]["address"] for body in one.store.of("SRIOVGPUDevice").values())
    spec = {"address": handed_out, "nodeName": "n1", "userName": "admin"}
    kind = {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "PCIDeviceClaim"}
    one.store.create("PCIDeviceClaim", {**kind, "metadata": {"name": one.name_of(handed_out)}, "spec": spec})
    one.settle().kubectl("SRIOVGPUDevice", one.name_of(shared), enabled=True)
    drivers = {f.address: f.driver for f in scan(one.node.files, NAMES)}
    assert drivers.pop(handed_out) == "vfio-pci"
    assert "vfio-pci" not in drivers.values()
    assert len(one.store.of("VGPUDevice")) == 16


def test_the_plugin_began_before_all_functions_were_there(tmp_path: Path) -> None:
    """NVIDIA/gpu-operator#2002: functions appear one by one. The agent waits for all of them first."""
    one = One("a2:vfio", tmp_path, "n1", A2).settle()
    one.control("fault", kind="vf-delay", seconds=30)
    begun = one.node.backend.memory.now
    one.kubectl("SRIOVGPUDevice", one.name_of(A2), enabled=True)
    assert one.node.backend.memory.now - begun > 20, "it waited for the last one"
    assert len(one.device(A2)["status"]["vfAddresses"]) == 16
    assert len(one.store.of("VGPUDevice")) == 16
    assert ready(one.device(A2)) == ("True", "Enabled")
