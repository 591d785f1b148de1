"""Objects in Harvester's own documents, field by field, from the same host."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, shown

A2, A100 = "0000:08:00.0", "0000:04:00.0"
GLOB = tuple("00.4 00.5 01.6 01.7 02.0 02.1 02.2 02.3 00.6 00.7 01.0 01.1 01.2 01.3 01.4 01.5".split())  # noqa: SIM905
"""virtfn0, virtfn1, virtfn10 ... virtfn15, virtfn2 ... virtfn9."""
TYPES = """
NVIDIA A2-2A: nvidia-750
NVIDIA A2-2B: nvidia-743
NVIDIA A2-2Q: nvidia-745
NVIDIA A2-4A: nvidia-751
NVIDIA A2-4C: nvidia-754
NVIDIA A2-4Q: nvidia-746
NVIDIA A2-8A: nvidia-752
NVIDIA A2-8C: nvidia-755
NVIDIA A2-8Q: nvidia-747
NVIDIA A2-16A: nvidia-753
NVIDIA A2-16C: nvidia-756
NVIDIA A2-16Q: nvidia-748
NVIDIA A2-1A: nvidia-749
NVIDIA A2-1B: nvidia-742
NVIDIA A2-1Q: nvidia-744
"""
MIG = """
apiVersion: devices.harvesterhci.io/v1beta1
kind: MigConfiguration
metadata:
  name: dell-190-tink-system-000004000
  ownerReferences:
  - apiVersion: devices.harvesterhci.io/v1beta1
    kind: SRIOVGPUDevice
    name: dell-190-tink-system-000004000
    uid: OWNER
spec:
  enabled: true
  gpuAddress: "0000:04:00.0"
  nodeName: dell-190-tink-system
  profileSpec:
  - {id: 19, name: MIG 1g.5gb, requested: 6}
  - {id: 20, name: MIG 1g.5gb+me, requested: 1}
  - {id: 15, name: MIG 1g.10gb, requested: 0}
  - {id: 14, name: MIG 2g.10gb, requested: 0}
  - {id: 9, name: MIG 3g.20gb, requested: 0}
  - {id: 5, name: MIG 4g.20gb, requested: 0}
  - {id: 0, name: MIG 7g.40gb, requested: 0}
status:
  profileStatus:
  - {available: 0, id: 19, name: MIG 1g.5gb, total: 7, vGPUID: ["7", "8", "9", "11", "12", "13"]}
  - {available: 0, id: 20, name: MIG 1g.5gb+me, total: 1, vGPUID: ["10"]}
  - {available: 0, id: 15, name: MIG 1g.10gb, total: 4}
  - {available: 0, id: 14, name: MIG 2g.10gb, total: 3}
  - {available: 0, id: 9, name: MIG 3g.20gb, total: 2}
  - {available: 0, id: 5, name: MIG 4g.20gb, total: 1}
  - {available: 0, id: 0, name: MIG 7g.40gb, total: 1}
  status: synced
"""


@pytest.fixture
def a2(tmp_path: Path) -> One:
    """Build the A2 of Harvester's documents, with its objects."""
    return One("a2:mdev", tmp_path, "harvester-82cd7", A2).settle()


def test_an_sriovgpudevice_of_a_gpu_that_is_not_enabled(a2: One) -> None:
    assert shown(a2.device(A2)) == {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "SRIOVGPUDevice",
        "metadata": {"name": "harvester-82cd7-000008000", "labels": {"nodename": "harvester-82cd7"}},
        "spec": {"address": "0000:08:00.0", "enabled": False, "nodeName": "harvester-82cd7"},
        "status": {},
    }


def test_an_enabled_sriovgpudevice_lists_its_functions_as_the_glob_does(a2: One) -> None:
    a2.kubectl("SRIOVGPUDevice", a2.name_of(A2), enabled=True)
    found = a2.device(A2)
    assert shown(found)["status"] == {
        "vfAddresses": [f"0000:08:{at}" for at in GLOB],
        "vGPUDevices": [f"harvester-82cd7-000008{at.replace('.', '')}" for at in GLOB],
    }
    assert found["spec"] == {"address": "0000:08:00.0", "enabled": True, "nodeName": "harvester-82cd7"}


