"""The CDI documents and metadata files of claims: each names exactly its own devices, and goes with its claim."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.cdi import api as cdi
from aliquot.cdi import rules, spec, spec_files
from aliquot.cdi.options import CdiHost, CdiOptions, Majors
from aliquot.errors import BlockedError, StorageError
from aliquot.kubernetes.dra.plugin.claim_documents import ClaimDocuments
from aliquot.node.holders.prepared_claims import RecordedClaim, RecordedDevice
from unit.cdi.test_cdi_spec import node

DRIVER = "gpu.aliquot.dev"
HOST = CdiOptions(host=CdiHost(majors=Majors(gpu=195, uvm=511, caps=238)))
NODE = node("1g.5gb@0", "3g.20gb@4")


def recorded(uid: str, *devices: RecordedDevice, pod_claim: str = "") -> RecordedClaim:
    return RecordedClaim(uid, "team", "train", "boot", devices, pod_claim)


def mig(instance: int, request: str = "r") -> RecordedDevice:
    gpu = NODE.gpus[0]
    found = gpu.instances[instance]
    uuid = found.compute_instances[0].uuid
    return RecordedDevice((request,), "p", f"gpu-0-mig-{instance}", gpu.uuid, found.profile_id, found.placement, uuid)


def whole(request: str = "r") -> RecordedDevice:
    return RecordedDevice((request,), "p", "gpu-1", NODE.gpus[1].uuid, uuid=NODE.gpus[1].uuid)


def documents(folder: Path, **more: Any) -> ClaimDocuments:
    return ClaimDocuments(DRIVER, str(folder / "cdi"), lambda: HOST, **more)


def write(made: ClaimDocuments, claim: RecordedClaim) -> RecordedClaim:
    return asyncio.run(made.write(claim, NODE))


def document(folder: Path, uid: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((folder / f"cdi/aliquot-{DRIVER}-claim-{uid}.json").read_text())
    assert rules.document_errors(made) == ()
    return made


def opened(entry: dict[str, Any]) -> list[str]:
    return [n["path"] for n in entry["containerEdits"]["deviceNodes"]]


def test_a_device_opens_its_own_nodes_and_no_other(tmp_path: Path) -> None:
    found = write(documents(tmp_path), recorded("u1", mig(0), mig(1), whole()))
    made = document(tmp_path, "u1")
    names = ["u1-gpu-0-mig-0", "u1-gpu-0-mig-1", "u1-gpu-1"]
    assert [d.cdi_ids for d in found.devices] == [(f"k8s.{DRIVER}/claim={name}",) for name in names]
    assert [d["name"] for d in made["devices"]] == names
    first, second = (NODE.gpus[0].instances[n] for n in (0, 1))
    for entry, instance in zip(made["devices"], (first, second), strict=False):
        minors = instance.capability_minor, instance.compute_instances[0].capability_minor
        assert opened(entry) == ["/dev/nvidia0", *(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors)]
    assert opened(made["devices"][2]) == ["/dev/nvidia1"]
    common = [n["path"] for n in made["containerEdits"]["deviceNodes"]]
    assert "/dev/nvidiactl" in common
    assert "/dev/nvidia-uvm" in common


def test_it_stands_beside_the_document_of_the_node(tmp_path: Path) -> None:
    write(documents(tmp_path), recorded("u1", mig(0)))
    spec_files.write(str(tmp_path / "cdi/nvidia.com-gpu.yaml"), spec.document(NODE, HOST))
    write(documents(tmp_path), recorded("u2", mig(1)))
    cdi.retract(str(tmp_path / "cdi"))  # after a change of the node's devices
    assert sorted(p.name[-7:] for p in (tmp_path / "cdi").iterdir()) == ["u1.json", "u2.json"]


def test_it_goes_with_its_claim(tmp_path: Path) -> None:
    made = documents(tmp_path, metadata_dir=str(tmp_path / "metadata"))
    for uid in ("u1", "u2", "u3"):
        write(made, recorded(uid, mig(0)))
    asyncio.run(made.remove("u1"))
    asyncio.run(made.remove("u1"))
    asyncio.run(made.remove_others({"u3"}))
    left = [p.name for p in (tmp_path / "cdi").iterdir()], [p.name for p in (tmp_path / "metadata").iterdir()]
    assert left == ([f"aliquot-{DRIVER}-claim-u3.json"], ["u3"])


def test_a_device_that_is_gone_is_refused(tmp_path: Path) -> None:
    gone = RecordedDevice(("r",), "p", "gpu-0-mig-9", NODE.gpus[0].uuid, 19, "6:1", "MIG-gone")
    with pytest.raises(BlockedError, match="gpu-0-mig-9 is gone"):
        write(documents(tmp_path), recorded("u1", gone))
    assert not (tmp_path / "cdi").exists()


@pytest.mark.parametrize(
    ("pod_claim", "place"), [("", "resourceclaims/train"), ("gpu", "resourceclaimtemplates/gpu")], ids=["named", "made"]
)
def test_containers_find_the_metadata_where_kubevirt_looks(tmp_path: Path, pod_claim: str, place: str) -> None:
    made = documents(
        tmp_path,
        metadata_dir=str(tmp_path / "metadata"),
        attributes=lambda pool, device: {"resource.kubernetes.io/pciBusID": {"string": f"{pool}/{device}"}},
    )
    write(made, recorded("u1", mig(0, "small/one"), whole("big"), pod_claim=pod_claim))
    mounts = [d["containerEdits"]["mounts"] for d in document(tmp_path, "u1")["devices"]]
    inside = "/var/run/kubernetes.io/dra-device-attributes"
    assert [[m["containerPath"] for m in each] for each in mounts] == [
        [f"{inside}/{place}/small/{DRIVER}-metadata.json"],
        [f"{inside}/{place}/big/{DRIVER}-metadata.json"],
    ]
    found = json.loads(Path(mounts[0][0]["hostPath"]).read_text())
    assert (found["kind"], found["apiVersion"]) == ("DeviceMetadata", "metadata.resource.k8s.io/v1alpha1")
    assert found["metadata"] == {"name": "train", "namespace": "team", "uid": "u1", "generation": 1}
    assert found.get("podClaimName", "") == pod_claim
    (request,) = found["requests"]
    (device,) = request["devices"]
    assert (request["name"], device["driver"], device["name"]) == ("small/one", DRIVER, "gpu-0-mig-0")
    assert device["attributes"] == {"resource.kubernetes.io/pciBusID": {"string": "p/gpu-0-mig-0"}}


def test_a_folder_that_cannot_be_made_is_an_error_with_a_path(tmp_path: Path) -> None:
    (tmp_path / "metadata").touch()
    with pytest.raises(StorageError, match="metadata"):
        write(documents(tmp_path, metadata_dir=str(tmp_path / "metadata")), recorded("u1", mig(0)))


@pytest.mark.parametrize("uid", ["../u", "", "a/b"])
def test_a_uid_that_leads_out_of_the_folder_is_refused(tmp_path: Path, uid: str) -> None:
    with pytest.raises(BlockedError, match="is not a name"):
        write(documents(tmp_path), recorded(uid, mig(0)))
    with pytest.raises(BlockedError, match="is not a name"):
        asyncio.run(documents(tmp_path).remove(uid))


def for_vm(kind: str, function: str, uuid: str, request: str = "gpu") -> RecordedDevice:
    opened = ("/dev/vfio/vfio", "/dev/iommu", "/dev/vfio/90", "/dev/vfio/devices/vfio3")
    made = RecordedDevice((request,), "p", f"vm-{kind}", NODE.gpus[1].uuid, uuid=uuid)
    return msgspec.structs.replace(made, vm=kind, function=function, vfio_files=opened)


def test_a_device_for_a_vm_opens_vfio_and_brings_no_driver(tmp_path: Path) -> None:
    write(documents(tmp_path), recorded("u1", for_vm("vfio", "0000:08:00.0", "GPU-1")))
    made = document(tmp_path, "u1")
    opened_files = ["/dev/vfio/vfio", "/dev/iommu", "/dev/vfio/90", "/dev/vfio/devices/vfio3"]
    assert opened(made["devices"][0]) == opened_files
    assert "containerEdits" not in made
    write(documents(tmp_path), recorded("u2", for_vm("L40S-12Q", "0000:08:00.4", "u"), mig(0)))
    both = document(tmp_path, "u2")
    assert [each["name"] for each in both["devices"]] == ["u2-vm-L40S-12Q", "u2-gpu-0-mig-0"]
    assert opened(both["devices"][0]) == opened_files
    assert opened(both["devices"][1])[0] == "/dev/nvidia0"


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (for_vm("L40S-12Q", "0000:08:00.4", "u"), {"resource.kubernetes.io/pciBusID": {"string": "0000:08:00.4"}}),
        (for_vm("vfio", "0000:08:00.0", "GPU-1"), {"resource.kubernetes.io/pciBusID": {"string": "0000:08:00.0"}}),
        (
            for_vm("A2-4Q", "", "4f5a"),
            {"mdevUUID": {"string": "4f5a"}, "resource.kubernetes.io/pciBusID": {"string": "0000:08:00.0"}},
        ),
    ],
)
def test_kubevirt_reads_which_device_it_attaches(
    tmp_path: Path, device: RecordedDevice, expected: dict[str, Any]
) -> None:
    # kubevirt takes mdevUUID first: beside it, the address is that of the GPU
    def attributes(_pool: str, _device: str) -> dict[str, Any]:
        return {"resource.kubernetes.io/pciBusID": {"string": "0000:08:00.0"}}

    made = documents(tmp_path, metadata_dir=str(tmp_path / "meta"), attributes=attributes)
    write(made, recorded("u1", device, pod_claim="vm-gpu"))
    mount = document(tmp_path, "u1")["devices"][0]["containerEdits"]["mounts"][0]
    inside = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/vm-gpu/gpu"
    assert mount["containerPath"] == f"{inside}/{DRIVER}-metadata.json"
    stream = json.loads(Path(mount["hostPath"]).read_text())
    assert stream["apiVersion"] == "metadata.resource.k8s.io/v1alpha1"
    assert stream["requests"][0]["name"] == "gpu"
    assert stream["requests"][0]["devices"][0]["attributes"] == expected
