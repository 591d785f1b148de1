"""vGPUs drawn over their GPU's memory, and plans that create and destroy them."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.cli.framework.views import plan_view as plan_views
from aliquot.cli.framework.views import vgpu_drawing as vgpu_drawings
from aliquot.cli.framework.views import vgpu_view as vgpu_views
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.actions import Action, CreateVgpu, DestroyVgpu, SetFunctions, SetMixedSize, SetPassthrough
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import GpuVirtualization, Holder, HostVirtualization, Inventory, Vgpu, VirtualFunction
from aliquot.core.model.plan import Plan, Policy, make_plan
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.core.rendering import action_text as planner_actions
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import plan_summary as summary
from aliquot.core.rendering import vgpu_picture as shares
from support.factory import inventory

replace = msgspec.structs.replace
VM = Holder("vm", "4711", "win10")


def node(product: str, **virtual: object) -> Inventory:
    base = inventory(product)
    board = next((r.subsystem for r in vgpu.rows() if r.file == product), "")
    gpu = replace(base.gpus[0], subsystem=board, virtual=GpuVirtualization(**virtual))  # type: ignore[arg-type]
    return replace(base, gpus=(gpu,))


def table(found: Inventory) -> VgpuTable:
    got = found.vgpu_table(found.gpus[0])
    assert got is not None
    return got


def made(found: Inventory, *names: str, places: tuple[int | None, ...] = (), held: int = -1) -> Inventory:
    """Return the node with these vGPUs on its first GPU."""
    types = table(found).by_name
    vgpus = tuple(
        Vgpu(
            f"0000:07:00.{n + 4}",
            types[name].id or 0,
            types[name].name,
            f"uuid-{n}",
            placement=places[n] if places else None,
            holders=(VM,) if n == held else (),
        )
        for n, name in enumerate(names)
    )
    return replace(found, gpus=(replace(found.gpus[0], vgpus=vgpus),))


def picture(found: Inventory) -> list[str]:
    return vgpu_views.picture(found.gpus[0], mig_picture.title(found.gpus[0]), found, 36, False)


def test_equal_sizes_stand_side_by_side_under_the_gib() -> None:
    found = made(node("a2", framework="sriov-mdev", total=16), "A2-4Q", "A2-4C", "A2-4Q", held=1)
    assert picture(found) == [
        "GPU 0  0000:07:00.0  A2             GiB  0       8",
        "  now  A2-4C:1,A2-4Q:2  (b held)         aaaabbbbcccc....",
    ]


def test_mixed_sizes_stand_where_they_are() -> None:
    found = made(
        node("l40s", framework="vendor-vfio", mixed_size=True), "L40S-24Q", "L40S-8Q", "L40S-4Q", places=(24, 16, 4)
    )
    assert picture(found)[1].split()[-1] == "....cccc........bbbbbbbb" + "a" * 24


@pytest.mark.parametrize("file", [r.file for r in vgpu.rows()])
def test_every_type_of_every_card_can_be_drawn(file: str) -> None:
    got = vgpu._table(file)
    for each in got.types:
        if each.mig_backed or each.id is None:
            continue
        places = each.mixed or (None,)
        for place in places:
            share = shares.DrawnVgpu("a", each.short, ("f", "u"), max(1, each.size_gib), place)
            bar = vgpu_drawings.bar("", (share,), got, 0, False).strip()
            cells = bar.count("a")
            unit = -(-got.region // 48)
            assert cells >= 1, (each.name, place)
            assert abs(cells * unit - max(1, each.size_gib)) < 2 * unit, (each.name, place)
            assert len(bar) == -(-got.region // unit)
    assert len(vgpu_drawings.ruler("", got, 0)) <= 4 + 1 + 60


def test_instances_say_where_mig_backed_ones_are() -> None:
    base = node("h100-80gb-hbm3", framework="vendor-vfio")
    on = replace(base.gpus[0], mig=replace(base.gpus[0].mig, current="enabled"))
    gpu = replace(on, vgpus=(Vgpu("f", 1131, "NVIDIA H100XM-1-10C", "u", gpu_instance=7),))
    found = replace(base, gpus=(gpu,))
    assert picture(found) == ["GPU 0  0000:07:00.0  H100 80GB HBM3", "  now  H100XM-1-10C:1"]
    assert vgpu_views.rows(gpu)[0][4] == "instance 7"


def test_rows_name_the_virtual_machine_and_what_a_reboot_took() -> None:
    found = made(node("a2", framework="sriov-mdev"), "A2-4Q", "A2-4Q", held=0)
    gpu = found.gpus[0]
    bound = VirtualFunction("0000:07:00.7", 3, "vfio-pci", 93, (Holder("vm", "9", "linux"),))
    lost = Vgpu("0000:07:01.0", 746, "NVIDIA A2-4Q", "uuid-9")
    gpu = replace(gpu, virtual=GpuVirtualization("sriov-mdev", functions=(bound,), recorded_vgpus=(lost, gpu.vgpus[0])))
    states = [(r[2], r[5]) for r in vgpu_views.rows(gpu)]
    assert states == [
        ("0000:07:00.4", "held by vm 4711 (win10)"),
        ("0000:07:00.5", "idle"),
        ("0000:07:00.7", "held by vm 9 (linux)"),
        ("0000:07:01.0", "remembered: a reboot took it"),
    ]


@pytest.mark.parametrize(
    ("virtual", "handed", "words"),
    [
        ({}, False, ""),
        ({"total": 16}, False, ""),
        ({"framework": "mdev"}, False, "vGPU host, framework mdev"),
        ({"framework": "sriov-mdev", "total": 16}, False, "vGPU host, VFs off, framework sriov-mdev"),
        ({"framework": "vendor-vfio", "mixed_size": True}, False, "vGPU host, framework vendor-vfio, mixed-size mode"),
        ({}, True, "has no driver: a change of its passthrough was interrupted"),
        (
            {"driver": "vfio-pci", "iommu_group": 38},
            True,
            "passed through to virtual machines (vfio-pci, IOMMU group 38)",
        ),
    ],
)
def test_a_gpu_says_what_it_is_to_virtual_machines(virtual: dict[str, object], handed: bool, words: str) -> None:
    found = node("a2", **virtual)
    gpu = replace(found.gpus[0], passthrough=handed)
    assert vgpu_views.fact(gpu, found) == words
    able = vgpu_views.fact(gpu, replace(found, host=HostVirtualization(vgpu_manager=True)))
    assert able == (words or ("vGPU host, VFs off" if "total" in virtual else ""))


def test_what_can_be_done_with_a_gpu_whose_functions_are_off() -> None:
    able = HostVirtualization(vgpu_manager=True)
    found = replace(node("a2", total=16), host=able)
    (answer,) = vgpu_views.advice(found.gpus, found)
    assert "GPU 0 are off" in answer
    assert "'aliquot vgpu enable 0'" in answer
    lost = Vgpu("0000:07:00.4", 746, "NVIDIA A2-4Q")
    found = replace(node("a2", total=16, recorded_vgpus=(lost,)), host=able)
    (answer,) = vgpu_views.advice(found.gpus, found)
    assert "'aliquot restore --boot'" in answer
    for none in (
        node("a2", total=16),
        replace(
            node("a2", framework="sriov-mdev", total=16, functions=(VirtualFunction("0000:07:00.4", 0),)), host=able
        ),
        replace(node("tesla-t4", framework="mdev"), host=able),
    ):
        assert vgpu_views.advice(none.gpus, none) == []


def plan_of(found: Inventory, *actions: Action) -> Plan:
    return make_plan("n", "f", Desired(()), actions, policy=Policy(), unchanged=0)


def test_a_plan_draws_what_stays_goes_and_comes() -> None:
    found = made(node("a2", framework="sriov-mdev", functions=()), "A2-4Q", "A2-4Q", held=0)
    gpu = found.gpus[0]
    gone = DestroyVgpu(
        gpu=gpu.pci, reason="not requested", function="0000:07:00.5", type_id=746, type="NVIDIA A2-4Q", uuid="uuid-1"
    )
    new = CreateVgpu(
        gpu=gpu.pci, reason="requested", function="0000:07:00.6", type_id=746, type="NVIDIA A2-4C", uuid="uuid-8"
    )
    lines = plan_views.text(plan_of(found, gone, new), found, False).splitlines()
    assert lines == [
        "GPU 0  0000:07:00.0  A2               GiB  0       8",
        "  now      A2-4Q:2  (a held)               aaaabbbb........",
        "  planned  A2-4C:1,A2-4Q:1  (a held)       aaaacccc........",
        "   1  destroy  b  A2-4Q on 0000:07:00.5  not requested",
        "   2  create   c  A2-4C on 0000:07:00.6  requested",
        "",
        "keep 0, destroy 1, create 1",
    ]
    assert summary.applied_text(plan_of(found, gone, new)) == "kept 0, destroyed 1, created 1"


def test_a_plan_of_modes_needs_no_picture() -> None:
    found = node("a2", total=16)
    gpu = found.gpus[0]
    on = SetFunctions(gpu=gpu.pci, reason="vGPUs are asked", count=16)
    mixed = SetMixedSize(gpu=gpu.pci, reason="requested", on=True)
    lines = plan_views.text(plan_of(found, on, mixed), found, False).splitlines()
    assert lines[0] == "GPU 0  0000:07:00.0  A2"
    assert [line.split(None, 2)[2] for line in lines[3:5]] == [
        "16 virtual functions on  vGPUs are asked",
        "mixed-size mode on       requested",
    ]
    assert lines[-1] == "set virtual functions of GPU 0000:07:00.0, set mixed-size mode of GPU 0000:07:00.0"


def test_a_plan_for_passthrough_says_so() -> None:
    found = node("a2", total=16)
    one = SetPassthrough(gpu=found.gpus[0].pci, reason="requested", on=True)
    lines = plan_views.text(plan_of(found, one), found, False).splitlines()
    assert lines[2].split() == ["planned", "passed", "through"]
    assert planner_actions.describe_action(one, found.gpus[0], (one,)) == ("set", "", "passthrough on")
    vf = replace(one, on=False, function="0000:07:00.4")
    assert planner_actions.describe_action(vf, found.gpus[0], (vf,))[2] == "passthrough of 0000:07:00.4 off"
