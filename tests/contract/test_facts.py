"""``facts()`` over every backend: the same values through the simulator's protocol and through the NVML ABI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.facts import Facts, GpuFacts, MigDevice
from aliquot.errors import HardwareError
from aliquot.hardware.nvml.backend import NvmlBackend
from aliquot.sim import lifecycle as control
from contract.conftest import KINDS, Machine, plain

Start = Callable[[str], Machine]
every_kind = pytest.mark.parametrize("kind", KINDS)

TEMPLATES = [
    "dgx-a100",
    "a30*2,tesla-t4",
    "rtx-pro-6000-blackwell-max-q-workstation-edition",
    "gb200*2",
    "a10",
    "hgx-b200",
]


def read_node(node: Machine, kind: str) -> Facts:
    """Read the facts once and close the session: an open session would leave a mode change pending on Ampere."""
    backend = node.open(kind)
    found = backend.facts()
    backend.close()
    return found


def cut(node: Machine) -> None:
    """Partition GPU 0: one half split into compute instances of one and two slices, and a media instance."""
    node.node.set_mode(0, True)
    half = node.node.create(0, "3g.20gb", 0, compute=False)
    backend = node.open("direct")
    for profile_id, size in ((0, 1), (1, 2)):
        backend.create_compute_instance(backend.read().gpus[0].pci, half, profile_id, None, size)
    backend.close()
    node.node.create(0, "1g.5gb+me", 4)


@every_kind
def test_a_node_without_mig(machine: Start, kind: str) -> None:
    facts = read_node(machine("a100-sxm4-40gb*5,tesla-t4@570.158.01"), kind)
    assert (facts.driver, facts.cuda, facts.host_product, facts.mig_devices) == ("570.158.01", (12, 8), "", ())
    assert [g.memory_mib for g in facts.gpus] == [40960] * 5 + [15360]
    assert [g.compute_capability for g in facts.gpus] == [(8, 0)] * 5 + [(7, 5)]
    assert [g.numa_node for g in facts.gpus] == [0, 0, 0, 0, 1, 1], "four GPUs on each processor"
    assert {(g.display, g.clique) for g in facts.gpus} == {(False, "")}
    assert [g.brand for g in facts.gpus] == (["Nvidia"] * 5 + ["Tesla"] if kind != "nvidia-smi" else [""] * 6)
    assert facts.gpu(facts.gpus[5].pci) == facts.gpus[5]


@every_kind
def test_mig_devices(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb")
    cut(node)
    facts = read_node(node, kind)
    pci = facts.gpus[0].pci
    uuids = [d.uuid for d in facts.mig_devices]
    assert len(set(uuids)) == 3
    engines = {"copy": 3, "decoder": 2}
    assert [msgspec.structs.replace(d, uuid="") for d in facts.mig_devices] == [
        MigDevice("", pci, 1, 0, "1c.3g.20gb", 20096, 14, 3, 1, **engines, index=0),
        MigDevice("", pci, 1, 1, "2c.3g.20gb", 20096, 28, 3, 2, **engines, index=1),
        MigDevice("", pci, 11, 0, "1g.5gb+me", 4864, 14, 1, 1, copy=1, decoder=1, jpeg=1, ofa=1, index=2),
    ]


@every_kind
def test_a_gpu_that_fell_off_the_bus_has_no_facts(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb*3")
    whole = read_node(node, kind)
    node.node.inject_fault("lost", gpu=1)
    assert read_node(node, kind) == msgspec.structs.replace(whole, gpus=(whole.gpus[0], whole.gpus[2]))


@every_kind
def test_a_workstation_board_and_a_rack(machine: Start, kind: str) -> None:
    board = read_node(machine("rtx-pro-6000-blackwell-workstation-edition"), kind).gpus[0]
    assert (board.display, board.compute_capability, board.clique) == (True, (12, 0), "")
    one, other = (read_node(machine("gb200*2"), kind) for _ in range(2))
    cliques = {g.clique for g in (*one.gpus, *other.gpus)}
    assert len(cliques) == 1, "one rack"
    cluster, _, number = cliques.pop().partition(".")
    assert (len(cluster), number) == (36, "1")
    assert read_node(machine("hgx-h200"), kind).gpus[0].clique == "", "a switch inside one host is not a clique"


@pytest.mark.parametrize("template", TEMPLATES)
def test_both_backends_see_the_same(machine: Start, template: str) -> None:
    node = machine(template)
    if node.node.show()["gpus"][0]["mig"]["capable"]:
        node.node.set_mode(0, True)
        family = catalog.family(node.node.show()["gpus"][0]["family"])
        node.node.create(0, family.profiles[0].id)
    direct, shim = read_node(node, "direct"), read_node(node, "shim")
    assert plain(shim) == plain(direct)
    assert shim == direct


@every_kind
def test_reading_facts_writes_nothing(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb")
    cut(node)
    before = node.writes()
    first = read_node(node, kind)
    assert read_node(node, kind) == first
    assert node.writes() == before


def test_uuids_and_ids_are_those_of_the_inventory(machine: Start) -> None:
    node = machine("a100-sxm4-40gb")
    cut(node)
    backend = node.open("shim")
    gpu = backend.read().gpus[0]
    listed = {(c.uuid, i.id, c.id, c.profile) for i in gpu.instances for c in i.compute_instances}
    assert {(d.uuid, d.instance, d.compute_instance, d.profile) for d in backend.facts().mig_devices} == listed


def test_facts_need_no_binding_that_the_oldest_library_lacks(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    # nvidia-ml-py 12.560, the oldest that pyproject.toml permits, does not bind the addressing mode.
    node = machine("a100-sxm4-40gb")
    backend = node.open("shim")
    assert isinstance(backend, NvmlBackend)
    monkeypatch.delattr(backend.session.nv, "nvmlDeviceGetAddressingMode")
    assert [(gpu.brand, gpu.addressing_mode) for gpu in backend.facts().gpus] == [("Nvidia", "")]


def sysfs(root: Path, pci: str, numa: str, pci_class: str) -> None:
    folder = root / "bus/pci/devices" / pci
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text(numa + "\n")
    (folder / "class").write_text(pci_class + "\n")


def test_the_place_in_a_real_machine_is_what_sysfs_says(machine: Start, tmp_path: Path) -> None:
    # The NVML code reads sysfs only for the GPUs of this host. The test declares the simulated ones as such.
    node = machine("a100-sxm4-40gb*3")
    library = control.library(node.state_dir, node.name)
    pcis = [g["pci"] for g in node.node.show()["gpus"]]
    sysfs(tmp_path, pcis[0], "1", "0x030000")
    device, bridge = tmp_path / "bus/pci/devices" / pcis[0], tmp_path / "devices/pci0000:40/0000:40:01.1"
    bridge.mkdir(parents=True)
    device.rename(bridge / pcis[0])
    device.symlink_to(bridge / pcis[0])
    sysfs(tmp_path, pcis[1], "-1", "0x030200")
    (tmp_path / "class/dmi/id").mkdir(parents=True)
    (tmp_path / "class/dmi/id/product_name").write_text("PowerEdge XE8545 \n")
    backend = NvmlBackend(library, node.name, proc_root=str(tmp_path), sys_root=str(tmp_path))
    node.closing(backend)
    facts = backend.facts()
    assert facts.host_product == "PowerEdge XE8545"
    assert [g.pcie_root for g in facts.gpus] == ["pci0000:40", "", ""]
    assert [(g.numa_node, g.display) for g in facts.gpus] == [(1, True), (None, False), (0, False)]


def test_a_board_without_dmi_has_its_model_from_the_device_tree(machine: Start, tmp_path: Path) -> None:
    node = machine("a30")
    (tmp_path / "firmware/devicetree/base").mkdir(parents=True)
    (tmp_path / "firmware/devicetree/base/model").write_bytes(b"NVIDIA Jetson AGX Thor\0")
    library = control.library(node.state_dir, node.name)
    backend = NvmlBackend(library, node.name, proc_root=str(tmp_path), sys_root=str(tmp_path))
    node.closing(backend)
    assert backend.facts().host_product == "NVIDIA Jetson AGX Thor"


def test_what_a_gpu_cannot_tell_is_left_open(machine: Start) -> None:
    # A system on chip has no memory of its own. An old driver reports neither fabric nor class: NOT_SUPPORTED is an
    # answer.
    node = machine("gb200,a100-sxm4-40gb")
    for call in (
        "DeviceGetBrand",
        "DeviceGetMemoryInfo",
        "DeviceGetCudaComputeCapability",
        "DeviceGetPciClass",
        "DeviceGetNumaNode",
    ):
        node.node.inject_fault("fail", call=call, code=codes.NOT_SUPPORTED, gpu=0)
    node.node.inject_fault("fail", call="DeviceGetGpuFabricInfo", code=codes.FUNCTION_NOT_FOUND, gpu=0)
    bare, other = read_node(node, "shim").gpus
    assert bare == GpuFacts(bare.pci, 0, (0, 0))
    assert other.memory_mib == 40960


def test_a_mig_device_that_goes_while_it_is_read_is_left_out(machine: Start) -> None:
    node = machine("a100-sxm4-40gb")
    cut(node)
    node.node.inject_fault("fail", call="DeviceGetAttributes", code=codes.INVALID_ARGUMENT, calls=1)
    assert [d.index for d in read_node(node, "shim").mig_devices] == [1, 2]


def test_another_refusal_is_an_error(machine: Start) -> None:
    node = machine("a100-sxm4-40gb")
    backend = node.open("shim")
    node.node.inject_fault("fail", call="DeviceGetMemoryInfo", code=codes.UNKNOWN, calls=1)
    with pytest.raises(HardwareError, match="reading the memory of 0000:01:00"):
        backend.facts()


@pytest.mark.parametrize(("mode", "share"), [(0, False), (1, False), (2, True), (3, False)])
def test_a_share_of_a_host_s_gpu(machine: Start, monkeypatch: pytest.MonkeyPatch, mode: int, share: bool) -> None:
    # NVML's virtualization modes are none, passed through, vGPU in a guest, and host of vGPUs. No simulated GPU is a
    # vGPU.
    backend = machine("a30").open("shim")
    assert isinstance(backend, NvmlBackend)
    monkeypatch.setattr(backend.session.nv, "nvmlDeviceGetVirtualizationMode", lambda handle: mode)
    assert backend.facts().gpus[0].vgpu is share
