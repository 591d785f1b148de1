"""Binding functions to vfio-pci and back."""

from __future__ import annotations

import pytest

from aliquot.core.model.inventory import Holder
from aliquot.errors import AliquotError, BlockedError, HardwareError, InUseError
from contract.virtual_bench import KINDS, Start, bench, carrier, gpu, make, ready

__all__ = ["bench"]

pytestmark = pytest.mark.parametrize("kind", KINDS)
PCI = "/sys/bus/pci/devices"


def test_a_gpu_is_passed_through_and_taken_back(bench: Start, kind: str) -> None:
    node = bench("a100-sxm4-40gb*3", kind)
    first, second, third = before = node.backend.read().gpus
    node.backend.set_mode(second.pci, True)
    node.backend.set_passthrough(second.pci, True)
    assert [g.pci for g in node.backend.nvml.read().gpus] == [first.pci, third.pci], "NVML does not list it"
    gpus = node.backend.read().gpus
    assert [(g.pci, g.index) for g in gpus] == [(g.pci, g.index) for g in before], "every GPU keeps its number"
    unavailable = gpus[1]
    assert (unavailable.passthrough, unavailable.uuid, unavailable.product) == (True, second.uuid, second.product)
    assert (unavailable.pci_device, unavailable.subsystem, unavailable.family) == (
        second.pci_device,
        second.subsystem,
        second.family,
    )
    assert unavailable.virtual is not None
    assert (unavailable.virtual.driver, unavailable.virtual.was_mig) == ("vfio-pci", True)
    assert unavailable.virtual.group_members == (second.pci,)
    assert node.backend.read_gpu(second.pci).virtual == unavailable.virtual
    assert node.backend.read_gpu(third.pci) == gpus[2]
    assert node.open().read().gpus == gpus, "another process reads the same"
    override = node.files.read(f"{PCI}/{second.pci}/driver_override")
    assert override == "(null)", "with one, pcidevices could not give the GPU back after a move of the node"
    assert node.backend.set_mode(third.pci, True), "NVML's indexes have changed, but the GPU is the same"
    assert [g.mig.enabled for g in node.backend.nvml.read().gpus] == [False, True]
    node.backend.set_passthrough(second.pci, False)
    after = node.backend.read().gpus
    assert [g.pci for g in after] == [g.pci for g in before]
    assert not any(g.passthrough for g in after)
    assert after[1].virtual == before[1].virtual
    assert node.files.read(f"{PCI}/{second.pci}/driver_override") == "(null)"


def test_all_gpus_passed_through(bench: Start, kind: str) -> None:
    node = bench("a100-sxm4-40gb*2", kind)
    before = node.backend.read().gpus
    for each in before:
        node.backend.set_passthrough(each.pci, True)
    assert node.backend.nvml.read().gpus == ()
    assert [(g.uuid, g.passthrough) for g in node.backend.read().gpus] == [(g.uuid, True) for g in before]
    for each in before:
        node.backend.set_passthrough(each.pci, False)
    assert node.backend.read().gpus == before


def test_a_machine_that_has_it_open(bench: Start, kind: str) -> None:
    node = bench("a2:vfio", kind)
    found = gpu(node)
    node.backend.set_passthrough(found.pci, True)
    pid = node.control("vm-start", name="render", devices=[found.pci])["pid"]
    unavailable = gpu(node)
    assert unavailable.holders == (Holder("vm", str(pid), "render"),)
    with pytest.raises(InUseError, match="render"):
        node.backend.set_passthrough(found.pci, False)
    assert gpu(node) == unavailable
    node.control("vm-stop", name="render")
    node.backend.set_passthrough(found.pci, False)
    assert gpu(node) == found


def test_a_group_with_unrelated_devices(bench: Start, kind: str) -> None:
    node = bench("a2:grouped", kind)
    found = gpu(node)
    assert found.virtual is not None
    assert len(found.virtual.group_members) > 1
    assert [s.driver for s in found.virtual.group_peers] == ["igb"]
    assert found.virtual.group_peers[0].pci in found.virtual.group_members
    with pytest.raises(BlockedError) as caught:
        node.backend.set_passthrough(found.pci, True)
    assert caught.value.code == "IOMMU_GROUP"
    assert [line for line in caught.value.details if "igb" in line]
    assert gpu(node) == found


def test_without_an_iommu(bench: Start, kind: str) -> None:
    node = bench("a2:noiommu", kind)
    found = gpu(node)
    assert found.virtual is not None
    assert found.virtual.iommu_group is None
    host = node.backend.read().host
    assert host is not None
    assert not host.iommu
    with pytest.raises(BlockedError) as caught:
        node.backend.set_passthrough(found.pci, True)
    assert caught.value.code == "NO_IOMMU"
    assert gpu(node) == found


