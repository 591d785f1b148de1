"""MIG-backed vGPUs and mixed-size mode through the kernel's side."""

from __future__ import annotations

import pytest

from aliquot.core.model.inventory import Gpu, Holder
from aliquot.errors import AliquotError, HardwareError, InUseError
from contract.virtual_bench import KINDS, Bench, Start, bench, end, gpu, make, ready, types, uuid

__all__ = ["bench"]

pytestmark = pytest.mark.parametrize("kind", KINDS)


def cut(node: Bench, *instances: tuple[int, int, int]) -> Gpu:
    """Enable MIG mode and virtual functions, then create GPU instances (profile, start, size), each with its compute
    instance.
    """
    found = gpu(node)
    assert node.backend.set_mode(found.pci, True)
    ready(node)
    for profile, start, size in instances:
        made = node.backend.create_gpu_instance(found.pci, profile, start, size)
        family = node.backend.read().family(found)
        inside = family.by_id[profile].default_compute
        node.backend.create_compute_instance(found.pci, made, inside.id, None, inside.compute_slices)
    return gpu(node)


@pytest.mark.parametrize(
    ("template", "short"), [("a100-sxm4-40gb:mdev", "A100X-1-5C"), ("h100-80gb-hbm3:vfio", "H100XM-1-10C")]
)
def test_a_vgpu_on_its_gpu_instance(bench: Start, kind: str, template: str, short: str) -> None:
    node = bench(template, kind)
    empty = cut(node)
    assert empty.virtual is not None
    assert empty.virtual.creatable == (), "MIG mode without an instance: no vGPU can be created"
    found = cut(node, (19, 0, 1), (19, 1, 1))
    low, high = sorted(i.id for i in found.instances)
    one = make(node, found, short, 3)
    assert one.gpu_instance == low, "the lowest id that fits"
    assert one.placement is None
    two = make(node, found, short, 1)
    assert two.gpu_instance == high
    after = gpu(node)
    for instance in after.instances:
        on = one if instance.id == low else two
        assert instance.held
        assert instance.holders == (Holder("vgpu", on.function, on.type),)
    end(node, found, one)
    assert [i.held for i in sorted(gpu(node).instances, key=lambda i: i.id)] == [False, True]
    end(node, found, two)
    assert gpu(node) == found


def test_what_a_mode_refuses(bench: Start, kind: str) -> None:
    node = bench("h100-80gb-hbm3:vfio", kind)
    found = cut(node, (19, 0, 1))
    sliced = types(node).by_name["H100XM-10C"]
    assert sliced.id is not None
    function = found.virtual.functions[0].pci if found.virtual else ""
    with pytest.raises(HardwareError) as caught:
        node.backend.create_vgpu(found.pci, function, sliced.id, uuid(0))
    assert any("0x38" in line for line in caught.value.details), "if the driver's own code is found"
    assert gpu(node) == found
    with open(f"{node.directory}/vgpu-owners.json") as file:
        assert sliced.name not in file.read(), "a refused vGPU has no owner"


def test_several_on_one_instance(bench: Start, kind: str) -> None:
    # RTX PRO Blackwell time-slices vGPUs inside a GPU instance.
    node = bench("rtx-pro-6000-blackwell-server-edition:vfio", kind)
    found = cut(node, (47, 0, 3))
    first, second = (make(node, found, "DC-1-8Q", n) for n in (0, 1))
    (instance,) = gpu(node).instances
    assert first.gpu_instance == second.gpu_instance == instance.id
    assert [h.id for h in instance.holders] == [first.function, second.function]


def test_mixed_sizes_in_one_instance(bench: Start, kind: str) -> None:
    node = bench("rtx-pro-6000-blackwell-server-edition:vfio", kind)
    found = cut(node, (47, 0, 3))
    assert [i.mixed_size for i in found.instances] == [False]
    node.backend.set_mixed_size(found.pci, True)
    assert [i.mixed_size for i in gpu(node).instances] == [True]
    make(node, found, "DC-1-12Q", 0)
    make(node, found, "DC-1-8Q", 1)


def test_mixed_sizes(bench: Start, kind: str) -> None:
    node = bench("l40s:vfio", kind)
    found = ready(node)
    assert found.virtual is not None
    assert found.virtual.mixed_size is False
    node.backend.set_mixed_size(found.pci, True)
    on = gpu(node).virtual
    assert on is not None
    assert on.mixed_size is True
    big, small = make(node, found, "L40S-24Q", 0), make(node, found, "L40S-8Q", 1)
    table = types(node)
    assert big.placement in table.by_id[big.type_id].mixed
    assert small.placement in table.by_id[small.type_id].mixed
    with pytest.raises(InUseError):
        node.backend.set_mixed_size(found.pci, False)
    end(node, found, big)
    end(node, found, small)
    node.backend.set_mixed_size(found.pci, False)
    assert gpu(node) == found


def test_equal_sizes(bench: Start, kind: str) -> None:
    node = bench("l40s:vfio", kind)
    found = ready(node)
    make(node, found, "L40S-24Q", 0)
    before = gpu(node)
    with pytest.raises(AliquotError):
        make(node, found, "L40S-8Q", 1)
    assert gpu(node) == before


def test_functions_off_take_instances_with_them(bench: Start, kind: str) -> None:
    node = bench("a100-sxm4-40gb:mdev", kind)
    found = cut(node, (9, 0, 4))
    node.backend.set_functions(found.pci, 16)
    assert gpu(node) == found, "the number was correct: no change"
    node.backend.set_functions(found.pci, 0)
    after = gpu(node)
    assert (after.instances, after.mig.enabled) == ((), True)
