"""Shut-off VMs whose vGPUs a plan destroys or replaces are named in its notes."""

from __future__ import annotations

from aliquot.core.config.select.command_line import adhoc
from aliquot.core.model.inventory import Gpu
from aliquot.core.planner.plan import plan
from aliquot.libvirt.models import LibvirtDomain
from aliquot.libvirt.vm_references import with_references

from .nodes import A2, L40S, T4, mdev, node, pci, vm


def notes(gpu: Gpu, types: str, *domains: LibvirtDomain) -> tuple[str, ...]:
    inventory = node(gpu)
    made = plan(inventory, adhoc(["all"], (), inventory, vgpu=[types]))
    assert made.changes
    return with_references(made, domains).notes[len(made.notes) :]


def test_a_shut_off_vm_loses_its_vgpu() -> None:
    gone = A2.vgpus[2]
    assert notes(A2, "A2-4Q:2", vm("web-1", mdev(A2, 2)), vm("other", mdev(A2, 0))) == (
        f"VM web-1 (shut off) uses NVIDIA A2-4A ({gone.uuid}), which is destroyed",
    )


def test_a_replaced_vgpu_names_the_new_type() -> None:
    # The definition names the function, so the VM would start with the other type.
    function = L40S.vgpus[0].function
    assert notes(L40S, "L40S-16Q:2", vm("b", pci(function)), vm("a", pci(function))) == (
        f"VMs a, b (shut off) use NVIDIA L40S-8Q ({function}), which is replaced by NVIDIA L40S-16Q",
    )


def test_a_running_vm_is_a_holder_and_a_kept_vgpu_is_not_mentioned() -> None:
    assert notes(A2, "A2-4Q:2", vm("on", mdev(A2, 2), live=(mdev(A2, 2),)), vm("kept", mdev(A2, 0))) == ()


def test_a_vm_with_the_whole_gpu_does_not_use_an_mdev_of_it() -> None:
    assert notes(T4, "none", vm("whole", pci(T4.pci))) == ()
    assert len(notes(T4, "none", vm("v", mdev(T4, 0), mdev(T4, 1)))) == 2