def test_virtual_functions_and_passthrough_exclude_each_other(bench: Start, kind: str) -> None:
    node = bench("a2:vfio", kind)
    found = ready(node)
    with pytest.raises(InUseError, match="16 virtual functions"):
        node.backend.set_passthrough(found.pci, True)
    assert gpu(node) == found


def test_a_virtual_function_of_its_own(bench: Start, kind: str) -> None:
    # vfio-pci refuses a function of vendor-specific VFIO (EINVAL), but accepts one with mdevs.
    node = bench("a2:mdev", kind)
    found = ready(node)
    function = carrier(found, 4)
    node.backend.set_passthrough(found.pci, True, function)
    lent = gpu(node).virtual
    assert lent is not None
    assert [f.pci for f in lent.functions if f.driver == "vfio-pci"] == [function]
    with pytest.raises(InUseError, match="vfio-pci"):
        node.backend.set_functions(found.pci, 0)
    pid = node.control("vm-start", name="web", devices=[function])["pid"]
    lent = gpu(node).virtual
    assert lent is not None
    assert lent.functions[4].holders == (Holder("vm", str(pid), "web"),)
    with pytest.raises(InUseError, match="web"):
        node.backend.set_passthrough(found.pci, False, function)
    node.control("vm-stop", name="web")
    node.backend.set_passthrough(found.pci, False, function)
    assert gpu(node) == found
    vgpu = make(node, found, "A2-4Q", 4)
    with pytest.raises(InUseError, match="1 vGPU"):
        node.backend.set_passthrough(found.pci, True, vgpu.function)


def test_a_driver_that_does_not_take_it_leaves_it_where_it_was(bench: Start, kind: str) -> None:
    node = bench("a2:vfio", kind)
    found = ready(node)
    with pytest.raises(AliquotError) as caught:
        node.backend.set_passthrough(found.pci, True, carrier(found, 0))
    assert caught.value.next_step
    assert gpu(node) == found


@pytest.mark.parametrize("path", ["driver_override", "unbind", "drivers_probe"])
def test_a_write_that_is_refused_half_way(bench: Start, kind: str, path: str) -> None:
    node = bench("a2*2", kind)
    before = node.backend.read()
    pci = before.gpus[1].pci
    # The first write of the rollback may go to the same file: it is refused once.
    node.control("fault", kind="fail", call="SysfsWrite", code=5, path=path, calls=1)
    with pytest.raises(HardwareError) as caught:
        node.backend.set_passthrough(pci, True)
    assert "EIO" in " ".join(caught.value.details)
    assert node.backend.read().gpus == before.gpus
    node.backend.set_passthrough(pci, True)
    assert node.backend.read().gpus[1].passthrough


def test_a_client_of_the_gpu(bench: Start, kind: str) -> None:
    node = bench("a2*2", kind)
    found = gpu(node, 1)
    node.control("hold", gpu=1, name="python3")
    with pytest.raises(InUseError, match="python3"):
        node.backend.set_passthrough(found.pci, True)
    assert gpu(node, 1).passthrough is False


def test_passed_through_by_another_process(bench: Start, kind: str) -> None:
    # A user or libvirt bound it: without a record of that, the GPU is still listed and can be taken back.
    node = bench("a2", kind)
    found = gpu(node)
    with node.backend.suspend():
        for path, text in (
            (f"{PCI}/{found.pci}/driver_override", "vfio-pci"),
            (f"{PCI}/{found.pci}/driver/unbind", found.pci),
            ("/sys/bus/pci/drivers_probe", found.pci),
        ):
            node.files.write(path, text)
    node.backend.nvml.renumber()
    (unavailable,) = node.backend.read().gpus
    assert (unavailable.passthrough, unavailable.uuid, unavailable.product) == (True, "", "NVIDIA A2")
    node.backend.set_passthrough(found.pci, False)
    assert gpu(node) == found


def test_a_reboot_gives_it_back(bench: Start, kind: str) -> None:
    node = bench("a2*2", kind)
    before = node.backend.read().gpus
    node.backend.set_passthrough(before[0].pci, True)
    node.control("reboot")
    after = node.backend.read().gpus
    assert [(g.pci, g.uuid, g.passthrough) for g in after] == [(g.pci, g.uuid, False) for g in before]


@pytest.mark.parametrize(("node", "switched"), [("h200:vfio*8", True), ("h200:vfio*4", False), ("a2:vfio", False)])
def test_the_switches_of_a_baseboard_are_seen(bench: Start, kind: str, node: str, switched: bool) -> None:
    # Boards of four GPUs link them directly.
    host = bench(node, kind).backend.read().host
    assert host is not None
    assert host.nvswitch is switched
