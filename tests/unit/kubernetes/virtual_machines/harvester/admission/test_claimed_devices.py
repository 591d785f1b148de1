"""Devices that VMs have through ResourceClaims are in use for the webhooks, by what the claims' drivers report."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import DeviceUsers
from aliquot.kubernetes.virtual_machines.harvester.admission.review import judge, withdraws_device
from support.admissions import (
    GPU,
    PF,
    claim,
    entry,
    environment,
    function,
    gpu,
    instance,
    machine,
    merged,
    mig,
    request,
    resource_claim,
    vgpu,
)

A2_4Q, RES_4Q = "NVIDIA A2-4Q", "nvidia.com/NVIDIA_A2-4Q"
UUID = "11111111-2222-3333-4444-555555555555"
VF, NAME = "0000:08:00.4", "n1-000008004"
ON, OFF = vgpu(VF, A2_4Q, True, uuid=UUID), vgpu(VF)
MACHINE, RUNS = machine("desk"), instance("desk", "n1")
POD = "virt-launcher-desk-x7k2p"
HELD = f"{NAME} is in use by ResourceClaim desk-gpu of VM desk in namespace default"
STOP = """kubectl patch vm desk -n default --type merge -p '{"spec":{"runStrategy":"Halted"}}' (or virtctl stop)"""
CLAIMED = resource_claim("desk-gpu", POD, function=VF)


def asked(kind: str, old: Any, new: Any, **given: Any) -> str:
    known = {"vgpus": [ON], "vms": [MACHINE], "instances": [RUNS], "resource_claims": [CLAIMED]}
    return judge(request(kind, old, new), environment(**(known | given))).message


@pytest.mark.parametrize(
    "data", [{"function": VF}, {"uuid": UUID}, {"function": VF, "uuid": "another"}], ids=["function", "uuid", "both"]
)
def test_a_vgpu_that_a_vm_has_by_a_claim_is_neither_disabled_nor_deleted(data: dict[str, Any]) -> None:
    claims = [resource_claim("desk-gpu", POD, **data)]
    off = merged(ON, spec={"enabled": False})
    assert asked("vgpudevices", ON, off, resource_claims=claims) == f"{HELD}: stop the VM to release it | next: {STOP}"
    assert HELD in asked("vgpudevices", ON, None, resource_claims=claims)
    assert asked("vgpudevices", ON, off, resource_claims=[]) == ""


@pytest.mark.parametrize(
    "free",
    [
        resource_claim("desk-gpu", POD, function="0000:08:00.5"),
        resource_claim("desk-gpu", POD, node="n2", function=VF),
        resource_claim("desk-gpu", POD, uuid="66666666-2222-3333-4444-555555555555"),
        resource_claim("desk-gpu", function=VF),
        resource_claim("desk-gpu", POD, admin=True, function=VF),
        resource_claim("desk-gpu", POD),
        merged(CLAIMED, status={"allocation": None}),
        merged(CLAIMED, status={"devices": [{"driver": "net", "pool": "n1", "device": "d0", "data": [VF]}]}),
    ],
    ids=["function", "node", "uuid", "no pod", "admin access", "not reported", "not allocated", "other driver"],
)
def test_another_claim_holds_nothing_here(free: Any) -> None:
    assert asked("vgpudevices", ON, merged(ON, spec={"enabled": False}), resource_claims=[free]) == ""


def test_a_gpu_keeps_its_functions_while_a_vm_has_one_by_a_claim() -> None:
    # The claim's node made the vGPU itself: the VGPUDevice requests none.
    shared, idle = gpu(True, NAME), merged(gpu(True, NAME), spec={"enabled": False})
    assert HELD in asked("sriovgpudevices", shared, idle, vgpus=[OFF])
    assert asked("sriovgpudevices", shared, idle, vgpus=[OFF], resource_claims=[]) == ""


def test_a_gpu_that_a_vm_has_by_a_claim_gets_no_functions_and_no_layout() -> None:
    claims = [resource_claim("desk-gpu", POD, function=PF)]
    words = f"{GPU} is in use by ResourceClaim desk-gpu of VM desk in namespace default"
    assert words in asked("sriovgpudevices", gpu(False), gpu(True), vgpus=[], resource_claims=claims)
    assert words in asked("sriovgpudevices", None, gpu(True), vgpus=[], resource_claims=claims)
    before, after = mig({}, enabled=False), mig({19: 1}, enabled=True)
    assert words in asked("migconfigurations", before, after, vgpus=[], resource_claims=claims)
    assert asked("migconfigurations", before, after, vgpus=[], resource_claims=[]) == ""


def test_instances_stay_while_a_vm_has_a_vgpu_in_one_by_a_claim() -> None:
    before, after = mig({19: 1}, enabled=True, state="synced"), mig({19: 1}, enabled=False, state="synced")
    assert HELD in asked("migconfigurations", before, after, vgpus=[OFF])
    assert asked("migconfigurations", before, after, vgpus=[OFF], resource_claims=[]) == ""
    assert withdraws_device(request("migconfigurations", before, after))  # the claims are read again before
    assert not withdraws_device(request("migconfigurations", after, before))


def test_a_pci_device_claim_of_a_gpu_stays_while_a_vm_has_it_by_a_resource_claim() -> None:
    given = {"functions": [function()], "gpus": [gpu(False)], "vgpus": []}
    claims = [resource_claim("desk-gpu", POD, function=PF)]
    assert "by ResourceClaim desk-gpu of VM desk" in asked(
        "pcideviceclaims", claim(), None, resource_claims=claims, **given
    )
    assert asked("pcideviceclaims", claim(), None, resource_claims=[], **given) == ""


def test_each_state_of_the_vm_has_its_own_next_command() -> None:
    off, gone = merged(ON, spec={"enabled": False}), {"deletionTimestamp": "2026-01-01T00:00:00Z"}

    def found(**given: Any) -> str:
        return asked("vgpudevices", ON, off, **given)

    assert found(vms=[merged(MACHINE, metadata=gone)]) == (
        f"{HELD}, which is being deleted | next: kubectl wait vm/desk -n default --for delete"
    )
    assert found(instances=[merged(RUNS, metadata=gone)]) == (
        f"{HELD}, which is stopping | next: kubectl wait vmi/desk -n default --for delete"
    )
    alone = f"{HELD}, without a VirtualMachine: it is free once the VMI is deleted"
    assert found(vms=[]) == f"{alone} | next: kubectl get vmi desk -n default"
    ended = (
        f"{NAME} is in use by ResourceClaim desk-gpu of pod {POD} in namespace default: it is free once the pod has "
        f"ended | next: kubectl wait pod/{POD} -n default --for delete"
    )
    assert found(instances=[]) == ended
    assert found(instances=[], vms=[]) == ended
    assert found(instances=[instance("desk", "n1", phase="Succeeded")]) == ended


def test_vms_that_share_a_claim_are_named_and_stopped_together() -> None:
    claims = [resource_claim("lab", POD, "virt-launcher-home-b2c3d", "virt-launcher-desk-q9w8e", uuid=UUID)]
    vms, runs = [MACHINE, machine("home")], [RUNS, instance("home", "n1")]
    off = merged(ON, spec={"enabled": False})
    found = asked("vgpudevices", ON, off, resource_claims=claims, vms=vms, instances=runs)
    assert "by ResourceClaim lab of VMs desk, home in namespace default: stop the VMs to release it" in found
    assert "kubectl patch vm desk home -n default" in found


def test_a_long_name_is_found_although_kubernetes_cuts_the_name_of_the_launcher() -> None:
    long = "a-desktop-with-a-very-long-name-of-the-accounting-department"
    pod = f"virt-launcher-{long}-"[:58] + "x7k2p"
    given = {"resource_claims": [resource_claim("gpu", pod, function=VF)]}
    off = merged(ON, spec={"enabled": False})
    assert f"of VM {long} in" in asked(
        "vgpudevices", ON, off, vms=[machine(long)], instances=[instance(long, "n1")], **given
    )
    # Of two that look alike there, neither is named: the wrong VM would be stopped.
    two = [instance(long, "n1"), instance(f"{long}-2", "n1")]
    assert f"of pod {pod} in" in asked("vgpudevices", ON, off, vms=[], instances=two, **given)


def test_what_a_claim_holds_is_not_left_for_a_vm_that_is_about_to_start() -> None:
    other = vgpu("0000:08:00.5", A2_4Q, True, uuid="another")
    starting = machine("new", entry("any", RES_4Q))
    given = {"vgpus": [ON, other], "vms": [MACHINE, starting]}
    off = merged(other, spec={"enabled": False})
    assert "about to start" in asked("vgpudevices", other, off, **given)
    assert asked("vgpudevices", other, off, **given, resource_claims=[]) == ""


class Counted(dict[Any, Any]):
    reads = 0

    def items(self) -> Any:
        Counted.reads += 1
        return super().items()


def test_the_claims_are_read_once_for_all_devices_of_a_snapshot() -> None:
    known = environment(vgpus=[ON], vms=[MACHINE], instances=[RUNS], resource_claims=[CLAIMED])
    counted = type(known)(
        **{**{f: getattr(known, f) for f in known.__struct_fields__}, "resource_claims": Counted(known.resource_claims)}
    )
    users, Counted.reads = DeviceUsers(counted), 0
    assert all(users.describe(NAME) for _ in range(9))
    assert Counted.reads == 1
