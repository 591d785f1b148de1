"""Types that can be created on a GPU now, and the reasons why others cannot."""

from __future__ import annotations

import msgspec

import support.vgpufactory as factory
from aliquot.core.model.inventory import Gpu, HostVirtualization
from aliquot.core.planner.plan import plan
from aliquot.core.planner.semantics import step
from aliquot.core.planner.vgpu.creatable_types import TypeAnswer, type_answers

replace = msgspec.structs.replace
A2, L40S, H100 = "NVIDIA A2", "NVIDIA L40S", "NVIDIA H100 PCIe"


def answers(of: Gpu, host: HostVirtualization | None = None) -> dict[str, TypeAnswer]:
    return {a.name.rpartition(" ")[2]: a for a in type_answers(factory.node(of, host=host), of)}


def test_an_empty_gpu_takes_the_most_of_each() -> None:
    found = answers(factory.gpu(A2))
    assert {n: a.now for n, a in found.items() if n.endswith("Q")} == {
        "A2-1Q": 16,
        "A2-2Q": 8,
        "A2-4Q": 4,
        "A2-8Q": 2,
        "A2-16Q": 1,
    }
    assert (found["A2-3B"].now, found["A2-3B"].rule) == (0, "TYPE_WITHOUT_ID")
    assert found["A2-4Q"].creatable
    assert found["A2-4Q"].why == ""


def test_a_size_shuts_out_the_others() -> None:
    # As recorded on an A2: next to three vGPUs of 4 GiB a free function accepts one more of 4Q, 4A and 4C only.
    kinds = [factory.kind(A2, s) for s in ("4C", "4A", "4Q")]
    of = factory.having(factory.gpu(A2), *((each, n) for n, each in enumerate(kinds)))
    found = answers(of)
    assert {n for n, a in found.items() if a.now} == {"A2-4Q", "A2-4A", "A2-4C"}
    assert {a.now for n, a in found.items() if n in ("A2-4Q", "A2-4A", "A2-4C")} == {1}
    assert found["A2-8Q"].rule == "EQUAL_SIZE"
    assert "4 GiB (NVIDIA A2-4C)" in found["A2-8Q"].why
    full = answers(factory.having(factory.gpu(A2), *((kinds[2], n) for n in range(4))))
    assert (full["A2-4Q"].now, full["A2-4Q"].rule) == (0, "MAX_VGPUS")
    assert "the GPU has 4 vGPUs" in full["A2-4Q"].why


def test_modes_drivers_and_functions() -> None:
    assert {a.rule for a in answers(factory.gpu(A2, on=False)).values()} == {"NO_FUNCTION", "TYPE_WITHOUT_ID"}
    ordinary = answers(factory.gpu(A2), HostVirtualization(vgpu_manager=False))
    assert ordinary["A2-4Q"].rule == "NO_VGPU_DRIVER"
    off = answers(factory.gpu(A2), HostVirtualization(iommu=False, vgpu_manager=True))
    assert (off["A2-4Q"].rule, off["A2-4Q"].why) == ("NO_IOMMU", "the IOMMU is off")
    silent = factory.gpu("Tesla T4")
    assert silent.virtual is not None
    idle = answers(
        replace(silent, virtual=replace(silent.virtual, framework="")),
        HostVirtualization(iommu=True, vgpu_manager=True),
    )
    assert (idle["T4-4Q"].now, idle["T4-4Q"].rule) == (0, "NO_VGPU_DRIVER"), "its kernel shows no mdevs"
    assert answers(replace(factory.gpu(A2), passthrough=True))["A2-4Q"].rule == "PASSTHROUGH"
    assert answers(replace(factory.gpu(A2), lost=True))["A2-4Q"].rule == "GPU_LOST"
    off, on = answers(factory.gpu(H100)), answers(factory.gpu(H100, mig=True))
    assert off["H100-1-10C"].why == "MIG mode is disabled: it needs a GPU instance 1g.10gb"
    assert on["H100-10C"].rule == "MIG_TYPE"
    assert on["H100-1-10C"].why == "the GPU has no GPU instance 1g.10gb"
    assert type_answers(factory.node(), replace(factory.gpu(A2), pci_device="0x123410DE")) == ()
    t4 = answers(factory.gpu("Tesla T4"))
    assert t4["T4-4Q"].now == 4


def test_mig_backed_types_count_the_free_gpu_instances() -> None:
    of = factory.gpu(H100)
    node = factory.node(of)
    got = plan(node, factory.desired_state(of, {"H100-1-10C": 3}))
    for action in got.actions[:-2]:
        node = step(node, action)
    found = {a.name.rpartition(" ")[2]: a for a in type_answers(node, node.gpus[0])}
    assert found["H100-1-10C"].now == 2
    for action in got.actions[-2:]:
        node = step(node, action)
    found = {a.name.rpartition(" ")[2]: a for a in type_answers(node, node.gpus[0])}
    assert found["H100-1-10C"].why == "every GPU instance 1g.10gb is in use"


def test_mixed_sizes_count_free_places() -> None:
    of = factory.having(factory.gpu(L40S, mixed=True), (factory.kind(L40S, "24Q"), 0, 24))
    found = answers(of)
    assert (found["L40S-4Q"].now, found["L40S-24Q"].now, found["L40S-48Q"].now) == (4, 1, 0)
    assert found["L40S-48Q"].rule == "MIXED_SIZE"


def test_the_driver_s_own_list_is_compared() -> None:
    of = factory.gpu(A2)
    assert of.virtual is not None
    listed = replace(of, virtual=replace(of.virtual, creatable=(746,)))
    found = answers(listed)
    assert found["A2-4Q"].differs == ""
    assert found["A2-8Q"].differs == "the driver does not list it as creatable"
    assert (found["A2-8Q"].now, found["A2-8Q"].rule) == (0, "SERIES")
    each = factory.kind(A2, "8Q")
    beside = answers(factory.having(listed, (each, 0)))
    assert beside["A2-4Q"].differs == "the driver lists it as creatable"


def test_of_an_a2_only_q_types_may_be_several_in_one_machine() -> None:
    found = answers(factory.gpu(A2))
    assert {n: a.per_vm for n, a in found.items() if n in ("A2-4Q", "A2-4C", "A2-4A")} == {
        "A2-4Q": 16,
        "A2-4C": 1,
        "A2-4A": 1,
    }
    assert answers(factory.gpu(L40S))["L40S-4C"].per_vm == 16
