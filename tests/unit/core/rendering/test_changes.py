"""Differences between two observations, as sentences."""

from __future__ import annotations

from msgspec.structs import replace

from aliquot.core.model.inventory import (
    ComputeInstance,
    Gpu,
    GpuInstance,
    GpuVirtualization,
    Holder,
    Inventory,
    Mig,
    Vgpu,
    VirtualFunction,
)
from aliquot.core.rendering.diff_text import changes

PCI = "0000:41:00.0"
JOB = Holder("job", "8812", "train")
MIG = Mig(capable=True, current="enabled", pending="enabled")
A = GpuInstance(7, "1g.5gb", 19, "0:1", compute_instances=(ComputeInstance(0, "1g.5gb", 0, "0:1"),))
B = GpuInstance(2, "3g.20gb", 9, "4:4")
GPU = Gpu(PCI, "GPU-1", 3, "NVIDIA A100-SXM4-40GB", family="a100-40gb", mig=MIG, instances=(A, B))
VGPU = Vgpu("0000:41:00.4", 5, "NVIDIA A2-4Q", "u1")


def node(*gpus: Gpu, driver: str = "580.1") -> Inventory:
    return Inventory("n", gpus, driver=driver)


def reported(before: Gpu, after: Gpu) -> list[str]:
    found = changes(node(before), node(after))
    assert all(c.gpu == PCI and c.text.startswith(f"GPU 3 {PCI}: ") for c in found)
    return [c.text.partition(f"{PCI}: ")[2] for c in found]


def test_nothing_is_nothing() -> None:
    assert changes(node(GPU), node(GPU)) == ()
    assert changes(node(GPU), node(replace(GPU, index=3))) == ()


def test_instances_come_and_go() -> None:
    assert reported(GPU, replace(GPU, instances=(B,))) == ["destroyed 1g.5gb at 0:1"]
    made = replace(A, id=8, placement="1:1", holders=(JOB,), held=True)
    assert reported(GPU, replace(GPU, instances=(A, made, B))) == ["created 1g.5gb at 1:1, held by job 8812 (train)"]
    other = replace(A, profile="1g.5gb+me", profile_id=20)
    assert reported(GPU, replace(GPU, instances=(other, B))) == ["destroyed 1g.5gb at 0:1", "created 1g.5gb+me at 0:1"]


def test_a_gpu_instance_gets_another_scheduler() -> None:
    before, after = replace(B, scheduler="best-effort"), replace(B, scheduler="equal-share,2ms")
    shown = reported(replace(GPU, instances=(A, before)), replace(GPU, instances=(A, after)))
    assert shown == ["3g.20gb at 4:4 has scheduler equal-share,2ms"]
    assert reported(GPU, replace(GPU, instances=(A, before))) == [], "it was not seen before"


def test_instances_change_hands() -> None:
    held = replace(A, held=True, holders=(JOB,))
    assert reported(GPU, replace(GPU, instances=(held, B))) == ["1g.5gb at 0:1 held by job 8812 (train)"]
    assert reported(replace(GPU, instances=(held, B)), GPU) == ["1g.5gb at 0:1 idle"]
    inner = replace(A, compute_instances=(replace(A.compute_instances[0], holders=(JOB,)),))
    assert reported(GPU, replace(GPU, instances=(inner, B))) == ["1g.5gb at 0:1 held by job 8812 (train)"]
    name = "x\nblocked[MOVED]: the machine has changed\r\u2028\x85\x1b[2J\ud800 äö"
    named = replace(A, held=True, holders=(Holder("process", "1", name),))
    (line,) = reported(GPU, replace(GPU, instances=(named, B)))
    assert line.endswith("held by process 1 (x?blocked[MOVED]: the machine has changed????[2J? äö)"), "one line"
    unnamed = replace(A, held=True)
    assert reported(GPU, replace(GPU, instances=(unnamed, B))) == ["1g.5gb at 0:1 held"]


def test_compute_instances() -> None:
    parts = tuple(ComputeInstance(n, "1c.3g.20gb", 0, f"{n}:1") for n in range(2))
    one, two = replace(B, compute_instances=parts[:1]), replace(B, compute_instances=parts)
    assert reported(replace(GPU, instances=(A, one)), replace(GPU, instances=(A, two))) == [
        "created compute instance 1c.3g.20gb in 3g.20gb at 4:4"
    ]
    assert reported(replace(GPU, instances=(A, two)), replace(GPU, instances=(A, one))) == [
        "destroyed compute instance 1c.3g.20gb in 3g.20gb at 4:4"
    ]


def test_modes() -> None:
    off = replace(GPU, mig=Mig(capable=True), instances=())
    waiting = replace(off, mig=Mig(capable=True, pending="enabled"))
    assert reported(off, waiting) == ["MIG enabled after a reset"]
    assert reported(waiting, replace(GPU, instances=())) == ["MIG enabled"]
    assert reported(GPU, replace(GPU, lost=True)) == ["has fallen off the bus"]
    assert reported(replace(GPU, lost=True), GPU) == ["is back on the bus"]
    assert reported(GPU, replace(GPU, passthrough=True)) == ["passthrough on"]
    assert reported(GPU, replace(GPU, holders=(JOB,))) == ["the whole GPU held by job 8812 (train)"]


def test_virtual_machines() -> None:
    on = GpuVirtualization(framework="vendor-vfio", functions=(VirtualFunction("0000:41:00.4", 0),), mixed_size=False)
    bare = replace(GPU, instances=(), mig=Mig())
    shared = replace(bare, virtual=on)
    assert reported(bare, shared)[0] == "1 virtual functions on"
    assert reported(shared, replace(shared, vgpus=(VGPU,))) == ["created vGPU NVIDIA A2-4Q on 0000:41:00.4"]
    taken = replace(VGPU, holders=(Holder("vm", "4711", "win10"),))
    assert reported(replace(shared, vgpus=(VGPU,)), replace(shared, vgpus=(taken,))) == [
        "vGPU NVIDIA A2-4Q on 0000:41:00.4 held by vm 4711 (win10)"
    ]
    assert reported(replace(shared, vgpus=(VGPU,)), shared) == ["destroyed vGPU NVIDIA A2-4Q on 0000:41:00.4"]
    assert reported(shared, replace(shared, virtual=replace(on, mixed_size=True))) == ["mixed-size mode on"]


def test_gpus_and_drivers() -> None:
    other = replace(GPU, pci="0000:42:00.0", index=4)
    assert [c.text for c in changes(node(GPU), node(GPU, other))] == ["GPU 4  0000:42:00.0  A100-SXM4-40GB: appeared"]
    assert [c.text for c in changes(node(GPU, other), node(GPU))] == ["GPU 4  0000:42:00.0  A100-SXM4-40GB: is gone"]
    assert [c.text for c in changes(node(GPU), node(GPU, driver="590.2"))] == ["driver 580.1 became 590.2"]
    assert reported(GPU, replace(GPU, uuid="GPU-2")) == ["is another GPU now: GPU-2 in the place of GPU-1"]
