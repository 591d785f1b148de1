"""mig-parted's checkpoint: the placed geometry of every MIG-capable GPU as JSON, by UUID.

Profiles are NVML's enumeration indexes, not the ids that nvidia-smi shows. vGPUs and passthrough, which that format
cannot express, follow in a key of our own if there are any (`checkpoint_vgpu`).
"""

from __future__ import annotations

import msgspec

from aliquot.core.config.export import refuse_lost
from aliquot.core.config.formats.checkpoint_vgpu import Shares, add_shares, shares
from aliquot.core.config.select.gpu_text import gpu_text
from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance, ResolutionFailure
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.errors import ConfigError

VERSION = "v1"


class _Compute(msgspec.Struct, frozen=True, rename="pascal"):
    profile_id: int = msgspec.field(name="ProfileID")
    eng_profile_id: int = msgspec.field(name="EngProfileID", default=0)


class _Placement(msgspec.Struct, frozen=True, rename="pascal"):
    start: int
    size: int


class _Instance(msgspec.Struct, frozen=True, rename="pascal"):
    placement: _Placement
    profile_id: int = msgspec.field(name="ProfileID")
    compute_instances: tuple[_Compute, ...] | None = None


class _Device(msgspec.Struct, frozen=True, rename="pascal"):
    mig_mode: int
    uuid: str = msgspec.field(name="UUID")
    gpu_instances: tuple[_Instance, ...] | None = None


class _State(msgspec.Struct, frozen=True, rename="pascal"):
    devices: tuple[_Device, ...] | None


class _Checkpoint(msgspec.Struct, frozen=True, rename="pascal"):
    version: str
    mig_state: _State
    aliquot: Shares | None = None


def checkpoint(inventory: Inventory) -> dict[str, object]:
    """Return the checkpoint, to be written as JSON. Empty lists are null, as in mig-parted's."""
    refuse_lost(inventory)
    devices = [_device(inventory, gpu) for gpu in inventory.gpus if gpu.mig.capable and not gpu.passthrough]
    document: dict[str, object] = {"Version": VERSION, "MigState": {"Devices": devices or None}}
    more = shares(inventory)
    return document | {"Aliquot": more} if more else document


def _device(inventory: Inventory, gpu: Gpu) -> dict[str, object]:
    instances: list[dict[str, object]] = []
    if gpu.mig.enabled and gpu.instances:
        family = inventory.family(gpu)
        pairs = [(family.by_id[i.profile_id], i) for i in gpu.instances]
        pairs.sort(key=lambda pair: (pair[0].nvml_index, pair[1].id))
        instances = [_instance(profile, instance) for profile, instance in pairs]
    return {"UUID": gpu.uuid, "MigMode": int(gpu.mig.enabled), "GpuInstances": instances or None}


def _instance(profile: Profile, instance: GpuInstance) -> dict[str, object]:
    table = {c.id: c.nvml_index for c in profile.compute}
    compute = sorted((table[c.profile_id], c.id) for c in instance.compute_instances)
    return {
        "ProfileID": profile.nvml_index,
        "Placement": {"Start": instance.place.start, "Size": instance.place.size},
        "ComputeInstances": [{"ProfileID": index, "EngProfileID": 0} for index, _ in compute] or None,
    }


