"""CDI documents of claims: one file for each prepared claim, which names exactly its devices.

A claim's document stays as it is while other instances of the node change. So it lacks the marker of the node's own
documents, which are written again after each change. Its devices have names of their own kind, so that they never
collide with others.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from aliquot.cdi import device_nodes, spec_files
from aliquot.cdi.names import mig_devices
from aliquot.cdi.options import MARKER_VARIABLE, CdiDeviceNode, CdiHost, CdiOptions
from aliquot.cdi.probe import probe_host
from aliquot.cdi.rules import lowest_version
from aliquot.cdi.spec import document_of
from aliquot.core.model.inventory import Inventory
from aliquot.errors import BlockedError, StorageError
from aliquot.kubernetes.dra.plugin import device_metadata
from aliquot.kubernetes.dra.plugin.device_metadata import Attributes, no_attributes
from aliquot.kubernetes.dra.plugin.errors import UnreadableClaimError
from aliquot.node.holders.prepared_claims import RecordedClaim, RecordedDevice

CLASS = "claim"
_UID = re.compile(r"[A-Za-z0-9-]+")


class ClaimDocuments:
    """The CDI documents of a driver's claims in one directory, and the metadata files that they mount.

    ``options`` returns those of a document: where the driver is may change. ``metadata_dir`` holds the metadata files
    of devices; empty to write none. ``attributes`` returns what a ResourceSlice says of a device.
    """

    def __init__(
        self,
        driver: str,
        directory: str,
        options: Callable[[], CdiOptions],
        metadata_dir: str = "",
        attributes: Attributes = no_attributes,
    ) -> None:
        self._driver = driver
        self._directory = directory
        self._options = options
        self._metadata_dir = metadata_dir
        self._attributes = attributes

    async def write(self, claim: RecordedClaim, inventory: Inventory) -> RecordedClaim:
        """Write the document of a claim, and return the claim with the CDI names of its devices.

        Raises BlockedError if a device number is unknown or a device is gone, StorageError if a file cannot be written.
        """
        return await asyncio.to_thread(self._write, claim, inventory)

    async def remove(self, uid: str) -> None:
        """Remove the files of a claim. Raises StorageError."""
        await asyncio.to_thread(self._remove, uid)

    async def remove_others(self, uids: Collection[str]) -> None:
        """Remove the files of all claims but these, which a killed agent may have left. Raises StorageError."""
        for uid in await asyncio.to_thread(self._uids):
            if uid not in uids:
                await self.remove(uid)

    def _write(self, claim: RecordedClaim, inventory: Inventory) -> RecordedClaim:
        kind = {"vendor": f"k8s.{self._driver}", "class_name": CLASS, "mode": "workload"}
        options = msgspec.structs.replace(self._options(), **kind)
        named = [(self._name(claim, device), device) for device in claim.devices]
        if all(device.vm for device in claim.devices):  # a VM brings its own driver
            document: dict[str, Any] = {"cdiVersion": "", "kind": options.kind, "devices": []}
        else:
            document = _container_document(named, inventory, options)
        document["devices"] = [
            _vm_device(name, device) if device.vm else next(e for e in document["devices"] if e["name"] == name)
            for name, device in named
        ]
        document["cdiVersion"] = lowest_version(document)
        self._add_mounts(document, claim)
        spec_files.write(self._path(claim.uid), document, shared=True)
        devices = [msgspec.structs.replace(d, cdi_ids=(f"{options.kind}={name}",)) for name, d in named]
        return msgspec.structs.replace(claim, devices=tuple(devices))

    def _add_mounts(self, document: dict[str, Any], claim: RecordedClaim) -> None:
        if not self._metadata_dir:
            return
        mounts = device_metadata.write(claim, self._driver, self._metadata_dir, self._attributes)
        for entry, device in zip(document["devices"], claim.devices, strict=True):
            entry["containerEdits"]["mounts"] = [mounts[request] for request in device.requests]
        document["cdiVersion"] = lowest_version(document)

    def _remove(self, uid: str) -> None:
        path = self._path(uid)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StorageError(f"cannot remove {path}: {error.strerror}", next_step=f"ls -l {path}") from error
        if self._metadata_dir:
            device_metadata.remove(uid, self._metadata_dir)

    def _uids(self) -> Sequence[str]:
        pattern = re.compile(rf"{re.escape(self._prefix)}({_UID.pattern})\.json")
        names = os.listdir(self._directory) if os.path.isdir(self._directory) else []
        return [found[1] for found in map(pattern.fullmatch, names) if found]

    @property
    def _prefix(self) -> str:
        return f"aliquot-{self._driver}-{CLASS}-"

    def _path(self, uid: str) -> str:
        """Return the path of a claim's document. Raises UnreadableClaimError for a uid with other characters."""
        if not _UID.fullmatch(uid):
            raise UnreadableClaimError(f"claim uid {uid!r} is not a name", next_step="journalctl -u kubelet")
        return os.path.join(self._directory, f"{self._prefix}{uid}.json")

    def _name(self, claim: RecordedClaim, device: RecordedDevice) -> str:
        """Return the CDI name of a device. Claims of admin access have the same devices as others."""
        return f"{claim.uid}-{device.device}"


def _container_document(
    named: Sequence[tuple[str, RecordedDevice]], inventory: Inventory, options: CdiOptions
) -> dict[str, Any]:
    """Return the document of the devices that containers use."""
    probed = probe_host(inventory, options)
    host = probed.host or CdiHost()
    document = document_of([((name,), _nodes(d, inventory, host)) for name, d in named if not d.vm], probed)
    common = document["containerEdits"]
    common["env"] = [each for each in common["env"] if not each.startswith(f"{MARKER_VARIABLE}=")]
    return document


def _vm_device(name: str, device: RecordedDevice) -> dict[str, Any]:
    """Return the entry of a device for a VM: the files that QEMU opens. The runtime reads their numbers."""
    nodes = [{"path": path, "permissions": "rw"} for path in device.vfio_files]
    return {"name": name, "containerEdits": {"deviceNodes": nodes}}


def _nodes(device: RecordedDevice, inventory: Inventory, host: CdiHost) -> tuple[CdiDeviceNode, ...]:
    gpu = next((each for each in inventory.gpus if each.uuid == device.gpu), None)
    if gpu is None:
        raise _gone(device)
    if not device.placement:
        return device_nodes.whole_gpu_nodes(gpu, host)
    for _, instance, compute in mig_devices(gpu):
        if compute.uuid == device.uuid:
            return device_nodes.mig_device_nodes(gpu, instance, compute, host)
    raise _gone(device)


def _gone(device: RecordedDevice) -> BlockedError:
    return BlockedError(f"device {device.device} is gone", code="NO_CLAIMED_DEVICE", next_step="aliquot show")
