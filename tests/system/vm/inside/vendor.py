"""Vendor-specific VFIO: the same card after a change of framework, with its functions as VFIO devices of the driver."""

from __future__ import annotations

import errno
import os

from aliquot.core.planner.vgpu.naming import stable_uuid
from aliquot.errors import HardwareError, InUseError
from system.vm.inside import hypervisor
from system.vm.inside.checks import check, fails, refused, until
from system.vm.inside.gpus import bare, destroy, destroy_all, gpu, kernel, make
from system.vm.inside.machine import A2, FILES, T4, device, driver, qemu, sh, stand_in

CURRENT = "nvidia/current_vgpu_type"


@check()
def the_other_framework_is_found() -> str:
    """Load the driver with other files, as at a kernel upgrade. The same request has the same UUIDs."""
    hypervisor.libvirt_ends()
    kernel().set_functions(bare(A2), 0)
    sh("rmmod", "nvidia_vgpu_vfio")
    assert driver(A2) == ""
    stand_in("vfio")
    kernel().set_functions(bare(A2), 16)
    virtual = gpu(A2).virtual
    assert virtual is not None
    assert virtual.framework == "vendor-vfio"
    assert len(virtual.creatable or ()) == 15
    assert {each.driver for each in virtual.functions} == {"nvidia"}
    assert not FILES.exists(device(virtual.functions[0].pci, "mdev_supported_types"))
    other = gpu(T4).virtual
    assert other is not None
    return f"{virtual.framework}, beside {other.framework}"


@check()
def a_type_is_written() -> str:
    made = [make(A2, number, 746) for number in range(4)]
    assert [each.uuid for each in made] == [stable_uuid(bare(A2), number) for number in range(4)]
    assert [FILES.read(device(each.function, CURRENT)) for each in made] == ["746"] * 4
    seen = gpu(A2)
    assert seen.virtual is not None
    assert seen.virtual.creatable == ()
    assert {each.type for each in seen.vgpus} == {"NVIDIA A2-4Q"}, "no function lists the name any more"
    error = fails(HardwareError, lambda: make(A2, 4, 746))
    assert any("EIO" in line for line in error.details)
    with refused(errno.EINVAL):
        FILES.write(device(made[0].function, CURRENT), "A2-4Q")
    destroy_all(A2)
    return error.brief


@check()
def a_function_without_a_type_is_no_device() -> None:
    virtual = gpu(A2).virtual
    assert virtual is not None
    with qemu("early", f"host={virtual.functions[3].pci}") as machine:
        _, answer = machine.communicate(timeout=50)
    assert machine.returncode == 1
    assert b"No such device" in answer, answer


@check(100)
def a_machine_runs_with_a_vendor_function() -> str:
    made = make(A2, 5, 746)
    with qemu("vendor", f"host={made.function}") as machine:
        until(lambda: gpu(A2).vgpus[0].held or machine.poll() is not None, 60)
        (now,) = gpu(A2).vgpus
        assert [(each.kind, each.name, each.id) for each in now.holders] == [("vm", "vendor", str(machine.pid))]
        fails(InUseError, lambda: destroy(A2, now))
        fails(InUseError, lambda: kernel().set_functions(bare(A2), 0))
        assert FILES.read(device(made.function, CURRENT)) == "746"
    until(lambda: not gpu(A2).vgpus[0].held)
    destroy(A2, gpu(A2).vgpus[0])
    assert FILES.read(device(made.function, CURRENT)) == "0"
    return f"IOMMU group {os.path.basename(os.readlink(device(made.function, 'iommu_group')))}"


@check(100)
def libvirt_leaves_its_driver_alone() -> str:
    """Attach with managed='no', as we write it. From 10.0, libvirt accepts a function that a VFIO driver of its own
    has. Before, it wants vfio-pci, where such a function cannot go. The vGPU stays the same either way.
    """
    made = make(A2, 6, 746)
    sh("libvirtd", "-d")
    hypervisor.define("vendored")
    (hostdev,) = hypervisor.give("vendored", "NVIDIA A2-4Q").devices
    assert (hostdev.address, hostdev.managed) == (made.function, False)
    version = sh("virsh", "--version").strip()
    if int(version.split(".")[0]) < 10:
        answer = str(fails(AssertionError, lambda: hypervisor.start("vendored")))
        assert "must be manually detached" in answer
    else:
        hypervisor.start("vendored")
        assert gpu(A2).vgpus[0].held
        sh("virsh", "destroy", "vendored")
    sh("virsh", "undefine", "vendored")
    hypervisor.libvirt_ends()
    assert driver(made.function) == "nvidia"
    assert FILES.read(device(made.function, CURRENT)) == "746"
    destroy(A2, made)
    return f"libvirt {version}"
