"""The instances of one GPU, from the rows of nvidia-smi's lists. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance
from aliquot.hardware.nvidia_smi.list_output import ListedInstance
from aliquot.hardware.nvml.capability_minors import ci_minor, gi_minor
from aliquot.hardware.nvml.instances import NO_INSTANCE, Process, distinct
from aliquot.hardware.nvml.partition_ids import slots_mirrored

MigDeviceIds = tuple[str, int, int | None]
"""A MIG device: the GPU's UUID, the GPU instance id and the compute instance id."""


class InstanceRows(msgspec.Struct, frozen=True):
    """The listed rows of one GPU."""

    instances: tuple[ListedInstance, ...] = ()
    compute: tuple[ListedInstance, ...] = ()


def with_instances(
    gpu: Gpu, table: Family, rows: InstanceRows, uuids: Mapping[MigDeviceIds, str], processes: Sequence[Process]
) -> Gpu:
    """Return the GPU with its instances and holders."""
    found = tuple(
        _instance(gpu, table, each, [c for c in rows.compute if c.instance == each.instance], uuids, processes)
        for each in sorted(rows.instances, key=lambda i: i.instance)
    )
    gpu_holders = distinct(h for gi, _, h in processes if gi == NO_INSTANCE)
    return msgspec.structs.replace(
        gpu, instances=found, holders=gpu_holders, slots_mirrored=slots_mirrored(table, found)
    )


def _instance(
    gpu: Gpu,
    table: Family,
    row: ListedInstance,
    compute_rows: Sequence[ListedInstance],
    uuids: Mapping[MigDeviceIds, str],
    processes: Sequence[Process],
) -> GpuInstance:
    profile = table.by_id.get(row.profile)
    kinds = {c.id: c.name for c in profile.compute} if profile is not None else {}
    gi = row.instance
    holders = distinct(h for g, _, h in processes if g == gi)
    return GpuInstance(
        id=gi,
        profile=profile.name if profile is not None else row.name,
        profile_id=row.profile,
        placement=str(row.place),
        held=bool(holders),
        holders=holders,
        capability_minor=gi_minor(gpu.minor, gi),
        compute_instances=tuple(
            ComputeInstance(
                id=ci,
                profile=kinds.get(each.profile, each.name),
                profile_id=each.profile,
                placement=str(each.place),
                uuid=uuids.get((gpu.uuid, gi, ci), ""),
                capability_minor=ci_minor(gpu.minor, gi, ci),
                holders=distinct(h for g, c, h in processes if (g, c) == (gi, ci)),
            )
            for ci, each in sorted((c.compute or 0, c) for c in compute_rows)
        ),
    )
