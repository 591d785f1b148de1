"""Device metadata files: what a container can know of the devices of its claims, as KubeVirt reads it.

The files are JSON streams of ``DeviceMetadata`` (``metadata.resource.k8s.io/v1alpha1``, Kubernetes 1.36, alpha). The
path in the container has the name of the claim, or the pod's own name for a claim that was made from a template.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from aliquot.errors import StorageError
from aliquot.foundation import atomic_file
from aliquot.node.holders.prepared_claims import RecordedClaim, RecordedDevice

CONTAINER_DIR = "/var/run/kubernetes.io/dra-device-attributes"
API_VERSION = "metadata.resource.k8s.io/v1alpha1"
PCI_BUS_ID, MDEV_UUID = "resource.kubernetes.io/pciBusID", "mdevUUID"
OPTIONS = ("ro", "nosuid", "nodev", "bind")

Attributes = Callable[[str, str], Mapping[str, Any]]
"""Returns the attributes of a device by pool and name, as a ResourceSlice has them."""


def no_attributes(_pool: str, _device: str) -> Mapping[str, Any]:
    """Return nothing: the files then have the names of devices only."""
    return {}


def write(claim: RecordedClaim, driver: str, directory: str, attributes: Attributes) -> dict[str, dict[str, Any]]:
    """Write one file for each request of a claim. Return the mount of each, by request. Raises StorageError."""
    mounts = {}
    for request in dict.fromkeys(name for device in claim.devices for name in device.requests):
        base = request.partition("/")[0]
        path = os.path.join(directory, claim.uid, base, f"{driver}-metadata.json")
        try:
            atomic_file.replace(path, _stream(claim, driver, request, attributes))
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}", next_step=f"ls -ld {directory}") from error
        kind, name = ("resourceclaimtemplates", claim.pod_claim) if claim.pod_claim else ("resourceclaims", claim.name)
        inside = f"{CONTAINER_DIR}/{kind}/{name}/{base}/{driver}-metadata.json"
        mounts[request] = {"hostPath": path, "containerPath": inside, "options": list(OPTIONS)}
    return mounts


def remove(uid: str, directory: str) -> None:
    """Remove the files of a claim. Raises StorageError."""
    path = os.path.join(directory, uid)
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror}", next_step=f"ls -ld {directory}") from error


def _stream(claim: RecordedClaim, driver: str, request: str, attributes: Attributes) -> bytes:
    devices = [
        {
            "driver": driver,
            "pool": d.pool,
            "name": d.device,
            "attributes": {**attributes(d.pool, d.device), **_opened_by_vm(d)},
        }
        for d in claim.devices
        if request in d.requests
    ]
    document = {
        "kind": "DeviceMetadata",
        "apiVersion": API_VERSION,
        "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid, "generation": 1},
        **({"podClaimName": claim.pod_claim} if claim.pod_claim else {}),
        "requests": [{"name": request, "devices": devices}],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _opened_by_vm(device: RecordedDevice) -> dict[str, Any]:
    """Return what KubeVirt attaches to the VM: a PCI function by address, or an mdev by UUID, which it reads first.

    Source: kubevirt/kubevirt pkg/dra/utils.go and gpu_hostdev.go (2026-08, for 1.9).
    """
    if not device.vm:
        return {}
    return {PCI_BUS_ID: {"string": device.function}} if device.function else {MDEV_UUID: {"string": device.uuid}}
