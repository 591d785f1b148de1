"""User reports about VMs with several GPUs, and about displays. Numbers are of public threads."""

from __future__ import annotations

from typing import Any

import pytest

from support.admissions import entry, machine, vgpu
from system.harvester.bench import JSON, filled, machine_refused, offering

Q, A, L40S = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-4A", "nvidia.com/NVIDIA_L40S-12Q"
MDEVS = [vgpu(f"0000:08:00.{n}", "NVIDIA A2-4Q", True) for n in (4, 5, 6)]
VENDOR = [vgpu(f"0000:26:00.{n}", "NVIDIA L40S-12Q", True, uuid="1155") for n in (4, 5)]
CLUSTER: Any = {"vgpus": [*MDEVS, *VENDOR], "nodes": [offering("n1", **{Q: 3, L40S: 2})]}


def displays(devices: JSON) -> list[Any]:
    return [(each.get("virtualGPUOptions") or {}).get("display") for each in devices["gpus"]]


def test_two_vgpus_in_one_vm_made_an_invalid_patch() -> None:
    """harvester/pcidevices, VM mutator: it removed ``/gpus/0`` and then ``/gpus/1`` from a list that had become
    shorter, and the options of both were lost. The patch is applied strictly here.
    """
    two = machine("vm", {"name": "a", "deviceName": L40S, "tag": "t"}, entry("b", L40S), entry("c", Q))
    devices, _ = filled(two, **CLUSTER)
    assert devices["hostDevices"] == [{"name": "a", "deviceName": L40S, "tag": "t"}, {"name": "b", "deviceName": L40S}]
    assert [each["name"] for each in devices["gpus"]] == ["c"]


def test_two_vgpus_had_two_ramfb_and_the_machine_did_not_boot() -> None:
    """harvester/harvester#5289, #7290, oVirt/ovirt-engine#460: libvirt reported it at boot. Only one vGPU gets the
    ramfb.
    """
    devices, _ = filled(machine("vm", entry("a", Q), entry("b", Q)), **CLUSTER)
    assert displays(devices) == [{"enabled": True, "ramFB": {"enabled": True}}, {"ramFB": {"enabled": False}}]
    on = {"ramFB": {"enabled": True}}
    answer = machine_refused(machine("vm", entry("a", Q, display=on), entry("b", Q, display=on)), **CLUSTER)
    assert "ramFB" in answer


@pytest.mark.parametrize("expected", [{}, {"enabled": True}, {"ramFB": {}}])
def test_a_display_without_a_word_on_ramfb_gave_two_of_them(expected: JSON) -> None:
    """kubevirt/user-guide#952, kubevirt/kubevirt#14387: ``display: {}`` means enabled, and so does ``ramFB: {}``."""
    devices, _ = filled(machine("vm", entry("a", Q), entry("b", Q, display=expected)), **CLUSTER)
    yes = [bool(each) and each.get("ramFB", {}).get("enabled", True) is not False for each in displays(devices)]
    assert yes.count(True) == 1, devices


def test_a_machine_with_a_vgpu_had_no_display_without_a_message() -> None:
    """harvester/harvester#5121: without mdev, a vGPU is a host device without a boot display. A user who wants a boot
    display requests it by name, and keeps it.
    """
    wants = entry("a", L40S, display={"enabled": True})
    devices, _ = filled(machine("vm", wants), **CLUSTER)
    assert devices == {"gpus": [wants]}
    plain, reported = filled(machine("vm", entry("a", L40S)), **CLUSTER)
    assert "gpus" not in plain
    assert reported["patches"]


def test_two_vgpus_that_may_not_be_together_were_found_out_at_boot() -> None:
    """Harvester's manual: an A2 allows only Q-series. The webhook refuses the VM when it is written."""
    given = CLUSTER | {"vgpus": [*MDEVS, vgpu("0000:08:00.7", "NVIDIA A2-4A", True)]}
    answer = machine_refused(machine("vm", entry("a", A), entry("b", Q)), **given)
    assert "NVIDIA A2-4A must be the only vGPU of a VM, this one has 2" in answer


def test_devices_of_two_nodes_left_a_machine_unschedulable() -> None:
    """The original reads only the names of host devices: a VM with vGPUs of two nodes waited for ever."""
    remote = vgpu("0000:08:00.4", "NVIDIA A2-4Q", True, node="n2")
    nodes = [offering(name, **{Q: 1}) for name in ("n1", "n2")]
    given: Any = {"vgpus": [MDEVS[0], remote], "nodes": nodes}
    named = machine("vm", entry("n1-000008004", Q), entry("n2-000008004", Q))
    assert "the devices are not on the same node: n1-000008004 is on n1, n2-000008004 is on n2" in machine_refused(
        named, **given
    )
    unnamed = machine("vm", entry("a", Q), entry("b", Q))
    assert machine_refused(unnamed, **given) != "", "no node has two of them"
