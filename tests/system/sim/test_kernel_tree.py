"""Files of the simulated kernel: drivers and groups, refusals with their errno, reboot, and a complete tree."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from aliquot.sim.kernel.control_api import tree_of
from system.sim.kernel_setup import PCI, Kernel, uuid

DRIVERS = "/sys/bus/pci/drivers"
E = errno


def everything(node: Kernel, path: str = "") -> Iterator[tuple[str, dict[str, object]]]:
    """Yield every entry below a path without following links."""
    tree = tree_of(node.node)
    for name in tree.names(path or "/"):
        facts = tree.stat(f"{path}/{name}")
        yield f"{path}/{name}", facts
        if facts["kind"] == "dir":
            yield from everything(node, f"{path}/{name}")


@pytest.mark.parametrize(
    "template",
    [
        "a2:mdev:grouped*2",
        "l40s:vfio",
        "tesla-t4:mdev:noiommu",
        "rtx-pro-6000:vfio,a30:vfio",
        "h100-pcie",
        "a30:guest",
        "a2:mdev:host:bus08",
    ],
)
def test_no_link_leads_nowhere_and_every_file_can_be_read(template: str) -> None:
    node = Kernel(template)
    node.manage()
    for function in node.vfs()[:3]:
        node.make(function, node.listed(function)[0], int(function[-1]))
    seen = 0
    for path, facts in everything(node):
        seen += 1
        if facts["kind"] == "link" and "/fd/" not in path:
            assert node.files.exists(path), path
        elif facts["kind"] == "file" and int(str(facts["mode"])) & 0o400:
            answer = node.read(path)
            assert isinstance(answer, str) or answer == E.ENXIO, path
    assert seen > 100


def test_every_function_is_where_its_links_say() -> None:
    node = Kernel("a2:mdev:grouped,l40s:mdev")
    node.manage()
    for address in node.files.names(PCI):
        real = node.files.real(f"{PCI}/{address}")
        assert real.startswith("/sys/devices/pci0000:00/")
        assert node.files.read(f"{real}/uevent").splitlines()[-2] == f"PCI_SLOT_NAME={address}"
        driver = node.files.real(f"{real}/driver")
        assert node.files.real(f"{driver}/{address}") == real
        group = node.files.real(f"{real}/iommu_group")
        assert node.files.real(f"{group}/devices/{address}") == real
        assert node.files.real(f"{real}/subsystem") == "/sys/bus/pci"
    groups = node.files.names("/sys/kernel/iommu_groups")
    members = [m for g in groups for m in node.files.names(f"/sys/kernel/iommu_groups/{g}/devices")]
    assert sorted(members) == sorted(node.files.names(PCI))


@pytest.mark.parametrize(
    ("path", "text", "code"),
    [
        ("sriov_numvfs", "four", E.EINVAL),
        ("sriov_numvfs", "-1", E.EINVAL),
        ("sriov_numvfs", "17", E.ERANGE),
        ("sriov_numvfs", "0", 0),
        ("sriov_numvfs", "16", E.EPERM),
        ("sriov_totalvfs", "8", E.EACCES),
        ("sriov_drivers_autoprobe", "2", E.EINVAL),
        ("driver_override", "x" * 5000, E.EINVAL),
        ("nothing", "1", E.ENOENT),
        ("driver", "1", E.EISDIR),
        ("vendor/below", "1", E.ENOTDIR),
    ],
)
def test_refusals_of_a_physical_function(path: str, text: str, code: int) -> None:
    node = Kernel("a2:mdev")
    assert node.write(f"{node.pf}/{path}", text) == code


def test_a_number_of_functions_is_not_changed_while_there_are_some() -> None:
    node = Kernel("a2:mdev")
    node.manage()
    assert node.write(f"{node.pf}/sriov_numvfs", "8") == E.EBUSY
    assert node.write(f"{node.pf}/sriov_numvfs", "16") == 0, "the same number changes nothing"
    assert node.write(f"{node.pf}/sriov_numvfs", "0") == E.EPERM
    assert len(node.vfs()) == 16


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", E.EINVAL),
        ("not-a-uuid", E.EINVAL),
        (uuid(1)[:-1], E.EINVAL),
        (uuid(1) + "0", E.EINVAL),
        (uuid(1).replace("-", ""), E.EINVAL),
        (uuid(1) + "\n", 0),
        (uuid(1).upper(), 0),
        (uuid(9), E.EEXIST),
    ],
)
def test_refusals_of_create(text: str, code: int) -> None:
    node = Kernel("a2:mdev")
    node.manage()
    first, second = node.vfs()[:2]
    assert node.make(first, 744, 9) == 0
    assert node.write(f"{PCI}/{second}/mdev_supported_types/nvidia-744/create", text) == code


def test_refusals_of_the_driver_in_either_framework() -> None:
    for framework, full in (("mdev", E.ENOSPC), ("vfio", E.EIO)):
        node = Kernel(f"a2:{framework}")
        node.manage()
        vfs = node.vfs()
        assert [node.make(vf, 747, n) for n, vf in enumerate(vfs[:2])] == [0, 0]
        assert node.make(vfs[0], 747, 10) == E.EIO, "it already has one"
        assert node.make(vfs[2], 746, 11) == E.EIO, "another size"
        assert node.make(vfs[2], 747, 12) == full, "no more of that size"
        assert node.calls[-1]["rm"] == "0x1a"
    assert node.make(vfs[2], 1150) == E.EIO, "a type of another card"
    assert node.write(f"{PCI}/{vfs[2]}/nvidia/current_vgpu_type", "A2-8Q") == E.EINVAL


def test_a_running_machine_keeps_its_vgpu() -> None:
    node = Kernel("a2:mdev")
    node.manage()
    vf = node.vfs()[0]
    node.make(vf, 746, 1)
    pid = node.ok("vm-start", name="db", devices=[uuid(1)])["pid"]
    group = node.files.real(f"/sys/bus/mdev/devices/{uuid(1)}/iommu_group").rpartition("/")[2]
    fds = f"/proc/{pid}/fd"
    assert f"/dev/vfio/{group}" in [node.files.link(f"{fds}/{n}") for n in node.files.names(fds)]
    assert node.files.exists(f"/dev/vfio/{group}")
    assert "guest=db," in node.files.read(f"/proc/{pid}/cmdline")
    assert node.files.read(f"{PCI}/{vf}/{uuid(1)}/nvidia/vm_name") == "db"
    assert node.drop(vf) == E.EBUSY
    assert node.manage("-d") == 1
    assert node.write(f"{DRIVERS}/nvidia/unbind", vf) == E.EBUSY
    assert node.control("vm-start", name="two", devices=[uuid(1)])[0] == 2
    node.ok("vm-stop", name="db")
    assert not node.files.exists(f"/proc/{pid}")
    assert node.drop(vf) == 0
    assert not node.files.exists(f"/dev/vfio/{group}")


def test_a_machine_on_a_function_with_vendor_vfio() -> None:
    node = Kernel("l40s:vfio")
    node.manage()
    vf = node.vfs()[3]
    assert node.control("vm-start", name="a", devices=[vf])[0] == 2, "no type yet"
    node.make(vf, 1150)
    node.ok("vm-start", name="a", devices=[vf])
    assert node.drop(vf) == E.EBUSY
    assert node.ok("terminate", pid=40001)["released"] == 1
    assert node.drop(vf) == 0
    assert node.write(f"{PCI}/{vf}/driver_override", "vfio-pci") == 0
    assert node.write(f"{DRIVERS}/nvidia/unbind", vf) == 0
    assert node.write("/sys/bus/pci/drivers_probe", vf) == E.EINVAL, "vfio-pci does not take such a function"


# -- drivers


def hand_over(node: Kernel, address: str) -> list[int]:
    """Bind a device to vfio-pci with driver_override. Returns the errnos."""
    return [
        node.write(f"{PCI}/{address}/driver_override", "vfio-pci"),
        node.write(f"{DRIVERS}/nvidia/unbind", address),
        node.write("/sys/bus/pci/drivers_probe", address),
    ]


def test_a_gpu_passed_through_is_not_in_nvml_and_comes_back() -> None:
    node = Kernel("a2*3")
    address = node.node.gpus[1].state.pci
    assert hand_over(node, address) == [0, 0, 0]
    assert node.files.real(f"{PCI}/{address}/driver") == f"{DRIVERS}/vfio-pci"
    assert sorted(node.files.names("/proc/driver/nvidia/gpus")) == ["0000:01:00.0", "0000:03:00.0"]
    link = node.open(7)
    assert node.ask("DeviceGetCount", link) == [0, 2]
    assert node.ask("DeviceGetHandleByIndex 1", link) == [0, 2, -1, -1], "the third has moved up"
    assert node.ask("DeviceGetIndex 2 -1 -1", link) == [0, 1]
    assert node.ask("DeviceGetHandleByIndex 2", link) == [2]
    assert node.ask("DeviceGetMemoryInfo 1 -1 -1", link) == [2]
    link.close()
    node.write(f"{PCI}/{address}/driver_override", "\n")
    assert node.write(f"{DRIVERS}/vfio-pci/unbind", address) == 0
    assert node.write("/sys/bus/pci/drivers_probe", address) == 0
    assert node.ask("DeviceGetCount", node.open(8)) == [0, 3]


def test_a_driver_with_clients_does_not_let_go() -> None:
    node = Kernel("a2")
    address = node.gpu.state.pci
    lock = f"/proc/driver/nvidia/gpus/{address}/unbindLock"
    link = node.open(7)
    assert node.write(f"{DRIVERS}/nvidia/unbind", address) == E.EBUSY
    assert (node.write(lock, "1"), node.read(lock)) == (0, "0"), "not granted"
    link.close()
    node.ok("hold", gpu=0)
    assert node.write(f"{DRIVERS}/nvidia/unbind", address) == E.EBUSY
    node.ok("release", gpu=0)
    assert (node.write(lock, "1"), node.read(lock)) == (0, "1")
    assert node.write(f"{DRIVERS}/nvidia/unbind", address) == 0
    assert not node.files.exists(lock)


def test_a_gpu_with_functions_stays_with_its_driver() -> None:
    node = Kernel("a2:mdev")
    node.manage()
    assert node.write(f"{DRIVERS}/nvidia/unbind", node.gpu.state.pci) == E.EBUSY


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("nvidia/unbind", "0000:99:00.0", E.ENODEV),
        ("vfio-pci/unbind", "0000:01:00.0", E.ENODEV),
        ("vfio-pci/bind", "0000:01:00.0", E.ENODEV),
        ("nvidia/bind", "0000:01:00.0", E.EBUSY),
        ("vfio-pci/new_id", "nonsense", E.EINVAL),
        ("vfio-pci/remove_id", "10de 25b6", E.ENODEV),
        ("nothing/bind", "0000:01:00.0", E.ENOENT),
    ],
)
def test_refusals_of_drivers(file: str, text: str, code: int) -> None:
    assert Kernel("a2:mdev").write(f"{DRIVERS}/{file}", text) == code


def test_without_an_iommu_vfio_takes_nothing() -> None:
    node = Kernel("a2:mdev:noiommu")
    address = node.gpu.state.pci
    assert node.files.names("/sys/kernel/iommu_groups") == ()
    assert node.files.names("/sys/class/iommu") == ()
    assert hand_over(node, address) == [0, 0, E.EINVAL]
    assert not node.files.exists(f"{PCI}/{address}/driver")


def test_new_id_binds_unrelated_devices() -> None:
    node = Kernel("a2:mdev*2")
    assert node.write(f"{DRIVERS}/vfio-pci/new_id", "10de 25b6") == 0
    assert node.write(f"{DRIVERS}/vfio-pci/new_id", "10de 25b6") == E.EEXIST
    assert node.files.real(f"{node.pf}/driver") == f"{DRIVERS}/nvidia", "a bound device stays"
    node.manage("-e", "0000:01:00.0")
    assert {node.files.real(f"{PCI}/{vf}/driver") for vf in node.vfs()} == {f"{DRIVERS}/vfio-pci"}
    assert node.files.names("/sys/class/mdev_bus") == ()


def test_functions_without_autoprobe_have_no_driver() -> None:
    node = Kernel("l40s:vfio")
    assert node.write(f"{node.pf}/sriov_drivers_autoprobe", "0") == 0
    node.manage()
    assert not any(node.files.exists(f"{PCI}/{vf}/driver") for vf in node.vfs())
    assert node.write("/sys/bus/pci/drivers_probe", node.vfs()[0]) == 0
    assert len(node.listed(node.vfs()[0])) == 23


def test_an_unrelated_device_in_the_group_of_a_gpu() -> None:
    node = Kernel("a2:grouped")
    address = node.gpu.state.pci
    group = node.files.real(f"{node.pf}/iommu_group")
    assert sorted(node.files.names(f"{group}/devices")) == [address, "0000:01:00.1"]
    assert node.files.read(f"{PCI}/0000:01:00.1/class") == "0x020000"
    hand_over(node, address)
    assert node.control("vm-start", name="a", devices=[address])[0] == 2, "the group is not viable"
    assert node.write(f"{DRIVERS}/igb/unbind", "0000:01:00.1") == 0
    node.ok("vm-start", name="a", devices=[address])
    assert node.write(f"{DRIVERS}/vfio-pci/unbind", address) == E.EBUSY


# -- functions appear, a busy lock, a reboot


def test_functions_appear_one_by_one() -> None:
    node = Kernel("a2:mdev")
    node.ok("fault", kind="vf-delay", seconds=17)
    node.manage()
    assert (node.files.read(f"{node.pf}/sriov_numvfs"), node.vfs()) == ("16", [])
    seen, bound = [], []
    for _ in range(18):
        node.now += 1
        seen.append(len(node.vfs()))
        bound.append(sum(node.files.exists(f"{PCI}/{vf}/driver") for vf in node.vfs()))
    assert seen == [*range(1, 17), 16, 16]
    assert bound == [0, *range(1, 17), 16], "a function is bound after it has appeared"
    assert len(node.files.names("/sys/class/mdev_bus")) == 16


def test_a_busy_unbind_lock() -> None:
    node = Kernel("a2:mdev")
    node.ok("fault", kind="unbind-lock", calls=2)
    for _ in range(2):
        answer = node.ok("sriov-manage", action="-e", address="0000:01:00.0")
        assert answer == {"rc": 1, "out": [], "err": ["Cannot obtain unbindLock for 0000:01:00.0"]}
    assert node.manage() == 0


def test_sriov_manage_without_sense() -> None:
    node = Kernel("tesla-t4:mdev")
    assert node.ok("sriov-manage", action="-e", address="0000:99:00.0")["rc"] == 1
    assert node.manage() == 1
    assert node.control("sriov-manage", action="-x", address="ALL")[0] == 2


def test_a_reboot_forgets_and_another_kernel_has_another_framework() -> None:
    node = Kernel("a2:mdev:grouped,tesla-t4:mdev")
    node.manage()
    node.make(node.vfs()[0], 746, 1)
    node.ok("vm-start", name="db", devices=[uuid(1)])
    node.write(f"{DRIVERS}/vfio-pci/new_id", "10de 25b6")
    node.write(f"{PCI}/{node.vfs()[5]}/driver_override", "vfio-pci")
    group, boot = node.files.real(f"{node.pf}/iommu_group"), node.files.read("/proc/sys/kernel/random/boot_id")
    node.ok("reboot")
    assert node.files.read("/proc/sys/kernel/random/boot_id") != boot
    assert node.files.real(f"{node.pf}/iommu_group") != group, "groups get new numbers"
    assert (node.vfs(), node.files.names("/sys/bus/mdev/devices")) == ([], ())
    node.manage()
    assert node.files.real(f"{PCI}/{node.vfs()[5]}/driver") == f"{DRIVERS}/nvidia"
    node.ok("reboot", kernel="vfio")
    node.manage("-e", "0000:01:00.0")
    assert len(node.listed(node.vfs()[0])) == 15
    assert not node.files.exists("/sys/bus/mdev")
    assert not node.files.exists(f"{PCI}/0000:02:00.0/mdev_supported_types"), "no mdev in that kernel"
    node.ok("reboot", kernel="none")
    assert node.manage() == 1
    assert node.control("reboot", kernel="windows")[0] == 2


def test_a_lost_gpu_takes_no_writes() -> None:
    node = Kernel("l40s:vfio")
    node.manage()
    vf = node.vfs()[0]
    node.ok("fault", kind="lost", gpu=0)
    assert node.make(vf, 1150) == E.ENODEV


def test_who_lacks_the_rights_writes_nothing() -> None:
    node = Kernel("l40s:vfio")
    node.manage()
    node.ok("fault", kind="unprivileged")
    assert node.make(node.vfs()[0], 1150) == E.EACCES
    assert node.listed(node.vfs()[0])


# -- the placement of a vGPU may change while no VM uses it


def test_a_place_may_be_chosen_in_mixed_size_mode() -> None:
    node = Kernel("l40s:vfio")
    node.manage()
    node.gpu.state.mixed = True
    first, second = node.vfs()[:2]
    node.make(first, 1150)
    node.make(second, 1155)
    folder = f"{PCI}/{first}/nvidia"
    assert node.files.read(f"{PCI}/{second}/nvidia/placement_id") == "24"
    assert node.write(f"{folder}/placement_id", "20") == 0
    assert node.files.read(f"{folder}/placement_id") == "20"
    assert node.write(f"{folder}/placement_id", "4") == E.EIO, "not a placement of a 4Q on such a board"
    assert node.write(f"{folder}/placement_id", "24") == E.EIO, "taken"
    assert node.write(f"{folder}/gpu_instance_id", "1") == E.EIO
    assert node.write(f"{folder}/vgpu_params", "disable_vnc=1") == 0
    assert node.files.read(f"{folder}/vgpu_params") == "disable_vnc=1"
    node.ok("vm-start", name="a", devices=[first])
    assert node.write(f"{folder}/placement_id", "0") == E.EIO, "its VM runs"
    assert node.write(f"{folder}/vgpu_params", "x=1") == E.EBUSY


def test_before_a_type_there_is_no_place() -> None:
    node = Kernel("l40s:vfio")
    node.manage()
    folder = f"{PCI}/{node.vfs()[0]}/nvidia"
    for file in ("placement_id", "gpu_instance_id"):
        assert node.read(f"{folder}/{file}") == E.ENXIO
        assert node.write(f"{folder}/{file}", "0") == E.ENXIO
    assert node.write(f"{folder}/vgpu_params", "x=1") == E.ENXIO
