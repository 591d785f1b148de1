"""Creating and destroying one vGPU, recorded in the owner map before the action. A vGPU that is open or belongs to
another owner is not touched.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

from aliquot.core.engine.ports import Clock
from aliquot.core.model.inventory import Gpu
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.errors import AliquotError, BlockedError, HardwareError, InUseError, StorageError
from aliquot.foundation.backoff import Backoff
from aliquot.hardware.kernel import sriov
from aliquot.hardware.kernel.errors import kernel_file_error
from aliquot.hardware.kernel.framework import KernelVgpu, VgpuFramework
from aliquot.hardware.kernel.framework_detection import detect_framework
from aliquot.hardware.kernel.mig_backed import expected_instance
from aliquot.hardware.kernel.reader import uuid_of
from aliquot.hardware.kernel.sysfs import MalformedError
from aliquot.hardware.kernel.vfio_holders import Holders
from aliquot.hardware.kernel.vgpu_owners import OwnerMap, OwnerMapFile, VgpuOwner, new_token
from aliquot.hardware.kernel_files import KernelFiles

_SETTLE_S = 5.0
"""Seconds for which a destroyed vGPU may still show: the kernel unregisters it after the write has returned."""
_GONE_POLL = Backoff(first=0.01, longest=0.5)

_REFUSED = {
    errno.EIO: "the driver refused it",
    errno.EINVAL: "the driver cannot create it here (another size, another mode, or the function is in use)",
    errno.ENOSPC: "no capacity is left for another vGPU of that type",
    errno.ENOENT: "this function does not offer that type",
    errno.EEXIST: "a vGPU with this UUID exists already",
    errno.EBUSY: "its VFIO handle is open in a VM",
    errno.EPERM: "the driver does not allow it in this mode",
}


class Vgpus:
    """The vGPUs of one node's GPUs."""

    def __init__(self, files: KernelFiles, owners: OwnerMapFile, boot: Callable[[], str], clock: Clock) -> None:
        self._files = files
        self._owners = owners
        self._boot = boot
        self._clock = clock

    def create(self, gpu: Gpu, table: VgpuTable | None, function: str, type_id: int, uuid: str) -> None:
        """Create a vGPU. Raises InUseError if the function is no longer free, BlockedError without a vGPU driver."""
        framework = self._framework(gpu.pci, function)
        attempt = f"creating vGPU type {type_id} on {function}"
        existing = self._inspect(framework, function)
        if any(kernel_vgpu.uuid == uuid for kernel_vgpu in existing) or (existing and framework.name != "mdev"):
            raise InUseError(
                f"{attempt} failed: it now carries a vGPU of type {existing[0].type_id}",
                next_step=f"aliquot show {gpu.pci}",
            )
        owner = self._owner(gpu, table, function, type_id, uuid)
        self._owners.change(lambda owner_map: self._adopt(owner_map, gpu).with_owner(owner))
        path = framework.path(function, type_id)
        try:
            framework.create(function, type_id, uuid)
            created = self._inspect(framework, function)
        except OSError as failure:
            self._forget_unless_created(framework, owner)
            raise kernel_file_error(failure, attempt, path, _REFUSED) from failure
        if not any(owner.matches(kernel_vgpu) for kernel_vgpu in created):
            self._forget_unless_created(framework, owner)
            raise HardwareError(
                f"{attempt} failed: the kernel accepted it, but shows no such vGPU",
                details=(path,),
                next_step="look for NVRM messages in the kernel log (dmesg | grep -i nvrm), then run: aliquot show",
            )

    def set_parameters(self, gpu: Gpu, function: str, uuid: str, parameters: str) -> None:
        """Set the plugin parameters of a vGPU that no VM has open. Raises HardwareError if the driver refuses."""
        framework = self._framework(gpu.pci, function)
        path = framework.parameters_path(function, uuid)
        try:
            self._files.write(path, parameters)
        except OSError as failure:
            attempt = f"setting plugin parameters {parameters} on {function}"
            raise kernel_file_error(failure, attempt, path, _REFUSED) from failure

    def destroy(self, gpu: Gpu, function: str, type_id: int, uuid: str, ownership_token: str) -> None:
        """Destroy a vGPU. Raises InUseError if it is open or is now another one, HardwareError if
        it no longer exists.
        """
        framework = self._framework(gpu.pci, function)
        attempt = f"destroying vGPU {uuid or f'type {type_id}'} on {function}"
        existing = self._inspect(framework, function)
        kernel_vgpu = next((f for f in existing if f.uuid in ("", uuid)), None)
        if kernel_vgpu is None and function != gpu.pci:
            kernel_vgpu = next(iter(existing), None)
        if kernel_vgpu is None:
            raise HardwareError(f"{attempt} failed: it no longer exists", next_step=f"aliquot show {gpu.pci}")
        self._compare(gpu, kernel_vgpu, (type_id, uuid, ownership_token), attempt)
        holders = Holders(self._files).of(kernel_vgpu.devices)
        if holders:
            raise InUseError(
                f"{attempt} failed: it is open in {', '.join(map(str, holders))}",
                next_step="shut that VM down, or detach the vGPU from it, then run the command again",
            )
        try:
            framework.destroy(kernel_vgpu)
            self._wait_gone(framework, kernel_vgpu, attempt)
        except OSError as failure:
            raise kernel_file_error(failure, attempt, framework.path(function, type_id), _REFUSED) from failure
        self._owners.change(
            lambda owner_map: owner_map.without_owners(o for o in owner_map.vgpus if o.matches(kernel_vgpu))
        )

    def _compare(self, gpu: Gpu, kernel_vgpu: KernelVgpu, wanted: tuple[int, str, str], attempt: str) -> None:
        """Check that the vGPU on the function is the one that the caller means. Raises InUseError, and StorageError if
        the map is damaged.
        """
        owner_map, problem = self._owners.load()
        if problem:
            path = self._owners.damaged or self._owners.path
            raise StorageError(
                f"{attempt} was not tried: {problem}",
                next_step=f"inspect it, move it away (mv {path} {path}.old), then run again: running vGPUs are adopted",
            )
        owner = owner_map.find_owner(kernel_vgpu, self._boot())
        current_uuid = uuid_of(gpu, kernel_vgpu, self._number(gpu.pci, kernel_vgpu.function), owner)
        type_id, uuid, token = wanted
        if (kernel_vgpu.type_id, current_uuid, owner.ownership_token if owner else "") != (
            type_id,
            uuid or current_uuid,
            token,
        ):
            raise InUseError(
                f"{attempt} failed: another vGPU is there now (type {kernel_vgpu.type_id})",
                details=("its owner is not the expected one, so it is not touched",),
                next_step=f"aliquot show {gpu.pci}",
            )

    def _framework(self, pci: str, function: str) -> VgpuFramework:
        try:
            framework = detect_framework(self._files, pci, [function] if function != pci else [], function != pci)
        except OSError as failure:
            raise kernel_file_error(failure, f"reading {function}", function) from failure
        if framework is None:
            raise BlockedError(
                f"{function} offers no vGPU: no vGPU driver is loaded there",
                code="NO_VGPU_DRIVER",
                next_step=f"aliquot vgpu types {pci}",
            )
        return framework

    def _inspect(self, framework: VgpuFramework, function: str) -> tuple[KernelVgpu, ...]:
        try:
            return framework.inspect(function)
        except MalformedError as malformed:
            raise HardwareError(str(malformed), next_step="aliquot show") from malformed

    def _owner(self, gpu: Gpu, table: VgpuTable | None, function: str, type_id: int, uuid: str) -> VgpuOwner:
        vgpu_type = None if table is None else table.by_id.get(type_id)
        return VgpuOwner(
            function=function,
            type_id=type_id,
            type=vgpu_type.name if vgpu_type is not None else "",
            uuid=uuid,
            ownership_token=new_token(),
            pci=gpu.pci,
            gpu=gpu.uuid,
            number=self._number(gpu.pci, function),
            gpu_instance=expected_instance(gpu, vgpu_type, table) if gpu.mig.enabled and table is not None else None,
            boot=self._boot(),
        )

    def _number(self, pci: str, function: str) -> int:
        if function == pci:
            return -1
        return next((link.number for link in sriov.links(self._files, pci) if link.pci == function), -1)

    def _adopt(self, owner_map: OwnerMap, gpu: Gpu) -> OwnerMap:
        """Return the map with an entry for each vGPU that exists on a GPU, and without entries of this boot whose vGPU
        does not exist: a kill came between record and action, or another program destroyed it.
        """
        boot = self._boot()
        live = {(v.function, v.type_id, v.uuid): v for v in gpu.vgpus}
        gone = [
            o
            for o in owner_map.vgpus
            if o.pci == gpu.pci and o.boot == boot and (o.function, o.type_id, o.uuid) not in live
        ]
        owner_map = owner_map.without_owners(gone)
        known = {(o.function, o.type_id, o.uuid) for o in owner_map.vgpus if o.boot == boot}
        for key, each in live.items():
            if key not in known:
                adopted = VgpuOwner(
                    *(each.function, each.type_id, each.type, each.uuid, "", gpu.pci, gpu.uuid),
                    self._number(gpu.pci, each.function),
                    each.gpu_instance,
                    boot,
                )
                owner_map = owner_map.with_owner(adopted)
        return owner_map

    def forget(self, gpu: Gpu) -> None:
        """Remove the entries of this boot: the GPU's virtual functions were disabled, and every vGPU with them."""
        boot = self._boot()
        self._owners.change(
            lambda owner_map: owner_map.without_owners(
                o for o in owner_map.vgpus if o.pci == gpu.pci and o.boot == boot
            )
        )

    def _forget_unless_created(self, framework: VgpuFramework, owner: VgpuOwner) -> None:
        """Remove the entry of a refused creation, unless the vGPU exists all the same."""
        with suppress(AliquotError, OSError):
            if not any(owner.matches(kernel_vgpu) for kernel_vgpu in framework.inspect(owner.function)):
                self._owners.change(lambda owner_map: owner_map.without_owners([owner]))

    def _wait_gone(self, framework: VgpuFramework, kernel_vgpu: KernelVgpu, attempt: str) -> None:
        deadline, tries = self._clock.now() + _SETTLE_S, 0
        while any(
            (f.type_id, f.uuid) == (kernel_vgpu.type_id, kernel_vgpu.uuid)
            for f in self._inspect(framework, kernel_vgpu.function)
        ):
            if self._clock.now() > deadline:
                raise HardwareError(f"{attempt} had no effect: it still exists", next_step="aliquot show")
            tries += 1
            self._clock.sleep(_GONE_POLL.pause(tries))
