"""Findings of ``check`` about a VM: each rule once, and a VM without findings."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model.inventory import Holder, HostVirtualization, Inventory, IommuGroupPeer, VirtualFunction
from aliquot.core.planner.vgpu.naming import stable_uuid
from aliquot.libvirt.check import VmCheckReport, check
from aliquot.libvirt.device_rules import VmContext
from aliquot.libvirt.models import Hostdev, LibvirtDomain, NodeDevice

from .nodes import A2, L40S, T4, changed, held, make_gpu, mdev, node, pci, vm

NODE = node(A2, L40S, T4)
WHOLE = make_gpu("NVIDIA L4", 0x41, "", functions=0, index=3)
RAMFB = {"display": True, "ramfb": True}


def judge(domain: LibvirtDomain, inventory: Inventory = NODE, **around: object) -> VmCheckReport:
    others = around.pop("others", ())
    assert isinstance(others, tuple)
    return check(inventory, domain, msgspec.structs.replace(VmContext(domains=(domain, *others)), **around))


def rules(report: VmCheckReport) -> list[str]:
    assert all(p.next_step and p.message for p in report.all_problems)
    return [p.rule for p in report.all_problems]


def test_a_machine_that_is_fine() -> None:
    report = judge(vm("win11", mdev(A2, 0, **RAMFB), mdev(A2, 1, display=False)))
    assert report.all_problems == ()
    assert [(r.what, r.where) for r in report.rows] == [
        ("NVIDIA A2-4Q of GPU 0 (0000:08:00.4)", "definition"),
        ("NVIDIA A2-4Q of GPU 0 (0000:08:00.5)", "definition"),
    ]
    assert rules(judge(vm("l", pci("0000:26:00.4"), pci("0000:26:00.5")))) == []
    assert judge(vm("none")).notes == ("the VM has no vGPU, no GPU and no other PCI device",)


def test_a_libvirt_that_knows_no_other_vfio_driver() -> None:
    machine = vm("l", pci("0000:26:00.4"))
    assert judge(machine, version=(10, 0)).rows[0].notes == ()
    old = judge(machine, version=(9, 10))
    assert "libvirt 9.10 starts no VM with 0000:26:00.4" in old.rows[0].notes[0]
    assert judge(vm("win11", mdev(A2, 0, **RAMFB)), version=(9, 10)).rows[0].notes == ()


def test_a_running_machine_has_its_own_vgpus_open() -> None:
    inventory = node(held(A2, 0, Holder("vm", "4711", "win11")))
    device = mdev(A2, 0, **RAMFB)
    assert rules(judge(vm("win11", device, live=(device,)), inventory)) == []
    # The VM's own process counts as the VM, under any name.
    nameless = node(held(A2, 0, Holder("process", "4711", "qemu-system-x86")))
    assert rules(judge(vm("win11", device, live=(device,)), nameless)) == []
    report = judge(vm("win11", live=(device,)), inventory)
    assert report.rows[0].where == "running"
    assert "different devices" in report.notes[0]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ((mdev(A2, 0, **RAMFB), mdev(A2, 1, **RAMFB)), ["RAMFB"]),
        ((mdev(A2, 0), mdev(A2, 2)), ["PER_VM", "SERIES"]),
        ((mdev(A2, 0), mdev(A2, 0)), ["DUPLICATE"]),
        ((pci("0000:26:00.4", managed=True),), ["MANAGED"]),
        ((pci("0000:26:00.6"),), ["NO_VGPU"]),
        ((pci("0000:08:00.4"),), ["WORLD"]),
        ((pci("0000:08:00.4", managed=True),), ["WORLD"]),
        ((mdev(L40S, 0),), ["WORLD"]),
        ((pci("0000:08:00.0"),), ["NOT_BOUND", "FUNCTIONS_IN_USE"]),
        ((pci(T4.pci, managed=True),), ["FUNCTIONS_IN_USE"]),
    ],
)
def test_a_rule_each(devices: tuple[Hostdev, ...], expected: list[str]) -> None:
    found = rules(judge(vm("win11", *devices)))
    if "PER_VM" in expected:
        assert set(found) == set(expected)
    elif "DUPLICATE" in expected:
        assert "DUPLICATE" in found
    else:
        assert found == expected


def test_display_on_what_has_none() -> None:
    compute = make_gpu("NVIDIA A2", 0x08, "sriov-mdev", "A2-4C")
    assert "DISPLAY" in rules(judge(vm("c", mdev(compute, 0, display=True)), node(compute)))
    assert "RAMFB" in rules(judge(vm("c", mdev(compute, 0, **RAMFB)), node(compute)))
    blind = judge(vm("b", mdev(A2, 0, **RAMFB), graphics=False))
    (problem,) = blind.all_problems
    assert (problem.rule, problem.next_step) == ("DISPLAY", "virsh edit b")


def test_what_the_driver_takes_and_nvidia_does_not_support() -> None:
    compute = make_gpu("NVIDIA A2", 0x08, "sriov-mdev", "A2-4C", "A2-4C")
    machine = vm("two", mdev(compute, 0), mdev(compute, 1))
    assert rules(judge(machine, node(compute))) == ["PER_VM"]
    assert rules(judge(machine, node(compute), policy="driver")) == []


def test_an_mdev_that_a_reboot_took() -> None:
    rebooted = changed(msgspec.structs.replace(A2, vgpus=()), functions=(), recorded_vgpus=A2.vgpus[:2])
    (problem,) = judge(vm("win11", mdev(A2, 0)), node(rebooted)).all_problems
    assert problem.rule == "NO_MDEV"
    assert "it was NVIDIA A2-4Q on 0000:08:00.4" in problem.message
    assert problem.next_step == "aliquot restore --boot"
    assert problem.suggestion == 'aliquot plan --gpu 0000:08:00.0 --vgpu "NVIDIA A2-4Q*2"'
    gone = changed(msgspec.structs.replace(L40S, vgpus=()), functions=(), recorded_vgpus=L40S.vgpus[:1])
    (problem,) = judge(vm("l", pci("0000:26:00.4")), node(gone)).all_problems
    assert (problem.rule, problem.next_step) == ("NO_FUNCTION", "aliquot restore --boot")


def test_an_mdev_that_does_not_exist_and_whose_it_would_be() -> None:
    (problem,) = judge(vm("win11", Hostdev("mdev", uuid=stable_uuid(A2, 5)))).all_problems
    assert "it is the UUID that a vGPU on 0000:08:01.1 of GPU 0 gets" in problem.message
    assert problem.next_step == "aliquot vgpu types 0000:08:00.0"
    (problem,) = judge(vm("win11", Hostdev("mdev", uuid=stable_uuid(T4, 9)))).all_problems
    assert "a vGPU on 0000:3b:00.0 of GPU 2 gets" in problem.message
    (problem,) = judge(vm("win11", Hostdev("mdev", uuid="c73f1fa6-489e-4834-9476-d70dabd98c40"))).all_problems
    assert problem.next_step == "aliquot vgpu list"


def test_a_foreign_mdev_and_one_that_waits() -> None:
    uuid = "c73f1fa6-489e-4834-9476-d70dabd98c40"
    other = NodeDevice("mdev_x", uuid, "0000:00:02.0", "i915-GVTg_V5_4")
    machine = vm("win11", Hostdev("mdev", uuid=uuid))
    report = judge(machine, mdevs=(other,))
    assert report.all_problems == ()
    assert report.rows[0].notes == ("not checked: it is not an NVIDIA vGPU",)
    (problem,) = judge(machine, mdevs=(msgspec.structs.replace(other, active=False),)).all_problems
    assert problem.next_step == f"aliquot libvirt nodedev start {uuid}"


def test_switched_off_functions() -> None:
    off = changed(msgspec.structs.replace(L40S, vgpus=()), functions=())
    (problem,) = judge(vm("l", pci("0000:26:00.4")), node(off)).all_problems
    assert (problem.rule, problem.next_step) == ("NO_FUNCTION", "aliquot vgpu enable 0000:26:00.0")


def test_a_device_of_another_machine() -> None:
    device = mdev(A2, 0)
    running = vm("other", device, live=(device,))
    (problem,) = judge(vm("win11", device), others=(running,)).all_problems
    assert (problem.rule, str(problem.holders[0])) == ("HELD", "vm other")
    assert problem.next_step == f"aliquot libvirt detach win11 {device.uuid}"
    report = judge(vm("win11", device), others=(vm("off", device),))
    assert report.all_problems == ()
    assert report.rows[0].notes == ("off has it in its definition too: only one of them can run at a time",)


def test_a_process_that_has_it_open() -> None:
    inventory = node(held(A2, 0, Holder("vm", "4711", "cloud-hypervisor")))
    (problem,) = judge(vm("win11", mdev(A2, 0)), inventory).all_problems
    assert "vm 4711 (cloud-hypervisor)" in problem.message


def test_a_name_with_a_blank_stays_one_word() -> None:
    (problem, *_) = judge(vm("my vm", pci("0000:26:00.4", managed=True))).all_problems
    assert problem.next_step == "aliquot libvirt detach 'my vm' 0000:26:00.4"


def test_a_host_that_cannot() -> None:
    bare = node(L40S, A2, host=HostVirtualization(iommu=False, vfio=False))
    assert rules(judge(vm("l", pci("0000:26:00.4")), bare)) == ["NO_IOMMU", "NO_VFIO"]
    assert rules(judge(vm("a", mdev(A2, 0)), bare)) == ["NO_VFIO"]
    assert rules(judge(vm("a", mdev(A2, 0)), node(A2, host=None))) == []


def test_a_whole_gpu() -> None:
    bound = msgspec.structs.replace(WHOLE, passthrough=True)
    assert rules(judge(vm("g", pci(WHOLE.pci)), node(bound))) == []
    assert rules(judge(vm("g", pci(WHOLE.pci, managed=True)), node(WHOLE))) == []
    (problem,) = judge(vm("g", pci(WHOLE.pci)), node(WHOLE)).all_problems
    assert (problem.rule, problem.next_step) == ("NOT_BOUND", f"aliquot passthrough enable {WHOLE.pci}")
    working = msgspec.structs.replace(WHOLE, holders=(Holder("process", "99", "python"),))
    assert rules(judge(vm("g", pci(WHOLE.pci, managed=True)), node(working))) == ["HELD"]


def test_foreign_devices_in_the_group() -> None:
    foreign = {WHOLE.pci: (IommuGroupPeer("0000:41:01.0", "e1000e"),)}
    bound = node(msgspec.structs.replace(WHOLE, passthrough=True))
    (problem,) = judge(vm("g", pci(WHOLE.pci)), bound, foreign=foreign).all_problems
    assert problem.rule == "IOMMU_GROUP"
    assert "0000:41:01.0 (driver e1000e)" in problem.message
    with_it = vm("g", pci(WHOLE.pci), pci("0000:41:01.0", managed=True))
    assert rules(judge(with_it, bound, foreign=foreign)) == []


def test_a_function_that_vfio_pci_has() -> None:
    bound = changed(L40S, functions=(VirtualFunction("0000:26:00.6", 2, "vfio-pci", 92),))
    assert rules(judge(vm("l", pci("0000:26:00.6")), node(bound))) == []
    used = changed(L40S, functions=(VirtualFunction("0000:26:00.6", 2, "vfio-pci", 92, (Holder("vm", "5", "x"),)),))
    assert rules(judge(vm("l", pci("0000:26:00.6")), node(used))) == ["HELD"]


def test_other_pci_devices_are_left_alone() -> None:
    report = judge(vm("nic", pci("0000:99:00.0", managed=True)))
    assert report.all_problems == ()
    assert report.rows[0].notes == ("not checked: it is not a GPU of this node",)
