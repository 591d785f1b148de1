"""Devices in a launcher's environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.kubernetes.kinds.harvester_names import MDEV_ENV, PCI_ENV, environment
from aliquot.kubernetes.virtual_machines.kubevirt.launcher_pod import by_resource, devices
from support.selection import laws

A2, L40S = "nvidia.com/NVIDIA_A2-4A", "nvidia.com/NVIDIA_L40S-12A"
ONE, TWO = "b2107403-110c-45b0-af87-32cc91597b8a", "2a4cb2c6-1d33-4f5e-9b64-7fb3a2a4d0ee"
NOTHING: dict[str, dict[str, tuple[str, ...]]] = {"mdev": {}, "pci": {}}


def test_two_uuids_in_one_variable() -> None:
    text = f"PATH=/usr/bin\nMDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4A={ONE},{TWO}\nHOME=/\n"
    found = devices(text)
    assert found == {"mdev": {"NVIDIA_COM_NVIDIA_A2-4A": (ONE, TWO)}, "pci": {}}
    assert by_resource(found, [L40S, A2]) == {A2: (ONE, TWO)}


def test_duplicates_are_dropped_in_order_wherever_they_stand() -> None:
    # Harvester's plugin answers with the whole IOMMU group for each device, so that addresses repeat. Its own reader
    # drops only adjacent ones.
    text = "PCI_RESOURCE_NVIDIA_COM_NVIDIA_L40S-12A=0000:26:00.4,0000:26:00.5,0000:26:00.4,\n"
    assert devices(text)["pci"] == {"NVIDIA_COM_NVIDIA_L40S-12A": ("0000:26:00.4", "0000:26:00.5")}


def test_several_resources_and_both_kinds() -> None:
    text = f"PCI_RESOURCE_NVIDIA_COM_GA102GL_A40=0000:01:00.0\nMDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4A={ONE}\n"
    resources = [A2, "nvidia.com/GA102GL_A40", "intel.com/X"]
    assert by_resource(devices(text), resources) == {A2: (ONE,), "nvidia.com/GA102GL_A40": ("0000:01:00.0",)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4A=",
        "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4A",
        f"MDEV_PCI_RESOURCE_={ONE}",
        "MDEV_PCI_RESOURCE_X=0000:26:00.4",
        f"PCI_RESOURCE_X={ONE}",
        "PCI_RESOURCE_X=../../etc/passwd",
        f"MY_MDEV_PCI_RESOURCE_X={ONE}",
        "PCIDEVICE_INTEL_COM_NIC=0000:26:00.4",
    ],
)
def test_what_is_no_device(text: str) -> None:
    assert devices(text) == NOTHING


def test_a_value_with_line_breaks_says_nothing_where_variables_end_with_nul() -> None:
    # In ``/proc/1/environ``, a line break is part of a value.
    text = f"NOTE=hello\nPCI_RESOURCE_X=0000:26:00.4\0MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4A={ONE}\0"
    assert devices(text) == {"mdev": {"NVIDIA_COM_NVIDIA_A2-4A": (ONE,)}, "pci": {}}


def test_upper_case_is_the_same_device() -> None:
    assert devices(f"MDEV_PCI_RESOURCE_X={ONE.upper()},{ONE}")["mdev"] == {"X": (ONE,)}


ADDRESSES = st.from_regex(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", fullmatch=True)
PAIRS = st.tuples(st.lists(st.uuids().map(str), max_size=4), st.lists(ADDRESSES, max_size=4))
NAMES = st.from_regex(r"nvidia\.com/[A-Za-z][A-Za-z0-9_.-]{0,20}", fullmatch=True)


@laws(100)
@given(st.dictionaries(NAMES, PAIRS, max_size=4))
def test_what_a_plugin_writes_is_what_is_read(offered: dict[str, tuple[list[str], list[str]]]) -> None:
    spelled = {environment(name, ""): name for name in offered}
    if len(spelled) < len(offered):
        return  # two that a variable's name cannot distinguish
    lines = [f"{environment(n, MDEV_ENV)}={','.join(mdev)}" for n, (mdev, _) in offered.items()]
    lines += [f"{environment(n, PCI_ENV)}={','.join(pci)}" for n, (_, pci) in offered.items()]
    wanted = {n: (*dict.fromkeys(mdev), *dict.fromkeys(pci)) for n, (mdev, pci) in offered.items() if mdev or pci}
    assert by_resource(devices("\n".join(lines)), offered) == wanted
