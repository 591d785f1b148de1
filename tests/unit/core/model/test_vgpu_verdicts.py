"""Verdicts on a host of VMs."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model import driver_checks as drivers
from aliquot.core.model import vgpu_checks as vgpu_verdicts
from aliquot.core.model.inventory import GpuVirtualization, HostVirtualization, Inventory, Vgpu, VirtualFunction
from support.factory import inventory

VF = VirtualFunction("0000:07:00.4", 0, "nvidia", 90)
VGPU = Vgpu("0000:07:00.4", 746, "NVIDIA A2-4Q")


def node(
    driver: str = "580.65.06", *, host: HostVirtualization | None = None, vgpus: object = False, **virtual: object
) -> Inventory:
    base = inventory("a2")
    gpu = msgspec.structs.replace(base.gpus[0], virtual=GpuVirtualization(**virtual), vgpus=(VGPU,) if vgpus else ())  # type: ignore[arg-type]
    return msgspec.structs.replace(
        base, gpus=(gpu,), driver=driver, host=host or HostVirtualization(iommu=True, vfio=True)
    )


def messages(found: Inventory) -> str:
    return "\n".join(drivers.verdicts(found))


def test_a_host_that_works_has_no_warning_and_a_note_on_licences() -> None:
    found = node(framework="sriov-mdev", total=16, functions=(VF,), vgpus=True)
    assert messages(found) == ""
    assert drivers.notes(found) == (vgpu_verdicts.LICENCE,)


def test_a_node_of_containers_is_not_lectured_about_virtual_machines() -> None:
    off = HostVirtualization(iommu=False, vgpu_manager=False, kernel="6.14.0")
    assert messages(node("535.1", host=off, total=16)) == ""
    assert drivers.notes(node(total=16)) == ()


@pytest.mark.parametrize(
    ("driver", "facts", "host", "words"),
    [
        ("535.129.03", {"framework": "vendor-vfio"}, HostVirtualization(iommu=True), "older than R550 (vGPU 17)"),
        (
            "535.129.03",
            {},
            HostVirtualization(iommu=True, kernel="6.14.0-37"),
            "kernel 6.14.0-37 needs a vGPU host driver of R550",
        ),
        (
            "550.90.05",
            {},
            HostVirtualization(iommu=True, kernel="6.14.0-37"),
            "neither mediated devices nor vendor-specific",
        ),
        (
            "535.129.03",
            {},
            HostVirtualization(iommu=True, kernel="5.15.0"),
            "neither mediated devices nor vendor-specific",
        ),
        ("580.65.06", {}, HostVirtualization(iommu=True, vgpu_manager=False), "(vGPU manager) is not installed"),
        ("580.65.06", {"framework": "sriov-mdev"}, HostVirtualization(iommu=False), "the IOMMU is off"),
    ],
)
def test_what_is_wrong_is_reported(driver: str, facts: dict[str, object], host: HostVirtualization, words: str) -> None:
    assert words in messages(node(driver, host=host, total=16, functions=(VF,), **facts))


def test_virtual_functions_need_an_iommu_before_they_are_on() -> None:
    able = HostVirtualization(iommu=False, vgpu_manager=True)
    assert "the IOMMU is off" in messages(node(host=able, total=16))
    assert messages(node(host=able, framework="mdev")) == "", "an mdev of the GPU itself needs none"


def test_remembered_vgpus_without_the_vgpu_driver() -> None:
    found = node(host=HostVirtualization(iommu=True, vgpu_manager=False), total=16, recorded_vgpus=(VGPU,))
    assert "is meant for vGPUs" in messages(found)
    assert messages(node(total=16, recorded_vgpus=(VGPU,))) == "", (
        "virtual functions are off after a boot: this is not an error yet"
    )