def restore(text: str, inventory: Inventory, source: str = "the checkpoint") -> Desired:
    """Return the desired state that reproduces a checkpoint. GPUs that it does not name are left alone.

    A missing GPU, or a profile or placement that its GPU does not have, is a failure: nothing is changed.
    Raises ConfigError if the text is not a checkpoint, or is of another version.
    """
    state = _read(text, source)
    local_gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    desired_gpus: dict[str, DesiredGpu] = {}
    failures: list[ResolutionFailure] = []
    for device in state.mig_state.devices or ():
        gpu = local_gpus.get(device.uuid)
        if gpu is None:
            sentence = f"{source}: no GPU {device.uuid} on this node (it has {len(local_gpus)})"
            failures.append(ResolutionFailure("NO_SUCH_GPU", sentence, step="aliquot show"))
            continue
        found = _desired_gpu(inventory, gpu, device, source)
        if isinstance(found, DesiredGpu):
            desired_gpus[gpu.pci] = found
        else:
            failures.append(found)
    if state.aliquot is not None:
        failures += add_shares(state.aliquot, inventory, desired_gpus, source)
    blocked = {failure.pci for failure in failures}
    others = [
        gpu for gpu in inventory.gpus if gpu.mig.capable and gpu.pci not in desired_gpus and gpu.pci not in blocked
    ]
    notes = tuple(f"{gpu_text(gpu)} is not in {source} and is left alone" for gpu in others)
    return Desired(tuple(desired_gpus.values()), "checkpoint", notes, tuple(failures))


def _read(text: str, source: str) -> _Checkpoint:
    try:
        state = msgspec.json.decode(text, type=_Checkpoint)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source} is not a checkpoint of MIG state", details=(str(error),)) from error
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ConfigError(f"{source} is not JSON, so it is not a checkpoint", details=(str(error),)) from error
    if state.version != VERSION:
        raise ConfigError(f"{source} is a checkpoint of version {state.version!r}: Aliquot reads {VERSION!r}")
    uuids = [device.uuid for device in state.mig_state.devices or ()]
    twice = sorted({uuid for uuid in uuids if uuids.count(uuid) > 1})
    if twice:
        raise ConfigError(f"{source} names {', '.join(twice)} more than once")
    for device in state.mig_state.devices or ():
        if device.mig_mode not in (0, 1) or (device.gpu_instances and not device.mig_mode):
            raise ConfigError(f"{source} is not a checkpoint: MIG mode {device.mig_mode} of {device.uuid} is invalid")
    if state.aliquot is not None:
        state.aliquot.check(source)
    return state


def _desired_gpu(inventory: Inventory, gpu: Gpu, device: _Device, source: str) -> DesiredGpu | ResolutionFailure:
    next_step = f"aliquot profiles {gpu.index}"
    if not gpu.mig.capable:
        sentence = f"{source}: {gpu_text(gpu)} cannot be partitioned"
        return ResolutionFailure("NOT_CAPABLE", sentence, gpu.pci, step="aliquot show")
    try:
        family = inventory.family(gpu)
        instances = tuple(_desired_instance(family, instance) for instance in device.gpu_instances or ())
    except KeyError:
        return ResolutionFailure(
            "NO_TABLE", f"{source}: no geometry table is known for {gpu_text(gpu)}", gpu.pci, next_step
        )
    except ValueError as error:
        return ResolutionFailure("UNKNOWN_PROFILE", f"{source}: {gpu_text(gpu)}: {error}", gpu.pci, next_step)
    return DesiredGpu(gpu.pci, device.mig_mode == 1, instances, source)


def _desired_instance(family: Family, instance: _Instance) -> DesiredInstance:
    """Convert an instance. Raises ValueError with a sentence if the family lacks the profile, compute profile or
    placement.
    """
    profile = next((p for p in family.profiles if p.nvml_index == instance.profile_id), None)
    if profile is None:
        raise ValueError(f"it has no profile with NVML's index {instance.profile_id}")
    place = instance.placement
    if place.size != profile.size or place.start not in profile.starts:
        raise ValueError(f"{profile.name} cannot be placed at {place.start}:{place.size}")
    compute = []
    for part in instance.compute_instances or ():
        found = next((c for c in profile.compute if c.nvml_index == part.profile_id), None)
        if found is None or part.eng_profile_id:
            raise ValueError(
                f"{profile.name} has no compute profile with NVML's index {part.profile_id} "
                f"and engine profile {part.eng_profile_id}"
            )
        compute.append(found.id)
    return DesiredInstance(profile.id, profile.name, tuple(compute), place.start)
