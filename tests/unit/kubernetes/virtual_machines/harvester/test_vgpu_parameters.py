"""Plugin parameters in the annotation of a VGPUDevice: created, changed, restored, and reasons for refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.kubernetes.kinds.harvester_names import PARAMETERS_ANNOTATION
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, message, ready

FRAMEWORKS = {
    "a2:mdev": ("0000:08:00.0", "0000:08:00.4", "NVIDIA A2-4Q", "NVIDIA A2-4A", 746),
    "l40s:vfio": ("0000:26:00.0", "0000:26:00.4", "NVIDIA L40S-12Q", "NVIDIA L40S-12A", 1155),
}


class Bed:
    """A node with a GPU whose virtual functions are on, and the first of them."""

    def __init__(self, template: str, directory: Path) -> None:
        address, self.function, self.type, self.without_cuda, self.type_id = FRAMEWORKS[template]
        self.one = One(template, directory, "n", address).settle()
        self.one.kubectl("SRIOVGPUDevice", self.one.name_of(address), enabled=True)

    def ask(self, text: str | None) -> Bed:
        self.one.mark("VGPUDevice", self.one.name_of(self.function), PARAMETERS_ANNOTATION, text)
        return self

    def enable(self, kind: str = "", enabled: bool = True) -> Bed:
        name = self.one.name_of(self.function)
        self.one.kubectl("VGPUDevice", name, enabled=enabled, vGPUTypeName=kind or self.type)
        return self

    def live(self) -> dict[str, str]:
        """Return the parameters of existing vGPUs by virtual function."""
        return {v.function: v.parameters for g in self.one.node.whole.read().gpus for v in g.vgpus}

    def uuid(self) -> str:
        return str(self.one.vgpu(self.function)["status"]["uuid"])

    def start_vm(self) -> None:
        self.one.start_vm(self.function if self.uuid().isdecimal() else self.uuid())

    def ready(self) -> tuple[str, str]:
        return ready(self.one.vgpu(self.function))

    def message(self) -> str:
        return message(self.one.vgpu(self.function))


@pytest.fixture(params=FRAMEWORKS)
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Bed:
    return Bed(request.param, tmp_path)


def test_a_new_vgpu_has_them_and_a_reboot_brings_them_back(bed: Bed) -> None:
    bed.ask(" frame_rate_limiter=0, enable_uvm=1 ").enable()
    assert bed.live() == {bed.function: "enable_uvm=1,frame_rate_limiter=0"}
    assert bed.ready() == ("True", "Configured")
    assert bed.message() == f"it carries {bed.type} with enable_uvm=1,frame_rate_limiter=0"
    before = bed.uuid()
    bed.one.reboot().settle()
    assert bed.live() == {bed.function: "enable_uvm=1,frame_rate_limiter=0"}
    assert bed.uuid() == before


def test_a_change_makes_the_vgpu_again_under_its_uuid_and_taking_it_back_leaves_it(bed: Bed) -> None:
    bed.enable()
    before = bed.uuid()
    assert bed.ask("enable_uvm=1").live() == {bed.function: "enable_uvm=1"}
    assert (bed.uuid(), bed.ready()) == (before, ("True", "Configured"))
    assert bed.ask(None).live() == {bed.function: "enable_uvm=1"}, "nothing is requested any more"
    assert bed.ask("").live() == {bed.function: ""}, "the plugin's defaults are requested"


def test_a_vgpu_that_a_vm_has_open_keeps_its_own_until_the_vm_ends(bed: Bed) -> None:
    bed.enable()
    bed.start_vm()
    bed.ask("enable_uvm=1")
    assert bed.live() == {bed.function: ""}
    assert bed.ready() == ("False", "Held")
    assert "should have plugin parameters enable_uvm=1, has none, and is in use by" in bed.message()
    bed.one.stop_vm()
    bed.one.settle()
    assert bed.live() == {bed.function: "enable_uvm=1"}
    assert bed.ready() == ("True", "Configured")


@pytest.mark.parametrize("text", ["enable_uvw=1", "enable_uvm=2", "enable_uvm", "=1"])
def test_names_and_values_that_nvidia_does_not_document_change_nothing(bed: Bed, text: str) -> None:
    bed.enable().ask(text)
    assert bed.live() == {bed.function: ""}
    assert bed.ready() == ("False", "Parameter")
    assert "enable_uvm" in bed.message()
    assert f"kubectl annotate vgpudevice {bed.one.name_of(bed.function)}" in bed.message()


def test_a_type_without_cuda_gets_no_vgpu_with_cuda_parameters(bed: Bed) -> None:
    bed.ask("enable_profiling=1").enable(bed.without_cuda)
    assert bed.live() == {}
    assert bed.ready() == ("False", "Parameter")
    assert "needs CUDA in the guest" in bed.message()
    bed.ask("enable_profiling=0,frame_rate_limiter=0")
    assert bed.live() == {bed.function: "enable_profiling=0,frame_rate_limiter=0"}


def test_a_vgpu_of_another_creator_keeps_its_own(bed: Bed) -> None:
    uuid = "" if bed.one.node.whole.read().gpus[0].virtual is None else "11111111-2222-4333-8444-555555555555"
    bed.one.make_by_hand(bed.function, bed.type_id, uuid if bed.type == "NVIDIA A2-4Q" else "")
    bed.ask("enable_uvm=1")
    assert bed.live() == {bed.function: ""}
