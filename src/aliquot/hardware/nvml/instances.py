"""The content of one MIG GPU: instances, MIG devices, and the processes that hold them."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import byref, c_uint
from typing import Any

import msgspec

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.inventory import UNKNOWN_HOLDER, ComputeInstance, Gpu, GpuInstance, Holder
from aliquot.hardware.nvml.capability_minors import ci_minor, gi_minor
from aliquot.hardware.nvml.partition_ids import slots_mirrored
from aliquot.hardware.nvml.session import NvmlSession
from aliquot.hardware.nvml.vgpu_scheduler import read_instance_scheduler

NO_INSTANCE = 0xFFFFFFFF
_MAX_INSTANCES = 16
"""More than any profile allows: at most 15 GPU instance ids per GPU, and 8 compute instances per GPU instance."""

UNLISTED = Holder("process", UNKNOWN_HOLDER, "this driver does not list processes")
"""The holder of each instance if the driver does not list processes, because then no instance is known to be idle."""

Process = tuple[int, int, Holder]
"""The GPU instance id, the compute instance id (NO_INSTANCE if there is none), and the holder."""


class Instances:
    """Reads the instances of GPUs through one session."""

    def __init__(self, session: NvmlSession) -> None:
        self.session = session
        self._uuids: dict[tuple[str, int, int], str] = {}

    def fill(self, gpu: Gpu, handle: Any, table: Family, processes: list[Process] | None) -> Gpu:
        """Return the GPU with its instances and holders. ``processes`` is None if the driver does not list them."""
        nv = self.session.nv
        found: list[GpuInstance] = []
        compute_left, memory_left = table.compute_slices, table.memory_slices
        shared = gpu.shares_instances
        for profile in table.profiles:
            if compute_left <= 0 or memory_left <= 0:
                break  # the GPU is full: no other profile can have an instance
            for each in self._list(nv.nvmlDeviceGetGpuInstances, nv.c_nvmlGpuInstance_t, handle, profile.id, gpu.pci):
                info = self.session.call(f"reading a GPU instance of {gpu.pci}", nv.nvmlGpuInstanceGetInfo, each)
                compute_instances = self._compute(each, gpu, info.id, profile, processes)
                holders = _holders(processes, info.id)
                found.append(
                    GpuInstance(
                        id=info.id,
                        profile=profile.name,
                        profile_id=profile.id,
                        placement=f"{info.placement.start}:{info.placement.size}",
                        held=bool(holders),
                        holders=holders,
                        capability_minor=gi_minor(gpu.minor, info.id),
                        compute_instances=compute_instances,
                        mixed_size=self._mixed_size(each) if shared else msgspec.UNSET,
                        scheduler=read_instance_scheduler(self.session, each) if shared else msgspec.UNSET,
                    )
                )
                compute_left, memory_left = compute_left - profile.compute_slices, memory_left - info.placement.size
        found.sort(key=lambda i: i.id)
        instances = self._with_uuids(handle, gpu, found)
        gpu_holders = tuple(h for gi, _, h in processes or () if gi == NO_INSTANCE)
        return msgspec.structs.replace(
            gpu, instances=instances, holders=gpu_holders, slots_mirrored=slots_mirrored(table, instances)
        )

    def _mixed_size(self, instance: Any) -> bool | msgspec.UnsetType:
        """Return mixed-size mode of a GPU instance, UNSET if the driver or nvidia-ml-py cannot report it."""
        query = getattr(self.session.nv, "nvmlGpuInstanceGetVgpuHeterogeneousMode", None)
        code, mode = (codes.NOT_SUPPORTED, None) if query is None else self.session.try_call(query, instance)
        return bool(mode) if code == codes.SUCCESS else msgspec.UNSET

    def _compute(
        self, instance: Any, gpu: Gpu, gi: int, profile: Profile, processes: list[Process] | None
    ) -> tuple[ComputeInstance, ...]:
        nv = self.session.nv
        found: list[ComputeInstance] = []
        slices_left = profile.compute_slices
        for kind in sorted(profile.compute, key=lambda c: not c.default):
            if slices_left <= 0:
                break  # every compute slice is accounted for
            listing = nv.nvmlGpuInstanceGetComputeInstances
            for each in self._list(listing, nv.c_nvmlComputeInstance_t, instance, kind.id, gpu.pci):
                info = self.session.call(
                    f"reading a compute instance of {gpu.pci}", nv.nvmlComputeInstanceGetInfo_v2, each
                )
                found.append(
                    ComputeInstance(
                        id=info.id,
                        profile=kind.name,
                        profile_id=kind.id,
                        placement=f"{info.placement.start}:{info.placement.size}",
                        capability_minor=ci_minor(gpu.minor, gi, info.id),
                        holders=_holders(processes, gi, info.id),
                    )
                )
                slices_left -= kind.compute_slices
        return tuple(sorted(found, key=lambda c: c.id))

    def _list(self, function: Any, kind: Any, parent: Any, profile_id: int, pci: str) -> list[Any]:
        """Return an instance list from a raw C call, which fills a sufficiently large array and returns the count."""
        array, count = (kind * _MAX_INSTANCES)(), c_uint(_MAX_INSTANCES)
        code, _ = self.session.try_call(function, parent, profile_id, array, byref(count))
        # The driver does not have this profile, so no instance has it either.
        if code in (codes.NOT_SUPPORTED, codes.INVALID_ARGUMENT, codes.NOT_FOUND):
            return []
        if code != codes.SUCCESS:
            raise codes.error(code, f"listing the instances of profile {profile_id} on {pci}", gpu=pci)
        return list(array[: count.value])

    def _with_uuids(self, handle: Any, gpu: Gpu, found: list[GpuInstance]) -> tuple[GpuInstance, ...]:
        """Return the instances with their MIG device UUIDs. Since R470 a UUID follows from the GPU and the two ids, so
        it is read once.
        """
        keys = [(gpu.uuid, i.id, c.id) for i in found for c in i.compute_instances]
        if any(key not in self._uuids for key in keys):
            self._read_uuids(handle, gpu, len(keys))

        def with_uuid(gpu_instance: GpuInstance, compute_instance: ComputeInstance) -> ComputeInstance:
            return msgspec.structs.replace(
                compute_instance, uuid=self._uuids.get((gpu.uuid, gpu_instance.id, compute_instance.id), "")
            )

        return tuple(
            msgspec.structs.replace(i, compute_instances=tuple(with_uuid(i, c) for c in i.compute_instances))
            for i in found
        )

    def _read_uuids(self, handle: Any, gpu: Gpu, expected: int) -> None:
        nv, call = self.session.nv, self.session.call
        attempt = f"reading the MIG devices of {gpu.pci}"
        found = 0
        for index in range(call(attempt, nv.nvmlDeviceGetMaxMigDeviceCount, handle, gpu=gpu.pci)):
            if found == expected:
                break
            code, device = self.session.try_call(nv.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            if code in (codes.NOT_FOUND, codes.INVALID_ARGUMENT):
                continue  # positions may be empty, with gaps between them
            if code != codes.SUCCESS:
                raise codes.error(code, attempt, gpu=gpu.pci)
            gi = call(attempt, nv.nvmlDeviceGetGpuInstanceId, device, gpu=gpu.pci)
            ci = call(attempt, nv.nvmlDeviceGetComputeInstanceId, device, gpu=gpu.pci)
            self._uuids[gpu.uuid, gi, ci] = call(attempt, nv.nvmlDeviceGetUUID, device, gpu=gpu.pci)
            found += 1

    def processes(self, handle: Any, pci: str) -> list[Process] | None:
        """Return all processes on the GPU: GPU instance, compute instance and holder. None if the driver has no such
        list: every supported driver has it, but stand-ins for its library may not.
        """
        nv = self.session.nv
        found: dict[tuple[int, int, int], None] = {}
        for newer, older in (
            (nv.nvmlDeviceGetComputeRunningProcesses_v3, nv.nvmlDeviceGetComputeRunningProcesses_v2),
            (nv.nvmlDeviceGetGraphicsRunningProcesses_v3, nv.nvmlDeviceGetGraphicsRunningProcesses_v2),
        ):
            code, rows = self.session.try_call(newer, handle)
            if code == codes.FUNCTION_NOT_FOUND:
                code, rows = self.session.try_call(older, handle)
            if code == codes.FUNCTION_NOT_FOUND:
                return None
            if code == codes.NOT_SUPPORTED:
                continue
            if code != codes.SUCCESS:
                raise codes.error(code, f"listing the processes on {pci}", gpu=pci)
            for row in rows:
                gi, ci = row.gpuInstanceId, row.computeInstanceId
                found[NO_INSTANCE if gi is None else gi, NO_INSTANCE if ci is None else ci, row.pid] = None
        return [(gi, ci, self._holder(pid)) for gi, ci, pid in sorted(found)]

    def _holder(self, pid: int) -> Holder:
        nv = self.session.nv
        _, name = self.session.try_call(nv.nvmlSystemGetProcessName, pid)
        return Holder("process", str(pid), (name or "").rpartition("/")[2])


def _holders(processes: list[Process] | None, instance: int, compute: int | None = None) -> tuple[Holder, ...]:
    """Return the holders of a GPU instance, or of one of its compute instances."""
    if processes is None:
        return (UNLISTED,)
    return distinct(h for gi, ci, h in processes if gi == instance and compute in (None, ci))


def distinct(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    return tuple(dict.fromkeys(holders))
