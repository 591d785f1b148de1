"""Harvester's objects as rows: current state, possible changes, and why a change is not possible now. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from aliquot.dashboard.view_models import MigRow, ProfileRow, SriovRow, VgpuRow
from aliquot.errors import Message
from aliquot.kubernetes.client.object_base import Condition, KubeObject
from aliquot.kubernetes.kinds.harvester import MigConfiguration, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import DISABLED
from aliquot.kubernetes.virtual_machines.harvester.admission import mig_configurations as migs
from aliquot.kubernetes.virtual_machines.harvester.admission import sriov_gpu_devices as gpus
from aliquot.kubernetes.virtual_machines.harvester.admission import vgpu_devices as vgpus
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import DeviceUsers
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import (
    AdmissionSnapshot,
    ObjectEdit,
    parent_gpu_name,
)

replace = msgspec.structs.replace


def by_node(snapshot: AdmissionSnapshot) -> dict[str, AdmissionSnapshot]:
    """Split a snapshot by node, to limit the objects that rules search. Each part also has all VMs."""
    parts: dict[str, dict[str, dict[Any, KubeObject]]] = defaultdict(lambda: defaultdict(dict))
    kinds = ("gpus", "vgpus", "migs", "claims")
    for kind in kinds:
        for name, item in getattr(snapshot, kind).items():
            parts[item.spec.node_name][kind][name] = item
    for name, function in snapshot.functions.items():
        parts[function.status.node_name]["functions"][name] = function
    for key, claim in snapshot.resource_claims.items():
        for node in {device.node for device in claim.status.reported} & parts.keys():
            parts[node]["resource_claims"][key] = claim
    return {node: replace(snapshot, **{kind: found.get(kind, {}) for kind in (*kinds, "functions", "resource_claims")})
            for node, found in parts.items()}  # fmt: skip


def sriov(snapshots: Mapping[str, AdmissionSnapshot], products: Mapping[tuple[str, str], str]) -> Iterator[SriovRow]:
    """Yield the rows of GPUs. ``products`` are product names by node and PCI address."""
    for node, snapshot in sorted(snapshots.items()):
        for name, gpu in sorted(snapshot.gpus.items()):
            edit = replace(gpu, spec=replace(gpu.spec, enabled=not gpu.spec.enabled))
            reasons = gpus.update(ObjectEdit(name, "", gpu, edit), gpu, edit, snapshot)
            made = [v for v in snapshot.vgpus_of(name) if v.status.configured]
            yield SriovRow(
                node=node,
                gpu=gpu.spec.address,
                product=product(products, snapshot, node, gpu.spec.address, name),
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
    condition = ready(gpu.status.conditions)
    if condition is not None and condition.status != "True" and condition.message:
        return plain(condition.message)
    if not gpu.spec.enabled:
        return "virtual functions are off"
    return f"{count} virtual functions, {made} with a vGPU"


def vgpu_rows(snapshots: Mapping[str, AdmissionSnapshot], products: Mapping[tuple[str, str], str]) -> Iterator[VgpuRow]:
    for node, snapshot in sorted(snapshots.items()):
        users = DeviceUsers(snapshot)
        for name, device in sorted(snapshot.vgpus.items()):
            condition = ready(device.status.conditions)
            parent = device.spec.parent
            user = users.describe(name)
            yield VgpuRow(
                node=node,
                name=name,
                address=device.spec.address,
                parent=parent,
                parent_product=product(products, snapshot, node, parent, parent_gpu_name(device)),
                type=device.status.configured or (device.spec.type_name if device.spec.enabled else ""),
                uuid=device.status.uuid,
                types=tuple(sorted(device.status.available_types)) if not device.spec.enabled else (),
                holders=(user.sentence,) if user else (),
                state=plain(condition.message) if condition is not None and condition.status != "True" else "",
                why_not=_why_not(device, snapshot, user),
            )


def _why_not(device: VGPUDevice, snapshot: AdmissionSnapshot, user: Message | None) -> str:
    if device.spec.enabled:
        return user.sentence if user else ""
    return "" if device.status.available_types else vgpus.why_no_type(device, snapshot).sentence


def mig_rows(snapshots: Mapping[str, AdmissionSnapshot], products: Mapping[tuple[str, str], str]) -> Iterator[MigRow]:
    for node, snapshot in sorted(snapshots.items()):
        for name, mig in sorted(snapshot.migs.items()):
            edit = replace(mig, spec=replace(mig.spec, enabled=not mig.spec.enabled))
            reasons = migs.update(ObjectEdit(name, "", mig, edit), mig, edit, snapshot)
            yield MigRow(
                node=node,
                gpu=mig.spec.gpu_address,
                product=product(products, snapshot, node, mig.spec.gpu_address, name),
                name=name,
                enabled=mig.spec.enabled,
                status=_mig_status(mig),
                profiles=tuple(_profiles(mig)),
                why_not=sentence(reasons),
            )


def _mig_status(mig: MigConfiguration) -> str:
    state = mig.status.state or (DISABLED if not mig.spec.enabled else "")
    condition = ready(mig.status.conditions)
    if mig.status.message:
        return f"{state}: {plain(mig.status.message)}" if state else plain(mig.status.message)
    if condition is not None and condition.status != "True" and condition.message:
        return f"{state}: {plain(condition.message)}" if state else plain(condition.message)
    return state


def _profiles(mig: MigConfiguration) -> Iterator[ProfileRow]:
    wanted = {each.id: each.requested for each in mig.spec.profile_spec}
    for each in mig.status.profile_status:
        present = len(each.instances or ())
        name = each.name.removeprefix("MIG ")
        yield ProfileRow(name, each.id, wanted.get(each.id, 0), present, each.available, each.total)


def product(
    products: Mapping[tuple[str, str], str], snapshot: AdmissionSnapshot, node: str, address: str, name: str
) -> str:  # fmt: skip
    found = products.get((node, address))
    if found:
        return found
    function = snapshot.functions.get(name)
    return function.status.description if function is not None else ""


def ready(conditions: Iterable[Condition]) -> Condition | None:
    return next((c for c in conditions if c.type == "Ready"), None)


def plain(text: str) -> str:
    """Return the sentence of a condition, without its command."""
    return Message.parse(text).sentence


def sentence(reasons: Iterable[Message]) -> str:
    """Return the first reason, "" if there is none."""
    return next((each.sentence for each in reasons), "")
