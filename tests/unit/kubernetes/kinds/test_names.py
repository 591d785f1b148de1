"""Names that existing VMs and Harvester's user interface rely on."""

from __future__ import annotations

import pytest

from aliquot.kubernetes.kinds import harvester_names as names


def test_an_object_is_named_after_node_and_address() -> None:
    assert names.object_name("node", "0000:08:00.4") == "node-000008004"
    assert names.object_name("dell-190-tink-system", "0000:04:00.0") == "dell-190-tink-system-000004000"


@pytest.mark.parametrize(
    ("type_name", "resource"),
    [
        ("NVIDIA A2-4C", "nvidia.com/NVIDIA_A2-4C"),
        ("NVIDIA L40S-12A", "nvidia.com/NVIDIA_L40S-12A"),
        ("GRID A100X-1-5CME", "nvidia.com/GRID_A100X-1-5CME"),
        ("NVIDIA RTX Pro 6000 Blackwell DC-1-24Q", "nvidia.com/NVIDIA_RTX_Pro_6000_Blackwell_DC-1-24Q"),
    ],
)
def test_the_resource_of_a_vgpu_keeps_case_and_hyphens(type_name: str, resource: str) -> None:
    # Conformance A3.
    assert names.vgpu_resource(type_name) == resource


LONG = "AD102GL VIRTUAL FUNCTION OF A PRODUCT NAME AS LONG AS"


@pytest.mark.parametrize(
    ("vendor", "product", "word"),
    [
        ("NVIDIA Corporation", "GA100 [A100 SXM4 40GB]", "nvidia.com/GA100_A100_SXM4_40GB"),
        ("NVIDIA Corporation", "GA100 [A100 SXM4 40GB] ", "nvidia.com/GA100_A100_SXM4_40GB"),
        ("NVIDIA Corporation", "!!!", "nvidia.com/20b0"),
        ("NVIDIA Corporation", "", "nvidia.com/20b0"),
        ("NVIDIA Corporation", "GA107GL [A2 / A16]", "nvidia.com/GA107GL_A2___A16"),
        ("Advanced Micro Devices, Inc. [AMD/ATI]", "Navi 21", "amd.com/NAVI_21"),
        ("Intel Corporation", "82599 Ethernet Controller Virtual Function", None),
        ("NVIDIA Corporation", LONG, "nvidia.com/AD102GL_VF_OF_A_PRODUCT_NAME_AS_LONG_AS"),
        ("NVIDIA Corporation", f"{LONG} {LONG}", "nvidia.com/20b0"),
    ],
)
def test_the_resource_of_a_function(vendor: str, product: str, word: str | None) -> None:
    # Conformance A8: spaces, invalid names, and sockets whose path would be too long.
    expected = word or "intel.com/82599_ETHERNET_CONTROLLER_VIRTUAL_FUNCTION"
    assert names.pci_resource(vendor, product, "20b0") == expected


def test_what_virt_launcher_reads() -> None:
    resource = "nvidia.com/NVIDIA_A2-4Q"
    assert names.environment(resource, names.MDEV_ENV) == "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4Q"
    assert names.environment(resource, names.PCI_ENV) == "PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4Q"
