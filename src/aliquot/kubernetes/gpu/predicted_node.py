"""Node after a request is applied: MIG modes, instances, and MIG devices with sizes from the geometry tables.

The driver chooses placements, ids and UUIDs. They are placeholders here, as no label or count depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from aliquot.core.model.catalog import ComputeProfile, Profile
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.facts import Facts, GpuFacts, MigDevice
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Inventory, Mig, MigMode

replace = msgspec.structs.replace
_UNKNOWN = -1


def predicted_node(inventory: Inventory, facts: Facts, desired: Desired) -> tuple[Inventory, Facts]:
    """Return inventory and facts after the request; GPUs that it does not include stay as they are."""
    desired_gpus = {desired_gpu.pci: desired_gpu for desired_gpu in desired.gpus}
    gpus: list[Gpu] = []
    devices: list[MigDevice] = []
    for gpu in inventory.gpus:
        desired_gpu = desired_gpus.get(gpu.pci)
        current_devices = tuple(d for d in facts.mig_devices if d.gpu == gpu.pci)
        if desired_gpu is None or gpu.lost or not gpu.mig.capable:
            gpus.append(gpu)
            devices += current_devices
            continue
        after = _predicted_gpu(inventory, gpu, desired_gpu)
        gpus.append(after)
        untouched = desired_gpu.instances is None and after.mig == gpu.mig
        devices += current_devices if untouched else _devices(inventory, after, facts)
    return replace(inventory, gpus=tuple(gpus)), replace(facts, mig_devices=tuple(devices))


def assumed_facts(inventory: Inventory) -> Facts:
    """Return facts for a node whose facts were not read: only total memory and MIG devices, from the tables."""
    gpus: list[GpuFacts] = []
    devices: list[MigDevice] = []
    for gpu in inventory.gpus:
        if not gpu.lost:
            gpus.append(GpuFacts(gpu.pci, _memory(inventory, gpu), (0, 0)))
            devices += _devices(inventory, gpu, None)
    return Facts(driver=inventory.driver, cuda=(0, 0), gpus=tuple(gpus), mig_devices=tuple(devices))


def _memory(inventory: Inventory, gpu: Gpu) -> int:
    if gpu.family is None:
        return 0
    products = {p.name: p.memory_mib or 0 for p in reversed(inventory.family(gpu).products)}
    return products.get(gpu.product, 0)


def _predicted_gpu(inventory: Inventory, gpu: Gpu, desired_gpu: DesiredGpu) -> Gpu:
    enabled = gpu.mig.enabled if desired_gpu.mig is None else desired_gpu.mig
    mode: MigMode = "enabled" if enabled else "disabled"
    after = replace(gpu, mig=Mig(gpu.mig.capable, mode, mode))
    if desired_gpu.instances is None:
        return after if enabled == gpu.mig.enabled else replace(after, instances=())
    instances = tuple(_instances(inventory, gpu, desired_gpu)) if enabled and gpu.family else ()
    return replace(after, instances=instances)


def _instances(inventory: Inventory, gpu: Gpu, desired_gpu: DesiredGpu) -> Iterator[GpuInstance]:
    """Yield instances of the requested profiles, without those that the GPU lacks: the planner refuses them."""
    table = inventory.family(gpu).by_id
    for number, each in enumerate(desired_gpu.instances or ()):
        profile = table.get(each.profile_id)
        if profile is not None:
            kinds = [profile.compute_profile(profile_id) for profile_id in each.compute]
            inside = (
                ComputeInstance(n, kind.name, kind.id, str(kind.placements[0]))
                for n, kind in enumerate(kinds)
                if kind is not None
            )
            place = str(profile.placements[0])
            yield GpuInstance(number, profile.name, profile.id, place, compute_instances=tuple(inside))


def _devices(inventory: Inventory, gpu: Gpu, facts: Facts | None) -> Iterator[MigDevice]:
    """Yield a MIG device for each compute instance.

    Its size comes from an existing device of the same profile and product if there is one, else from the table: drivers
    differ by a few memory slices.
    """
    if not gpu.mig.enabled or gpu.family is None:
        return
    table, index = inventory.family(gpu).by_id, 0
    for instance in gpu.instances:
        profile = table.get(instance.profile_id)
        for compute in instance.compute_instances:
            kind = profile.compute_profile(compute.profile_id) if profile is not None else None
            if profile is None or kind is None:
                continue
            same = _similar_device(inventory, gpu, compute, facts)
            made = _from_table(profile, kind) if same is None else same
            own = {"uuid": compute.uuid, "gpu": gpu.pci, "instance": instance.id, "compute_instance": compute.id}
            yield replace(made, **own, index=index)
            index += 1


def _similar_device(inventory: Inventory, gpu: Gpu, compute: ComputeInstance, facts: Facts | None) -> MigDevice | None:
    products = {g.pci: g.product for g in inventory.gpus}
    current_devices = facts.mig_devices if facts is not None else ()
    return next(
        (d for d in current_devices if d.profile == compute.profile and products.get(d.gpu) == gpu.product), None
    )


def _from_table(profile: Profile, kind: ComputeProfile) -> MigDevice:
    def known(number: int | None) -> int:
        return _UNKNOWN if number is None else number

    return MigDevice(
        uuid="",
        gpu="",
        instance=0,
        compute_instance=0,
        profile=kind.name,
        memory_mib=known(profile.memory_mib or None),  # 0: a system on chip shares the host's memory
        multiprocessors=known(kind.sm),
        gi_slices=profile.compute_slices,
        ci_slices=kind.compute_slices,
        copy=known(profile.engines.get("ce")),
        decoder=known(profile.engines.get("dec")),
        encoder=known(profile.engines.get("enc")),
        jpeg=known(profile.engines.get("jpeg")),
        ofa=known(profile.engines.get("ofa")),
    )
