"""Kernel part of the Backend contract: one suite for every vGPU framework and every way to the kernel's files."""

from __future__ import annotations

import pytest

from aliquot.core.model.inventory import Holder
from aliquot.errors import AliquotError, BlockedError, HardwareError, InUseError
from contract.virtual_bench import KINDS, Bench, Start, bench, carrier, end, gpu, make, ready, types, uuid

__all__ = ["bench"]

FRAMEWORKS = {
    "tesla-t4:mdev": ("mdev", "T4-4Q", 0, 4),
    "a2:mdev": ("sriov-mdev", "A2-4Q", 16, 4),
    "l40s:vfio": ("vendor-vfio", "L40S-16Q", 32, 3),
    "a100-sxm4-40gb:mdev": ("sriov-mdev", "A100X-10C", 16, 4),
    "rtx-pro-6000-blackwell-server-edition:vfio": ("vendor-vfio", "DC-32Q", 48, 3),
}
"""By template: framework, type, number of virtual functions, number of vGPUs of that type."""

every = pytest.mark.parametrize("template", FRAMEWORKS)
pytestmark = pytest.mark.parametrize("kind", KINDS)


def by_hand(node: Bench, function: str, framework: str, mdev: str, name: str) -> None:
    """Create a vGPU as a script would."""
    folder = f"/sys/bus/pci/devices/{function}"
    if framework == "vendor-vfio":
        node.files.write(f"{folder}/nvidia/current_vgpu_type", mdev.removeprefix("nvidia-"))
    else:
        node.files.write(f"{folder}/mdev_supported_types/{mdev}/create", name)


@every
def test_what_a_gpu_shows(bench: Start, template: str, kind: str) -> None:
    node = bench(template, kind)
    environment, _, total, _ = FRAMEWORKS[template]
    before = gpu(node)
    assert before.virtual is not None
    assert (before.virtual.total, before.virtual.functions, before.virtual.driver) == (total, (), "nvidia")
    assert before.virtual.framework == ("" if total else "mdev"), "the framework shows once virtual functions are on"
    assert before.virtual.group_members == (before.pci,)
    host = node.backend.read().host
    assert host is not None
    assert (host.iommu, host.vfio, host.vgpu_manager) == (True, True, True)
    on = ready(node)
    assert on.virtual is not None
    assert on.virtual.framework == environment
    assert tuple(f.pci for f in on.virtual.functions) == before.virtual.addresses, "on the expected functions"
    assert [f.number for f in on.virtual.functions] == list(range(total))
    assert {f.driver for f in on.virtual.functions} <= {"nvidia"}
    assert len({f.iommu_group for f in on.virtual.functions}) == total
    assert set(on.virtual.creatable or ()) <= set(types(node).by_id)
    assert node.backend.read_gpu(on.pci) == on
    assert node.backend.read().notes == ()


@every
def test_make_show_and_end(bench: Start, template: str, kind: str) -> None:
    node = bench(template, kind)
    _, short, _, most = FRAMEWORKS[template]
    start = ready(node)
    made = [make(node, start, short, number) for number in range(most)]
    full = gpu(node)
    assert sorted(v.uuid for v in full.vgpus) == [uuid(n) for n in range(most)]
    assert {v.type for v in full.vgpus} == {types(node).by_name[short].name}, "a full GPU does not hide names"
    assert len({v.ownership_token for v in full.vgpus}) == most
    assert not any(v.held for v in full.vgpus)
    assert {v.placement for v in full.vgpus} == {None}, "places count in mixed-size mode only"
    assert full.virtual is not None
    assert types(node).by_name[short].id not in (full.virtual.creatable or ())
    for vgpu in made:
        end(node, start, vgpu)
    assert gpu(node) == start


@every
def test_a_function_that_is_taken(bench: Start, template: str, kind: str) -> None:
    node = bench(template, kind)
    short = FRAMEWORKS[template][1]
    found = ready(node)
    there = make(node, found, short)
    before = gpu(node)
    with pytest.raises(InUseError) as caught:
        node.backend.create_vgpu(found.pci, there.function, there.type_id, there.uuid)
    assert caught.value.next_step
    assert gpu(node) == before


@every
def test_a_late_release_cannot_hit_the_next_owner(bench: Start, template: str, kind: str) -> None:
    # The next vGPU may have the same type and UUID on the same function: only the ownership token distinguishes them.
    node = bench(template, kind)
    short = FRAMEWORKS[template][1]
    found = ready(node)
    first = make(node, found, short)
    end(node, found, first)
    with pytest.raises(HardwareError, match="no longer exists"):
        end(node, found, first)
    second = make(node, found, short)
    assert second.ownership_token != first.ownership_token
    with pytest.raises(InUseError, match="another vGPU"):
        end(node, found, first)
    assert gpu(node).vgpus == (second,)
    end(node, found, second)
    assert gpu(node).vgpus == ()


@every
def test_what_a_machine_has_open_stays(bench: Start, template: str, kind: str) -> None:
    node = bench(template, kind)
    found = ready(node)
    vgpu = make(node, found, FRAMEWORKS[template][1])
    device = vgpu.uuid if (found.virtual and found.virtual.framework != "vendor-vfio") else vgpu.function
    pid = node.control("vm-start", name="web", devices=[device])["pid"]
    assert gpu(node).vgpus[0].holders == (Holder("vm", str(pid), "web"),)
    with pytest.raises(InUseError, match="web"):
        end(node, found, vgpu)
    if found.virtual and found.virtual.total:
        with pytest.raises(InUseError, match="in use"):
            node.backend.set_functions(found.pci, 0)
    assert gpu(node).vgpus[0].ownership_token == vgpu.ownership_token
    assert not [c for c in node.calls() if c.get("value") == "0" or "remove" in str(c.get("path"))], "never written"
    node.control("vm-stop", name="web")
    end(node, found, vgpu)


