"""Passthrough: driver_override, IOMMU groups as the kernel sees them, and the return to the previous driver."""

from __future__ import annotations

import fcntl
import os
import struct

from aliquot.errors import BlockedError, InUseError
from aliquot.foundation.threads import SystemClock
from aliquot.hardware.kernel import vfio_binding
from system.vm.inside.checks import check, fails
from system.vm.inside.gpus import bare, gpu, kernel, make, read
from system.vm.inside.gpus import destroy as end
from system.vm.inside.machine import A2, FILES, GROUPED, PLAIN, T4, UNRELATED, device, driver

GET_STATUS, VIABLE = 0x3B67, 1  # VFIO_GROUP_GET_STATUS, VFIO_GROUP_FLAGS_VIABLE (linux/vfio.h)


def viable(pci: str) -> bool:
    """Report whether the kernel would give this function's IOMMU group to a VM."""
    number = os.path.basename(os.readlink(device(pci, "iommu_group")))
    group = os.open(f"/dev/vfio/{number}", os.O_RDWR)
    try:
        status = bytearray(struct.pack("II", 8, 0))
        fcntl.ioctl(group, GET_STATUS, status)
        flags: int = struct.unpack("II", status)[1]
        return bool(flags & VIABLE)
    finally:
        os.close(group)


def rebound_by_hand(pci: str, wanted: str) -> None:
    """Bind a driver as an administrator does, without our code."""
    FILES.write(device(pci, "driver_override"), wanted)
    FILES.write(device(pci, "driver/unbind"), pci)
    FILES.write("/sys/bus/pci/drivers_probe", pci)
    FILES.write(device(pci, "driver_override"), "\n")
    assert driver(pci) == wanted


@check()
def a_whole_gpu_goes_and_comes_back() -> str:
    kernel().set_passthrough(bare(T4), True)
    assert driver(T4) == "vfio-pci"
    assert FILES.read(device(T4, "driver_override")) == "(null)"
    assert viable(T4)
    assert not FILES.exists(device(T4, "mdev_supported_types"))
    assert (driver(GROUPED), driver(A2)) == ("nvidia", "nvidia"), "the same model elsewhere is left alone"
    unavailable = gpu(T4)
    assert unavailable.passthrough
    assert (unavailable.uuid, unavailable.product) == (bare(T4).uuid, "Tesla T4")
    kernel().set_passthrough(unavailable, False)
    assert driver(T4) == "nvidia"
    assert FILES.read(device(T4, "driver_override")) == "(null)"
    assert FILES.exists(device(T4, "mdev_supported_types"))
    assert not gpu(T4).passthrough
    return f"IOMMU group {os.path.basename(os.readlink(device(T4, 'iommu_group')))}"


@check()
def a_driver_of_the_kernels_own() -> None:
    """Take the device of the kernel's nvme driver, and return it: with the same code, and without a stand-in."""
    vfio_binding.bind_to_vfio(FILES, SystemClock(), PLAIN, ())
    assert driver(PLAIN) == "vfio-pci"
    assert viable(PLAIN)
    assert not FILES.exists(device(PLAIN, "nvme"))
    vfio_binding.restore_drivers(FILES, PLAIN, {PLAIN: "nvme"})
    assert driver(PLAIN) == "nvme"
    assert FILES.names(device(PLAIN, "nvme"))


@check()
def a_virtual_function_goes_alone() -> None:
    virtual = gpu(A2).virtual
    assert virtual is not None
    one, *others = virtual.functions
    kernel().set_passthrough(bare(A2), True, one.pci)
    assert driver(one.pci) == "vfio-pci"
    assert viable(one.pci)
    assert {driver(each.pci) for each in others} == {"nvidia"}
    fails(InUseError, lambda: kernel().set_functions(bare(A2), 0))
    kernel().set_passthrough(bare(A2), False, one.pci)
    assert driver(one.pci) == "nvidia"
    assert FILES.exists(device(one.pci, "mdev_supported_types"))


@check()
def a_gpu_with_functions_stays() -> None:
    error = fails(InUseError, lambda: kernel().set_passthrough(bare(A2), True))
    assert "16 virtual functions" in error.brief
    assert driver(A2) == "nvidia"


@check()
def a_gpu_with_vgpus_stays() -> None:
    made = make(T4, 0, 232)
    fails(InUseError, lambda: kernel().set_passthrough(bare(T4), True))
    assert driver(T4) == "nvidia"
    end(T4, made)


@check()
def a_group_with_an_unrelated_device() -> str:
    """Refuse before anything is unbound. The kernel reports that such a group is not viable."""
    assert driver(UNRELATED) == "virtio-pci"
    error = fails(BlockedError, lambda: kernel().set_passthrough(bare(GROUPED), True))
    assert error.code == "IOMMU_GROUP"
    assert any(UNRELATED in line for line in error.details)
    assert driver(GROUPED) == "nvidia"
    rebound_by_hand(GROUPED, "vfio-pci")
    assert not viable(GROUPED)
    rebound_by_hand(GROUPED, "nvidia")
    return error.brief


@check()
def the_same_group_without_the_unrelated_device() -> None:
    """Pass the group through after the other device is unbound, as the kernel does. A bridge in it is not a problem."""
    FILES.write(device(UNRELATED, "driver/unbind"), UNRELATED)
    kernel().set_passthrough(bare(GROUPED), True)
    assert viable(GROUPED)
    kernel().set_passthrough(gpu(GROUPED), False)
    assert driver(GROUPED) == "nvidia"
    FILES.write("/sys/bus/pci/drivers_probe", UNRELATED)
    assert driver(UNRELATED) == "virtio-pci"


@check()
def one_that_another_process_passed_through() -> None:
    """Show a GPU that another process bound to vfio-pci as passthrough, and return it to the driver that accepts it."""
    rebound_by_hand(T4, "vfio-pci")
    unavailable = gpu(T4)
    assert unavailable.passthrough
    kernel().set_passthrough(unavailable, False)
    assert driver(T4) == "nvidia"
    assert len(read().gpus) == 3
