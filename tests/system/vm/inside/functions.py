"""SR-IOV: the PCI core's own rules, its numbering, and our switch of virtual functions."""

from __future__ import annotations

import errno
import os

from aliquot.errors import HardwareError
from aliquot.foundation.threads import SystemClock
from aliquot.hardware.kernel import sriov
from aliquot.hardware.kernel import sriov_switch as switching
from aliquot.hardware.kernel.sriov_manage import NoTools
from system.vm.inside.checks import check, fails, refused
from system.vm.inside.gpus import bare, gpu, kernel
from system.vm.inside.machine import A2, FILES, PLAIN, T4, device, driver

NUMBER = "sriov_numvfs"


@check()
def the_kernel_refuses_numbers() -> None:
    """Require ERANGE above the total, EBUSY from one number to another and ENOENT without SR-IOV: the simulator assumes
    these.
    """
    with refused(errno.ERANGE):
        FILES.write(device(PLAIN, NUMBER), "5")
    with refused(errno.EINVAL):
        FILES.write(device(PLAIN, NUMBER), "many")
    FILES.write(device(PLAIN, "sriov_drivers_autoprobe"), "0")
    FILES.write(device(PLAIN, NUMBER), "2")
    with refused(errno.EBUSY):
        FILES.write(device(PLAIN, NUMBER), "3")
    FILES.write(device(PLAIN, NUMBER), "2")  # the same number again changes nothing
    assert FILES.read(device(PLAIN, NUMBER)) == "2"
    FILES.write(device(PLAIN, NUMBER), "0")
    with refused(errno.ENOENT):
        FILES.write(device(T4, NUMBER), "1")


@check()
def our_switch_goes_by_way_of_none() -> None:
    """Switch from two virtual functions to four, which the kernel refuses in one step, on its own nvme driver."""
    assert (sriov.total(FILES, PLAIN), sriov.count(FILES, PLAIN)) == (4, 0)
    for wanted in (2, 4):
        switching.set_function_count(FILES, NoTools(), SystemClock(), PLAIN, wanted)
        links = sriov.links(FILES, PLAIN)
        assert [link.number for link in links] == list(range(wanted))
        assert tuple(link.pci for link in links) == sriov.function_addresses(FILES, PLAIN, wanted)
    switching.set_function_count(FILES, NoTools(), SystemClock(), PLAIN, 0)
    assert not sriov.links(FILES, PLAIN)


@check()
def our_error_explains_that_of_the_kernel() -> str:
    error = fails(HardwareError, lambda: switching.set_function_count(FILES, NoTools(), SystemClock(), PLAIN, 9))
    assert "fewer virtual functions" in error.brief
    assert any("ERANGE" in line and PLAIN in line for line in error.details)
    return error.brief


@check()
def sixteen_functions_appear() -> str:
    """Switch on sixteen functions. All are bound and list types when the call returns, in numeric order, each in a
    group of its own.
    """
    before = gpu(A2).virtual
    assert before is not None
    assert (before.total, before.functions, before.framework) == (16, (), "")
    kernel().set_functions(bare(A2), 16)
    virtual = gpu(A2).virtual
    assert virtual is not None
    assert virtual.framework == "sriov-mdev"
    assert [each.number for each in virtual.functions] == list(range(16))
    assert tuple(each.pci for each in virtual.functions) == virtual.addresses == before.addresses
    assert virtual.functions[10].pci == os.path.basename(os.readlink(device(A2, "virtfn10")))
    assert {each.driver for each in virtual.functions} == {"nvidia"}
    assert len({each.iommu_group for each in virtual.functions}) == 16
    return f"{virtual.addresses[0]} to {virtual.addresses[-1]}"


@check()
def the_right_number_is_left_alone() -> None:
    """Keep the functions if the number is right: switching them again would remove everything. The directories stay the
    same.
    """
    before = os.stat(device(A2, "virtfn7/")).st_ino
    kernel().set_functions(bare(A2), 16)
    assert os.stat(device(A2, "virtfn7/")).st_ino == before


@check()
def a_gpu_without_sriov_has_no_functions() -> None:
    virtual = gpu(T4).virtual
    assert virtual is not None
    assert (virtual.total, virtual.functions, virtual.framework) == (0, (), "mdev")
    assert driver(T4) == "nvidia"
