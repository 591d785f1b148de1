"""Mediated devices: the mdev core's own rules, and our way to create and end vGPUs in both mdev frameworks."""

from __future__ import annotations

import errno
import os
import uuid

from aliquot.core.model import vgpu_types as tables
from aliquot.core.planner.vgpu.naming import stable_uuid
from aliquot.errors import AliquotError, HardwareError, InUseError
from system.vm.inside.checks import check, fails, refused
from system.vm.inside.gpus import bare, destroy, destroy_all, gpu, kernel, make
from system.vm.inside.machine import A2, FILES, T4, device

A2_4Q, A2_8Q, A2_4C, T4_4Q, T4_8Q = 746, 747, 754, 232, 233


def create(function: str, type_id: int) -> str:
    return device(function, f"mdev_supported_types/nvidia-{type_id}/create")


def free(function: str, type_id: int) -> int:
    """Return the free instances, read directly from sysfs."""
    return int(FILES.read(device(function, f"mdev_supported_types/nvidia-{type_id}/available_instances")))


def functions() -> list[str]:
    virtual = gpu(A2).virtual
    assert virtual is not None
    return [each.pci for each in virtual.functions]


@check()
def the_kernel_lists_the_types_of_our_table() -> str:
    """Compare the kernel's types with the catalog: two authors wrote them down separately."""
    for pci in (A2, T4):
        seen = gpu(pci)
        table = tables.table(seen.pci_device, seen.subsystem)
        assert table is not None
        assert seen.virtual is not None
        known = {each.id for each in table.types if each.id is not None}
        assert set(seen.virtual.creatable or ()) == known, (seen.virtual.creatable, known)
        folder = device(functions()[0] if pci == A2 else pci, "mdev_supported_types")
        for type_id in known:
            assert FILES.read(f"{folder}/nvidia-{type_id}/name") == table.by_id[type_id].name
    return "A2 and T4"


@check()
def the_mdev_core_refuses() -> None:
    """Require EINVAL for what is not a UUID, EEXIST for one that exists on any function, ENOENT for an unknown type."""
    first, second, *_ = functions()
    some = str(uuid.uuid4())
    with refused(errno.EINVAL):
        FILES.write(create(first, A2_4Q), "not-a-uuid")
    FILES.write(create(first, A2_4Q), some)
    with refused(errno.EEXIST):
        FILES.write(create(second, A2_4Q), some)
    with refused(errno.ENOENT):
        FILES.write(create(second, 1145), str(uuid.uuid4()))
    with refused(errno.ENOSPC):  # another size
        FILES.write(create(second, A2_8Q), str(uuid.uuid4()))
    with refused(errno.ENOSPC):  # a function carries one
        FILES.write(create(first, A2_4Q), str(uuid.uuid4()))
    FILES.write(device(first, f"{some}/remove"), "1")
    assert not os.path.exists(device(first, some))
    assert not gpu(A2).vgpus


@check()
def four_of_sixteen() -> str:
    """Create 4 x A2-4Q on sixteen functions: the fifth is refused, and the types of that size are gone from every
    function.
    """
    made = [make(A2, number, A2_4Q) for number in range(4)]
    assert [each.uuid for each in made] == [stable_uuid(bare(A2), number) for number in range(4)]
    assert all(each.ownership_token and each.type == "NVIDIA A2-4Q" for each in made)
    seen = gpu(A2)
    assert seen.virtual is not None
    assert (len(seen.vgpus), seen.virtual.creatable) == (4, ())
    assert {free(function, A2_4Q) for function in functions()} == {0}
    error = fails(HardwareError, lambda: make(A2, 4, A2_4Q))
    assert any("ENOSPC" in line for line in error.details)
    assert len(gpu(A2).vgpus) == 4
    return error.brief


@check()
def one_size_at_a_time() -> None:
    """Create one 4 GB vGPU: others of 4 GB fit, of any series, and no other size."""
    destroy_all(A2)
    make(A2, 3, A2_4C)
    seen = gpu(A2)
    assert seen.virtual is not None
    assert set(seen.virtual.creatable or ()) == {746, 751, 754}
    fails(HardwareError, lambda: make(A2, 5, A2_8Q))
    make(A2, 5, A2_4Q)
    destroy_all(A2)
    assert len(gpu(A2).virtual.creatable or ()) == 15  # type: ignore[union-attr]


@check()
def slots_of_the_gpu_itself() -> None:
    """Create several vGPUs without SR-IOV: they are on one function, and the number counts down."""
    assert free(T4, T4_4Q) == 4
    made = [make(T4, slot, T4_4Q) for slot in range(3)]
    assert {each.function for each in made} == {T4}
    assert (free(T4, T4_4Q), free(T4, T4_8Q)) == (1, 0)
    destroy(T4, made[1])
    assert [each.uuid for each in gpu(T4).vgpus] == sorted((made[0].uuid, made[2].uuid))
    assert free(T4, T4_4Q) == 2
    destroy_all(T4)
    assert free(T4, T4_8Q) == 2


@check()
def a_late_release_changes_nothing() -> None:
    """Refuse a late release: the function has another vGPU by now, under the same UUID, so the previous claim changes
    nothing.
    """
    previous = make(A2, 0, A2_4Q)
    destroy(A2, previous)
    now = make(A2, 0, A2_4Q)
    assert now.uuid == previous.uuid
    assert now.ownership_token != previous.ownership_token
    error = fails(InUseError, lambda: destroy(A2, previous))
    assert "another vGPU" in error.brief
    assert [each.uuid for each in gpu(A2).vgpus] == [now.uuid]
    destroy(A2, now)


@check()
def one_made_by_hand_is_adopted() -> None:
    """Show a vGPU made by hand, without an owner, and remove it when it is named as it is."""
    some = str(uuid.uuid4())
    function = functions()[6]
    FILES.write(create(function, A2_4Q), some)
    (found,) = gpu(A2).vgpus
    assert (found.uuid, found.ownership_token, found.function) == (some, "", function)
    fails(AliquotError, lambda: kernel().create_vgpu(bare(A2), function, A2_4Q, str(uuid.uuid4())))
    destroy(A2, found)
    assert not os.path.exists(device(function, some))


@check()
def functions_with_vgpus_stay_on() -> None:
    made = make(A2, 2, A2_4Q)
    error = fails(InUseError, lambda: kernel().set_functions(bare(A2), 0))
    assert any(made.function in line for line in error.details)
    assert len(functions()) == 16
    destroy(A2, made)
