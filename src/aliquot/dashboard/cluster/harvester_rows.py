"""Harvester's objects as rows: what is, what could be, and why something cannot be changed now. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from aliquot.dashboard.view_models import MigRow, ProfileRow, SriovRow, VgpuRow
from aliquot.kubernetes.client.object_base import Condition, KubeObject
from aliquot.kubernetes.kinds.harvester import MigConfiguration, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.virtual_machines.harvester.admission import mig_configurations as migs
from aliquot.kubernetes.virtual_machines.harvester.admission import sriov_gpu_devices as gpus
from aliquot.kubernetes.virtual_machines.harvester.admission import vgpu_devices as vgpus
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import user_of
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import Edit, World, parent_of

replace = msgspec.structs.replace


def by_node(world: World) -> dict[str, World]:
    """A world for each node, of its own objects and all machines: rules look through every object that they are
    given.
    """
    parts: dict[str, dict[str, dict[str, KubeObject]]] = defaultdict(lambda: defaultdict(dict))
    kinds = ("gpus", "vgpus", "migs", "claims")
    for kind in kinds:
        for name, item in getattr(world, kind).items():
            parts[item.spec.node_name][kind][name] = item
    for name, function in world.functions.items():
        parts[function.status.node_name]["functions"][name] = function
    return {node: replace(world, **{kind: found.get(kind, {}) for kind in (*kinds, "functions")})
            for node, found in parts.items()}  # fmt: skip


def sriov(worlds: Mapping[str, World], products: Mapping[tuple[str, str], str]) -> Iterator[SriovRow]:
    """``products`` are product names by node and PCI address."""
    for node, world in sorted(worlds.items()):
        for name, gpu in sorted(world.gpus.items()):
            edit = replace(gpu, spec=replace(gpu.spec, enabled=not gpu.spec.enabled))
            reasons = list(gpus.update(Edit(name, "", gpu, edit), gpu, edit, world))
            made = [v for v in world.children(name) if v.status.configured]
            yield SriovRow(
                node=node,
                gpu=gpu.spec.address,
                product=product(products, world, node, gpu.spec.address, name),
                name=name,
                enabled=gpu.spec.enabled,
                functions=len(gpu.status.vf_addresses),
                total=len(gpu.status.vf_addresses),
                vgpus=len(made),
                state=_state(gpu, len(made)),
                why_not=sentence(reasons),
            )


def _state(gpu: SRIOVGPUDevice, made: int) -> str:
    count = len(gpu.status.vf_addresses)
    told = ready(gpu.status.conditions)
    if told is not None and told.status != "True" and told.message:
        return plain(told.message)
    if not gpu.spec.enabled:
        return "virtual functions are off"
    return f"{count} virtual functions, {made} with a vGPU"


def vgpu_rows(worlds: Mapping[str, World], products: Mapping[tuple[str, str], str]) -> Iterator[VgpuRow]:
    for node, world in sorted(worlds.items()):
        for name, device in sorted(world.vgpus.items()):
            told = ready(device.status.conditions)
            parent = device.spec.parent
            user = user_of(world, name)
            yield VgpuRow(
                node=node,
                name=name,
                address=device.spec.address,
                parent=parent,
                parent_product=product(products, world, node, parent, parent_of(device)),
                type=device.status.configured or (device.spec.type_name if device.spec.enabled else ""),
                uuid=device.status.uuid,
                types=tuple(sorted(device.status.available_types)) if not device.spec.enabled else (),
                holders=(plain(user),) if user else (),
                state=plain(told.message) if told is not None and told.status != "True" else "",
                why_not=_why_not(name, device, world, user),
            )


def _why_not(name: str, device: VGPUDevice, world: World, user: str) -> str:
    if device.spec.enabled:
        return plain(user)
    if not device.status.available_types:
        edit = replace(device, spec=replace(device.spec, enabled=True, type_name="?"))
        reasons = list(vgpus.update(Edit(name, "", device, edit), device, edit, world))
        return sentence(reasons).replace(f"? is not a valid profile for {name} now: ", "")
    return ""


def mig_rows(worlds: Mapping[str, World], products: Mapping[tuple[str, str], str]) -> Iterator[MigRow]:
    for node, world in sorted(worlds.items()):
        for name, mig in sorted(world.migs.items()):
            edit = replace(mig, spec=replace(mig.spec, enabled=not mig.spec.enabled))
            reasons = list(migs.update(Edit(name, "", mig, edit), mig, edit, world))
            yield MigRow(
                node=node,
                gpu=mig.spec.gpu_address,
                product=product(products, world, node, mig.spec.gpu_address, name),
                name=name,
                enabled=mig.spec.enabled,
                status=_mig_status(mig),
                profiles=tuple(_profiles(mig)),
                why_not=sentence(reasons),
            )


def _mig_status(mig: MigConfiguration) -> str:
    said = mig.status.state or ("disabled" if not mig.spec.enabled else "")
    told = ready(mig.status.conditions)
    if mig.status.message:
        return f"{said}: {plain(mig.status.message)}" if said else plain(mig.status.message)
    if told is not None and told.status != "True" and told.message:
        return f"{said}: {plain(told.message)}" if said else plain(told.message)
    return said


def _profiles(mig: MigConfiguration) -> Iterator[ProfileRow]:
    wanted = {each.id: each.requested for each in mig.spec.profile_spec}
    for each in mig.status.profile_status:
        there = len(each.instances or ())
        name = each.name.removeprefix("MIG ")
        yield ProfileRow(name, each.id, wanted.get(each.id, 0), there, each.available, each.total)


def product(
    products: Mapping[tuple[str, str], str], world: World, node: str, address: str, name: str
) -> str:  # fmt: skip
    found = products.get((node, address))
    if found:
        return found
    function = world.functions.get(name)
    return function.status.description if function is not None else ""


def ready(conditions: Iterable[Condition]) -> Condition | None:
    return next((c for c in conditions if c.type == "Ready"), None)


def plain(text: str) -> str:
    """A sentence without the command behind it."""
    return text.partition(" | next: ")[0]


def sentence(reasons: Iterable[str]) -> str:
    """The first of some reasons, "" for none."""
    return next((plain(each) for each in reasons), "")