@every
def test_what_was_made_by_hand_is_adopted_and_not_owned(bench: Start, template: str, kind: str) -> None:
    node = bench(template, kind)
    environment, short, _, _ = FRAMEWORKS[template]
    found = ready(node)
    kind_of = types(node).by_name[short]
    function = carrier(found, 3)
    by_hand(node, function, environment, kind_of.mdev, uuid(7))
    (foreign,) = gpu(node).vgpus
    assert (foreign.ownership_token, foreign.type_id, foreign.function) == ("", kind_of.id, function)
    assert foreign.uuid == (uuid(7) if environment != "vendor-vfio" else foreign.uuid)
    ours = make(node, found, short, 5)
    assert ours.ownership_token
    assert foreign in gpu(node).vgpus, "the same before and after the adoption"
    with pytest.raises(InUseError, match="another vGPU"):
        node.backend.destroy_vgpu(found.pci, function, foreign.type_id, foreign.uuid, ours.ownership_token)
    end(node, found, foreign)
    assert gpu(node).vgpus == (ours,)


@every
def test_a_reboot_takes_everything_but_the_memory(bench: Start, template: str, kind: str) -> None:
    node = bench(template, kind)
    _, short, total, _ = FRAMEWORKS[template]
    found = ready(node)
    made = [make(node, found, short, number) for number in (0, 2)]
    node.control("reboot")
    after = gpu(node)
    assert after.virtual is not None
    assert (after.vgpus, len(after.virtual.functions)) == ((), 0)
    remembered = [(v.function, v.type_id, v.type, v.uuid, v.ownership_token) for v in after.virtual.recorded_vgpus]
    assert remembered == [(v.function, v.type_id, v.type, v.uuid, "") for v in made], (
        "ownership tokens end with the boot"
    )
    again = ready(node)
    back = make(node, again, short, 2)
    assert (back.function, back.uuid) == (made[1].function, made[1].uuid)
    assert back.ownership_token != made[1].ownership_token
    left = gpu(node).virtual
    assert left is not None
    assert [v.uuid for v in left.recorded_vgpus] == [made[0].uuid]
    assert total == len(left.functions)


@every
def test_what_was_made_again_after_a_reboot_is_not_ours(bench: Start, template: str, kind: str) -> None:
    # mdevctl starts mdevs at boot, and a script writes types: the same function and type, but another owner.
    node = bench(template, kind)
    environment, short, _, _ = FRAMEWORKS[template]
    found = ready(node)
    was = make(node, found, short)
    node.control("reboot")
    again = ready(node)
    assert again.virtual is not None
    assert len(again.virtual.recorded_vgpus) == 1
    by_hand(node, was.function, environment, types(node).by_name[short].mdev, was.uuid)
    (now,) = gpu(node).vgpus
    assert (now.function, now.type, now.uuid, now.ownership_token) == (was.function, was.type, was.uuid, "")
    virtual = gpu(node).virtual
    assert virtual is not None
    assert virtual.recorded_vgpus == (), "it is there"
    with pytest.raises(InUseError, match="another vGPU"):
        end(node, again, was)
    assert gpu(node).vgpus == (now,)


def test_one_of_several_on_a_gpu(bench: Start, kind: str) -> None:
    # If vGPUs are mdevs of the GPU itself, a missing one is not confused with its neighbor.
    node = bench("tesla-t4:mdev", kind)
    found = ready(node)
    first, second = make(node, found, "T4-4Q", 0), make(node, found, "T4-4Q", 1)
    assert first.function == second.function == found.pci
    end(node, found, first)
    with pytest.raises(HardwareError, match="no longer exists"):
        end(node, found, first)
    assert gpu(node).vgpus == (second,)


@pytest.mark.parametrize("template", ["a2:mdev", "a2:vfio"])
def test_a_move_between_frameworks(bench: Start, template: str, kind: str) -> None:
    node = bench(template, kind)
    there = {"a2:mdev": "sriov-mdev", "a2:vfio": "vendor-vfio"}
    other = next(t for t in there if t != template)
    found = ready(node)
    was = make(node, found, "A2-4Q", 1)
    node.control("reboot", kernel=other.partition(":")[2])
    after = ready(node)
    assert after.virtual is not None
    assert after.virtual.framework == there[other]
    assert [v.uuid for v in after.virtual.recorded_vgpus] == [was.uuid]
    now = make(node, after, "A2-4Q", 1)
    assert (now.function, now.type, now.uuid) == (was.function, was.type, was.uuid)
    assert now.ownership_token != was.ownership_token
    end(node, after, now)
    assert gpu(node).vgpus == ()


def test_without_a_vgpu_driver(bench: Start, kind: str) -> None:
    node = bench("a2", kind)
    found = gpu(node)
    assert found.virtual is not None
    assert (found.virtual.framework, found.virtual.creatable) == ("", None)
    host = node.backend.read().host
    assert host is not None
    assert host.vgpu_manager is False
    with pytest.raises(BlockedError):
        node.backend.create_vgpu(found.pci, found.virtual.addresses[0], 746, uuid(0))
    with pytest.raises(AliquotError) as caught:
        node.backend.set_functions(found.pci, 16)
    assert caught.value.next_step
    assert gpu(node) == found
