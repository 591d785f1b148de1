"""The state of a guest's license in a document: what names the vGPU, and nothing that changes with every sample."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model.inventory import Gpu, Vgpu
from aliquot.core.model.vgpu_usage import LicenseState, VgpuUsage, license_states

GPU = Gpu("0000:99:00.0", "GPU-a", 0, "NVIDIA A2", vgpus=(Vgpu("0000:99:00.4", 7, "NVIDIA A2-4Q", "mdev"),))
SEEN = VgpuUsage(GPU.pci, 7, "u", "mdev", "vm", 0.5, 0.2, 0.1, 0.0, 1024, "licensed", 4e9)


def test_a_document_has_the_state_and_no_figures() -> None:
    later = msgspec.structs.replace(SEEN, compute=0.9, memory_used_mib=2048, license_expires=5e9)
    assert license_states((SEEN,), (GPU,)) == license_states((later,), (GPU,))
    assert license_states((SEEN,), (GPU,)) == (VgpuUsage(GPU.pci, 7, "u", "mdev", "vm", license="licensed"),)


def test_a_vgpu_that_is_gone_is_left_out() -> None:
    assert license_states((SEEN,), (msgspec.structs.replace(GPU, vgpus=()),)) == ()


@pytest.mark.parametrize(
    ("state", "licensed"),
    [
        ("", None),
        ("uninitialized", None),
        ("unlicensed-unrestricted", False),
        ("unlicensed", False),
        ("licensed", True),
    ],
)
def test_an_unknown_state_is_neither_licensed_nor_unlicensed(state: LicenseState, licensed: bool | None) -> None:
    assert msgspec.structs.replace(SEEN, license=state).licensed is licensed