def test_a_vgpudevice_for_each_function_with_the_types_that_it_can_take(a2: One) -> None:
    a2.kubectl("SRIOVGPUDevice", a2.name_of(A2), enabled=True)
    assert sorted(a2.store.of("VGPUDevice")) == sorted(f"harvester-82cd7-000008{at.replace('.', '')}" for at in GLOB)
    assert shown(a2.vgpu("0000:08:02.1")) == {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "VGPUDevice",
        "metadata": {
            "name": "harvester-82cd7-000008021",
            "labels": {
                "harvesterhci.io/parentSRIOVGPUDevice": "harvester-82cd7-000008000",
                "nodename": "harvester-82cd7",
            },
        },
        "spec": {
            "address": "0000:08:02.1",
            "enabled": False,
            "nodeName": "harvester-82cd7",
            "parentGPUDeviceAddress": "0000:08:00.0",
            "vGPUTypeName": "",
        },
        "status": {"availableTypes": yaml.safe_load(TYPES)},
    }


def test_a_configured_vgpudevice_and_what_is_left_for_its_siblings(a2: One) -> None:
    # The UUID differs: an mdev that exists when the agent starts keeps its own.
    a2.store.objects.clear()
    a2.functions_by_hand(True)
    a2.make_by_hand("0000:08:00.4", 747, "5b5b7326-6bb8-48cb-a321-8fa58ccbb38c")
    a2.settle()
    found = shown(a2.vgpu("0000:08:00.4"))
    assert found["spec"] == {
        "address": "0000:08:00.4",
        "enabled": True,
        "nodeName": "harvester-82cd7",
        "parentGPUDeviceAddress": "0000:08:00.0",
        "vGPUTypeName": "NVIDIA A2-8Q",
    }
    assert found["status"] == {
        "configureVGPUTypeName": "NVIDIA A2-8Q",
        "uuid": "5b5b7326-6bb8-48cb-a321-8fa58ccbb38c",
        "vGPUStatus": "vGPUConfigured",
    }
    left = {"NVIDIA A2-8A": "nvidia-752", "NVIDIA A2-8C": "nvidia-755", "NVIDIA A2-8Q": "nvidia-747"}
    assert shown(a2.vgpu("0000:08:02.1"))["status"] == {"availableTypes": left}


def test_four_a2_4q_and_nothing_is_left_to_choose(a2: One) -> None:
    # Seed 003, "Cap on usable vGPUs".
    a2.kubectl("SRIOVGPUDevice", a2.name_of(A2), enabled=True)
    for at, kind in (("00.4", "4A"), ("00.5", "4Q"), ("00.6", "4A"), ("00.7", "4Q")):
        name = a2.name_of(f"0000:08:{at}")
        a2.kubectl("VGPUDevice", name, enabled=True, vGPUTypeName=f"NVIDIA A2-{kind}")
    rest = [shown(body)["status"] for body in a2.store.of("VGPUDevice").values() if not body["spec"]["enabled"]]
    assert rest == [{}] * 12
    assert len(a2.live()) == 4


def test_the_machine_of_the_originals_own_tests(tmp_path: Path) -> None:
    # Conformance A1: one GPU, sixteen functions, three mdevs of 754, 751 and 746.
    one = One("a2:mdev", tmp_path, "TEST_NODE", A2)
    one.functions_by_hand(True)
    made = {"0000:08:00.4": 754, "0000:08:00.6": 751, "0000:08:02.0": 746}
    for n, (address, kind) in enumerate(made.items()):
        one.make_by_hand(address, kind, f"00000000-0000-4000-8000-{n:012d}")
    one.settle()
    assert list(one.store.of("SRIOVGPUDevice")) == ["TEST_NODE-000008000"]
    assert len(one.store.of("VGPUDevice")) == 16
    carried = {b["spec"]["address"]: b["spec"]["vGPUTypeName"] for b in one.store.of("VGPUDevice").values()}
    assert {a: t for a, t in carried.items() if t} == {
        "0000:08:00.4": "NVIDIA A2-4C",
        "0000:08:00.6": "NVIDIA A2-4A",
        "0000:08:02.0": "NVIDIA A2-4Q",
    }
    # Conformance A2: a free function of this host then offers exactly three types.
    assert shown(one.vgpu("0000:08:01.7"))["status"] == {
        "availableTypes": {"NVIDIA A2-4A": "nvidia-751", "NVIDIA A2-4C": "nvidia-754", "NVIDIA A2-4Q": "nvidia-746"}
    }


