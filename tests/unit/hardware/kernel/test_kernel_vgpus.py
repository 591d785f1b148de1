"""vGPUs in files of plain folders: names, formats, invalid contents."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import Gpu, GpuInstance, Holder, Mig, Vgpu
from aliquot.hardware.kernel.mdev import MdevFramework
from aliquot.hardware.kernel.mig_backed import expected_instance, with_vgpu_holders
from aliquot.hardware.kernel.reader import read_gpu_state
from aliquot.hardware.kernel.sysfs import MalformedError
from aliquot.hardware.kernel.vendor_vfio import VendorVfio, parse_creatable_types
from aliquot.hardware.kernel.vgpu_owners import OwnerMap, VgpuOwner

from .tree import A2, DEVICES, Tree, bare

VF = "0000:08:00.4"
UUID = "c2fa8a40-94c5-4d4c-b9c8-3f6f4a6e1f01"
LIST = "ID    : vGPU Name\n1145  : NVIDIA L40S-1B\n10001 : NVIDIA L40S-99Q\n1146  : NVIDIA L40S-2B\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.function(A2)
    made.sriov(A2, 16, on=2)
    made.virtual(A2, 0, VF)
    made.virtual(A2, 1, "0000:08:00.5")
    return made


def mdev_type(tree: Tree, function: str, folder: str, name: str, free: int) -> str:
    where = f"{DEVICES}/{function}/mdev_supported_types/{folder}"
    tree.put(f"{where}/name", f"{name}\n")
    tree.put(f"{where}/available_instances", f"{free}\n")
    about = "num_heads=4, frl_config=60, framebuffer=4096M, max_resolution=7680x4320, max_instance=4"
    tree.put(f"{where}/description", about + "\n")
    tree.put(f"{where}/create", "")
    return where


def mdev(tree: Tree, function: str, uuid: str, folder: str) -> None:
    tree.tie(f"{DEVICES}/{function}/{uuid}/mdev_type", f"../mdev_supported_types/{folder}")
    tree.tie(f"{DEVICES}/{function}/{uuid}/iommu_group", "../../../kernel/iommu_groups/91")


def test_what_runs_is_never_taken_for_gone(tree: Tree) -> None:
    # If an empty attribute or an unknown type counted as no vGPU, the functions of the vGPU would be disabled.
    tree.put(f"{DEVICES}/{VF}/nvidia/current_vgpu_type", "\n")
    with pytest.raises(MalformedError, match="current_vgpu_type is empty"):
        read_gpu_state(tree.scene(), bare())
    tree.put(f"{DEVICES}/{VF}/nvidia/current_vgpu_type", "746\n")
    for name in ("totalvfs", "numvfs"):
        was = tree.read(f"{DEVICES}/{A2}/sriov_{name}")
        tree.put(f"{DEVICES}/{A2}/sriov_{name}", "")
        with pytest.raises(MalformedError, match=f"sriov_{name} is empty"):
            read_gpu_state(tree.scene(), bare())
        tree.put(f"{DEVICES}/{A2}/sriov_{name}", was)
    mdev(tree, VF, UUID, "mtty")
    with pytest.raises(MalformedError, match="'mtty'"):
        MdevFramework(tree, "sriov-mdev").inspect(VF)


# -- vendor-specific VFIO


def test_a_creatable_list() -> None:
    assert [(o.type_id, o.name, o.available) for o in parse_creatable_types(LIST, "/x")] == [
        (1145, "NVIDIA L40S-1B", 1),
        (1146, "NVIDIA L40S-2B", 1),
        (10001, "NVIDIA L40S-99Q", 1),
    ]
    assert parse_creatable_types("ID    : vGPU Name\n", "/x") == ()
    assert parse_creatable_types("", "/x") == ()


@pytest.mark.parametrize("text", ["no list\n", "ID\n", "ID : vGPU Name\nabc : X\n", "ID : vGPU Name\n1145 :\n", "7\n"])
def test_an_unreadable_list(text: str) -> None:
    with pytest.raises(MalformedError, match="/x has a line"):
        parse_creatable_types(text, "/x")


def test_vendor_vfio(tree: Tree) -> None:
    tree.put(f"{DEVICES}/{VF}/nvidia/current_vgpu_type", "0\n")
    tree.put(f"{DEVICES}/{VF}/nvidia/creatable_vgpu_types", LIST)
    framework = VendorVfio(tree)
    assert framework.inspect(VF) == ()
    assert [o.type_id for o in framework.list_types(VF, lambda type_id: False)] == [1145, 1146, 10001]
    framework.create(VF, 1146, "ignored")
    assert tree.read(f"{DEVICES}/{VF}/nvidia/current_vgpu_type") == "1146"
    tree.folder(f"{DEVICES}/{VF}/vfio-dev/vfio3")
    tree.put(f"{DEVICES}/{VF}/nvidia/gpu_instance_id", "4294967295\n")
    tree.put(f"{DEVICES}/{VF}/nvidia/placement_id", "12\n")
    tree.put(f"{DEVICES}/{VF}/nvidia/vgpu_params", "frame_rate_limiter=0, enable_uvm=1\n")
    (found,) = framework.inspect(VF)
    assert found.parameters == "enable_uvm=1,frame_rate_limiter=0"
    group = tree.link(f"{DEVICES}/{VF}/iommu_group").rpartition("/")[2]
    assert found.devices == (f"/dev/vfio/{group}", "/dev/vfio/devices/vfio3")
    assert (found.type_id, found.uuid, found.gpu_instance, found.placement) == (1146, "", None, 12)
    tree.put(f"{DEVICES}/{VF}/nvidia/current_vgpu_type", "what\n")
    with pytest.raises(MalformedError, match="current_vgpu_type"):
        framework.inspect(VF)


# -- mediated devices


def test_a_type_is_its_number(tree: Tree) -> None:
    # On one host, driver 550.163 named the folders of some functions vfio-pci-575.
    mdev_type(tree, VF, "nvidia-746", "NVIDIA A2-4Q", 1)
    where = mdev_type(tree, VF, "vfio-pci-9999", "NVIDIA A2-7Q", 0)
    tree.folder(f"{DEVICES}/{VF}/mdev_supported_types/odd")
    framework = MdevFramework(tree, "sriov-mdev")
    offers = framework.list_types(VF, lambda type_id: type_id == 9999)
    assert [(o.type_id, o.available, o.name) for o in offers] == [(746, 1, ""), (9999, 0, "NVIDIA A2-7Q")]
    assert "max_instance=4" in offers[1].description
    framework.create(VF, 9999, UUID)
    assert tree.read(f"{where}/create") == UUID
    with pytest.raises(FileNotFoundError):
        framework.create(VF, 1, UUID)


def test_mdevs_of_a_function(tree: Tree) -> None:
    mdev_type(tree, VF, "nvidia-746", "NVIDIA A2-4Q", 1)
    mdev(tree, VF, UUID, "nvidia-746")
    tree.folder(f"{DEVICES}/{VF}/{UUID[:-1]}2")  # creation in progress: no type yet
    tree.put(f"{DEVICES}/{VF}/{UUID}/nvidia/vgpu_params", "enable_uvm=1\n")
    (found,) = MdevFramework(tree, "sriov-mdev").inspect(VF)
    assert (found.uuid, found.type_id, found.devices) == (UUID, 746, ("/dev/vfio/91",))
    assert found.parameters == "enable_uvm=1"
    assert (found.gpu_instance, found.placement) == (None, None), "old drivers do not report it"
    assert MdevFramework(tree, "sriov-mdev").inspect("0000:08:00.5") == ()


# -- a complete read


def test_a_look_learns_what_the_catalog_lacks_and_remembers(tree: Tree) -> None:
    mdev_type(tree, VF, "nvidia-746", "NVIDIA A2-4Q", 1)
    mdev_type(tree, VF, "nvidia-9999", "NVIDIA A2-1-4C", 1)
    mdev_type(tree, VF, "nvidia-9998", "NVIDIA A2-5Q", 1)
    seen = read_gpu_state(tree.scene(), bare())
    assert seen.table is not None
    assert seen.table.source == "driver"
    fresh = seen.table.by_id[9998]
    assert (fresh.name, fresh.series, fresh.kind, fresh.fb_mib, fresh.max) == (
        "NVIDIA A2-5Q",
        "Q",
        "time-sliced",
        4096,
        4,
    )
    assert seen.table.by_id[9999].mig_backed
    known = vgpu.table("0x25B610DE", "0x157E10DE")
    assert known is not None
    assert seen.table.by_id[746] == known.by_id[746]
    full = Tree(Path(tree.root))
    for folder in full.names(f"{DEVICES}/{VF}/mdev_supported_types"):
        full.put(f"{DEVICES}/{VF}/mdev_supported_types/{folder}/name", "")
    again = read_gpu_state(full.scene(), bare())
    assert again.table is not None
    assert again.table.by_id[9998].name == "NVIDIA A2-5Q", "recorded in the state directory"


def test_a_driver_that_contradicts_the_catalog_is_right(tree: Tree) -> None:
    tree.put(f"{DEVICES}/{VF}/nvidia/current_vgpu_type", "0\n")
    tree.put(f"{DEVICES}/{VF}/nvidia/creatable_vgpu_types", "ID : vGPU Name\n746 : NVIDIA A2-8Q\n747 : NVIDIA A2-4Q\n")
    tree.put(f"{DEVICES}/0000:08:00.5/nvidia/current_vgpu_type", "747\n")
    seen = read_gpu_state(tree.scene(), bare())
    assert seen.table is not None
    assert seen.table.by_name["A2-4Q"].id == 747
    assert seen.table.by_name["A2-4Q"].fb_mib == 4096
    assert seen.table.by_id[746].name == "NVIDIA A2-8Q"
    assert seen.gpu.vgpus[0].type == "NVIDIA A2-4Q"


def test_an_id_is_one_types(tree: Tree) -> None:
    # The driver assigns 746 to another type, and does not list the catalog's type with that id.
    tree.put(f"{DEVICES}/{VF}/nvidia/current_vgpu_type", "0\n")
    tree.put(f"{DEVICES}/{VF}/nvidia/creatable_vgpu_types", "ID : vGPU Name\n746 : NVIDIA A2-5Q\n")
    seen = read_gpu_state(tree.scene(), bare())
    assert seen.table is not None
    assert seen.table.by_id[746].name == "NVIDIA A2-5Q"
    assert seen.table.by_name["A2-4Q"].id is None, "it cannot be requested any more"
    assert len([t for t in seen.table.types if t.id == 746]) == 1


def test_types_of_the_gpu_itself_count_without_sriov_only(tree: Tree) -> None:
    # While virtual functions are off, the types of an SR-IOV GPU's physical function do not indicate a vGPU framework.
    tree.put(f"{DEVICES}/{A2}/sriov_numvfs", "0\n")
    mdev_type(tree, A2, "nvidia-746", "NVIDIA A2-4Q", 4)
    off = read_gpu_state(tree.scene(), bare()).gpu.virtual
    assert off is not None
    assert (off.framework, off.total, off.creatable) == ("", 16, None)
    tree.put(f"{DEVICES}/{A2}/sriov_vf_device", "0\n")
    plain = read_gpu_state(tree.scene(), bare()).gpu.virtual
    assert plain is not None
    assert (plain.framework, plain.total, plain.creatable) == ("mdev", 0, (746,))


def test_a_type_without_a_name(tree: Tree) -> None:
    tree.put(f"{DEVICES}/{VF}/nvidia/current_vgpu_type", "4711\n")
    tree.put(f"{DEVICES}/{VF}/nvidia/creatable_vgpu_types", "ID : vGPU Name\n")
    seen = read_gpu_state(tree.scene(), bare())
    assert [v.type for v in seen.gpu.vgpus] == ["type 4711"]
    assert "4711" in seen.notes[0]


def test_a_card_that_no_table_knows(tree: Tree) -> None:
    tree.put(f"{DEVICES}/{VF}/nvidia/current_vgpu_type", "0\n")
    tree.put(f"{DEVICES}/{VF}/nvidia/creatable_vgpu_types", "ID : vGPU Name\n1 : NVIDIA X1-8Q\n2 : NVIDIA X1-16Q\n")
    seen = read_gpu_state(tree.scene(), bare(device="0x999910DE", subsystem=""))
    assert seen.table is not None
    assert [(t.name, t.max, t.confidence["max"]) for t in seen.table.types] == [
        ("NVIDIA X1-8Q", 2, "estimate"),
        ("NVIDIA X1-16Q", 1, "estimate"),
    ]


def test_the_memory_of_types_is_only_a_memory(tree: Tree) -> None:
    tree.put("/lib/driver-vgpu-types.json", "{torn")
    tree.put(f"{DEVICES}/{VF}/nvidia/current_vgpu_type", "0\n")
    tree.put(f"{DEVICES}/{VF}/nvidia/creatable_vgpu_types", "ID : vGPU Name\n9998 : NVIDIA A2-5Q\n")
    assert read_gpu_state(tree.scene(), bare()).table is not None
    assert "A2-5Q" in Path(f"{tree.root}/lib/driver-vgpu-types.json").read_text()


def test_functions_that_moved_over_a_reboot_are_found_again(tree: Tree) -> None:
    # Firmware renumbered the buses: the UUID identifies the GPU, and the number its function.
    old = VgpuOwner("0000:17:00.5", 746, "NVIDIA A2-4Q", UUID, "claim", "0000:17:00.0", "GPU-1", 1, None, "boot-0")
    other = VgpuOwner(A2, 746, "NVIDIA A2-4Q", UUID, "claim", A2, "GPU-2", 1, None, "boot-0")
    gpu = read_gpu_state(tree.scene(OwnerMap(vgpus=(old, other))), bare()).gpu
    assert gpu.virtual is not None
    assert gpu.virtual.recorded_vgpus == (Vgpu("0000:08:00.5", 746, "NVIDIA A2-4Q", UUID),)


# -- GPU instances


def instance(number: int, profile: int) -> GpuInstance:
    return GpuInstance(number, "x", profile, "0:1")


def on(*vgpus: Vgpu) -> Gpu:
    made = bare(device="0x20B010DE", subsystem="")
    instances = (instance(9, 19), instance(7, 19), instance(3, 14))
    return msgspec.structs.replace(made, mig=Mig(True, "enabled", "enabled"), instances=instances, vgpus=vgpus)


def test_a_vgpu_of_unknown_place_holds_every_instance_that_fits() -> None:
    table = vgpu.table("0x20B010DE")
    assert table is not None
    kind = table.by_name["A100X-1-5C"]
    assert kind.id is not None
    somewhere = with_vgpu_holders(on(Vgpu("f0", kind.id, kind.name)), table)
    assert [(i.id, i.held) for i in somewhere.instances] == [(9, True), (7, True), (3, False)]
    there = with_vgpu_holders(on(Vgpu("f0", kind.id, kind.name, gpu_instance=7)), table)
    assert [i.holders for i in there.instances] == [(), (Holder("vgpu", "f0", kind.name),), ()]
    assert all(i.held for i in with_vgpu_holders(on(Vgpu("f0", 4711, "type 4711")), table).instances), (
        "unknown: all of them"
    )


def test_the_instance_that_the_driver_takes() -> None:
    table = vgpu.table("0x20B010DE")
    assert table is not None
    kind = table.by_name["A100X-1-5C"]
    assert kind.id is not None
    assert expected_instance(on(), kind, table) == 7
    assert expected_instance(on(Vgpu("f0", kind.id, kind.name, gpu_instance=7)), kind, table) == 9
    assert expected_instance(on(Vgpu("f0", kind.id, kind.name)), kind, table) is None
    assert expected_instance(on(), table.by_name["A100X-5C"], table) is None


def test_one_size_on_one_instance() -> None:
    table = vgpu.table("0x2BB510DE")
    assert table is not None
    small, big = table.by_name["DC-1-4Q"], table.by_name["DC-1-8Q"]
    assert small.id is not None
    assert small.profile_id is not None
    gpu = msgspec.structs.replace(
        on(Vgpu("f0", small.id, small.name, gpu_instance=3)),
        instances=(instance(3, small.profile_id), instance(4, small.profile_id)),
    )
    assert expected_instance(gpu, small, table) == 3, "shared by its own size"
    assert expected_instance(gpu, big, table) == 4
