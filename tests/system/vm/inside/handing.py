"""Passthrough: driver_override, IOMMU groups as the kernel sees them, and the way back to the former driver."""

from __future__ import annotations

import fcntl
import os
import struct

from aliquot.errors import BlockedError, InUseError
from aliquot.foundation.threads import SystemClock
from aliquot.hardware.kernel import vfio_binding
from system.vm.inside.cards import bare, gpu, kernel, make, read
from system.vm.inside.cards import destroy as end
from system.vm.inside.checks import check, fails
from system.vm.inside.machine import A2, FILES, GROUPED, PLAIN, STRANGER, T4, device, driver

GET_STATUS, VIABLE = 0x3B67, 1  # VFIO_GROUP_GET_STATUS, VFIO_GROUP_FLAGS_VIABLE (linux/vfio.h)


def viable(pci: str) -> bool:
    """Whether the kernel would give this function's IOMMU group to a virtual machine."""
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
    """As an administrator does it, without our code."""
    FILES.write(device(pci, "driver_override"), wanted)
    FILES.write(device(pci, "driver/unbind"), pci)
    FILES.write("/sys/bus/pci/drivers_probe", pci)
    FILES.write(device(pci, "driver_override"), "\n")
    assert driver(pci) == wanted


@check()
def a_whole_gpu_goes_and_comes_back() -> str:
    kernel().set_passthrough(bare(T4), True)
    assert driver(T4) == "vfio-pci"
    assert FILES.read(device(T4, "driver_override")) == "vfio-pci"
    assert viable(T4)
    assert not FILES.exists(device(T4, "mdev_supported_types"))
    assert (driver(GROUPED), driver(A2)) == ("nvidia", "nvidia"), "the same model elsewhere is left alone"
    away = gpu(T4)
    assert away.passthrough
    assert (away.uuid, away.product) == (bare(T4).uuid, "Tesla T4")
    kernel().set_passthrough(away, False)
    assert driver(T4) == "nvidia"
    assert FILES.read(device(T4, "driver_override")) == "(null)"
    assert FILES.exists(device(T4, "mdev_supported_types"))
    assert not gpu(T4).passthrough
    return f"IOMMU group {os.path.basename(os.readlink(device(T4, 'iommu_group')))}"


@check()
def a_driver_of_the_kernels_own() -> None:
    """The kernel's nvme driver loses its device and gets it back: the same code, and no stand-in in it."""
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
def a_group_with_a_stranger() -> str:
    """We refuse before anything is unbound; and the kernel says that such a group is not viable."""
    assert driver(STRANGER) == "virtio-pci"
    error = fails(BlockedError, lambda: kernel().set_passthrough(bare(GROUPED), True))
    assert error.code == "IOMMU_GROUP"
    assert any(STRANGER in line for line in error.details)
    assert driver(GROUPED) == "nvidia"
    rebound_by_hand(GROUPED, "vfio-pci")
    assert not viable(GROUPED)
    rebound_by_hand(GROUPED, "nvidia")
    return error.brief


@check()
def the_same_group_without_its_stranger() -> None:
    """With the other device unbound the kernel gives the group away, and so do we; a bridge in it is no hindrance."""
    FILES.write(device(STRANGER, "driver/unbind"), STRANGER)
    kernel().set_passthrough(bare(GROUPED), True)
    assert viable(GROUPED)
    kernel().set_passthrough(gpu(GROUPED), False)
    assert driver(GROUPED) == "nvidia"
    FILES.write("/sys/bus/pci/drivers_probe", STRANGER)
    assert driver(STRANGER) == "virtio-pci"


@check()
def one_that_somebody_else_handed_out() -> None:
    """Bound to vfio-pci without us: shown as in passthrough, and given back to the driver that takes it."""
    rebound_by_hand(T4, "vfio-pci")
    away = gpu(T4)
    assert away.passthrough
    kernel().set_passthrough(away, False)
    assert driver(T4) == "nvidia"
    assert len(read().gpus) == 3