def test_an_l40s_of_vendor_vfio_offers_types_by_their_numbers(tmp_path: Path) -> None:
    # Conformance A2: 23 types, as the captured ``creatable_vgpu_types`` lists them.
    capture = Path(__file__).parents[4] / "recorded" / "captured" / "l40s-vendor-vfio-sysfs.txt"
    lines = [line.split(":") for line in capture.read_text().splitlines() if line[:1].isdigit() and ":" in line]
    listed = {name.strip(): number.strip() for number, name in lines}
    assert len(listed) == 23
    one = One("l40s:vfio", tmp_path, "n", "0000:26:00.0").settle()
    one.kubectl("SRIOVGPUDevice", one.name_of("0000:26:00.0"), enabled=True)
    first = one.device("0000:26:00.0")["status"]["vfAddresses"][0]
    assert one.vgpu(first)["status"]["availableTypes"] == listed


def test_a_migconfiguration_six_and_one(tmp_path: Path) -> None:
    one = One("a100-sxm4-40gb:vfio", tmp_path, "dell-190-tink-system", A100).settle()
    one.kubectl("SRIOVGPUDevice", one.name_of(A100), enabled=True)
    sample = yaml.safe_load(MIG.replace("OWNER", one.device(A100)["metadata"]["uid"]))
    one.kubectl("MigConfiguration", one.name_of(A100), enabled=True, profileSpec=sample["spec"]["profileSpec"])
    assert shown(one.mig(A100)) == sample


def test_a_new_migconfiguration_asks_for_nothing(tmp_path: Path) -> None:
    # Conformance A4: seven profiles, in the order of ``nvidia-smi mig -lgip``.
    one = One("a100-sxm4-40gb:vfio", tmp_path, "n", A100).settle()
    one.kubectl("SRIOVGPUDevice", one.name_of(A100), enabled=True)
    body = one.mig(A100)
    assert [(p["id"], p["requested"]) for p in body["spec"]["profileSpec"]] == [
        (i, 0) for i in (19, 20, 15, 14, 9, 5, 0)
    ]
    assert not body["spec"]["enabled"]
    assert body["status"]["status"] == "", "Harvester's page edits it only then"
    rows = body["status"]["profileStatus"]
    assert [(p["available"], p["total"]) for p in rows] == [(n, n) for n in (7, 1, 4, 3, 2, 1, 1)]
    assert all("vGPUID" not in p for p in rows)


def test_two_halves_of_an_h100_nvl_leave_nothing(tmp_path: Path) -> None:
    # Conformance A4: profile 9 twice, ids 1 and 2. Every profile then shows 0, including the 1g ones.
    one = One("h100-nvl:vfio", tmp_path, "n", "0000:a1:00.0").settle()
    one.kubectl("SRIOVGPUDevice", one.name_of("0000:a1:00.0"), enabled=True)
    body = one.mig("0000:a1:00.0")
    spec = [{**p, "requested": 2 if p["id"] == 9 else 0} for p in body["spec"]["profileSpec"]]
    one.kubectl("MigConfiguration", one.name_of("0000:a1:00.0"), enabled=True, profileSpec=spec)
    rows = {p["id"]: p for p in one.mig("0000:a1:00.0")["status"]["profileStatus"]}
    assert rows[9]["vGPUID"] == ["1", "2"]
    assert {p["available"] for p in rows.values()} == {0}


def test_pci_devices_are_named_and_described_as_in_the_original(a2: One) -> None:
    # Conformance A8 contains the rules for names. This is an object of the same host.
    a2.kubectl("SRIOVGPUDevice", a2.name_of(A2), enabled=True)
    found = a2.store.get("PCIDevice", "harvester-82cd7-000008000")
    assert shown(found)["status"] == {
        "address": "0000:08:00.0",
        "vendorId": "10de",
        "deviceId": "25b6",
        "classId": "0302",
        "iommuGroup": "32",
        "nodeName": "harvester-82cd7",
        "resourceName": "nvidia.com/GA107GL_A2___A16",
        "description": "3D controller: NVIDIA Corporation GA107GL [A2 / A16]",
        "kernelDriverInUse": "nvidia",
    }
    assert found["metadata"]["labels"] == {"nodename": "harvester-82cd7"}
    assert found["metadata"]["annotations"] == {"harvesterhci.io/pcideviceDriver": "nvidia"}
    child = a2.store.get("PCIDevice", "harvester-82cd7-000008021")
    assert child["metadata"]["labels"]["harvesterhci.io/parentSRIOVGPUDevice"] == "harvester-82cd7-000008000"
