"""Rules for SRIOVGPUDevices."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import user_of
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import disabling, identity, in_the_way, unmoved
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import Edit, World
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def create(edit: Edit[SRIOVGPUDevice], new: SRIOVGPUDevice, world: World) -> Iterator[str]:
    yield from identity(edit.name, new.spec.node_name, new.spec.address)
    if new.spec.enabled:
        yield from _not_handed_out(edit.name, world)


def update(edit: Edit[SRIOVGPUDevice], old: SRIOVGPUDevice, new: SRIOVGPUDevice, world: World) -> Iterator[str]:
    yield from unmoved((old.spec.node_name, old.spec.address), (new.spec.node_name, new.spec.address))
    if new.spec.enabled and not old.spec.enabled:
        yield from _not_handed_out(edit.name, world)
    if old.spec.enabled and not new.spec.enabled:
        yield from _unused(edit.name, old, world)


def delete(edit: Edit[SRIOVGPUDevice], old: SRIOVGPUDevice, world: World) -> Iterator[str]:
    if old.spec.enabled and old.spec.node_name in world.nodes:
        yield advice(f"{edit.name} is enabled: disable the GPU first", disabling("sriovgpudevice", edit.name))


def warnings(edit: Edit[SRIOVGPUDevice], world: World) -> Iterator[str]:
    """What a change takes with it."""
    old, new = edit.old, edit.new
    if old is None or new is None:
        return
    mig = world.migs.get(edit.name)
    cut = mig is not None and any(each.instances for each in mig.status.profile_status)
    if old.spec.enabled and not new.spec.enabled and cut:
        yield f"the GPU instances of MigConfiguration {edit.name} go with the virtual functions"
    skip = names.SKIP_MIG_ANNOTATION
    if cut and new.metadata.annotations.get(skip) == "true" != old.metadata.annotations.get(skip):
        yield f"{skip} has no effect while there are GPU instances: disable MigConfiguration {edit.name} first"


def _not_handed_out(name: str, world: World) -> Iterator[str]:
    claim = world.claims.get(name)
    if claim is not None:
        who = claim.spec.user_name or "nobody"
        why = f"{name} is claimed for passthrough by {who}: delete PCIDeviceClaim {name} first"
        yield advice(why, f"kubectl delete pcideviceclaim {name}")


def _unused(name: str, gpu: SRIOVGPUDevice, world: World) -> Iterator[str]:
    """No vGPU is enabled, and none is used although its object says that it is disabled."""
    yield from filter(None, (user_of(world, each) for each in gpu.status.vgpu_devices if _may_carry(world, each)))
    if enabled := world.enabled_children(name):
        yield in_the_way("disable", name, enabled)


def _may_carry(world: World, name: str) -> bool:
    """Nobody can use a function of which its object says that it carries nothing, though a stopped machine names it."""
    device = world.vgpus.get(name)
    return device is None or device.spec.enabled or bool(device.status.configured)
