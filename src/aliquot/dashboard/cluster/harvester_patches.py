"""Change requests for Harvester's objects as patches of specs, checked by the webhook's rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from aliquot.dashboard.change_requests import SetLayout, SetVgpus, SwitchFunctions
from aliquot.dashboard.local.preview_requests import split_place
from aliquot.dashboard.view_models import ActionLine, Obstacle
from aliquot.errors import Message
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import MigConfiguration, MigProfileSpec, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.virtual_machines.harvester.admission import mig_configurations as migs
from aliquot.kubernetes.virtual_machines.harvester.admission import sriov_gpu_devices as gpus
from aliquot.kubernetes.virtual_machines.harvester.admission import vgpu_devices as vgpus
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, ObjectEdit

replace = msgspec.structs.replace
ObjectChangeRequest = SwitchFunctions | SetVgpus | SetLayout


class ObjectPatch(msgspec.Struct, frozen=True):
    """A patch of one object. It is refused if the object changed since it was read."""

    kind: type[KubeObject]
    name: str
    version: str
    spec: dict[str, Any]
    namespace: str = ""


class JudgedPatches(msgspec.Struct, frozen=True):
    """The patches of a request and the result of their checks."""

    nodes: tuple[str, ...]
    writes: tuple[ObjectPatch, ...] = ()
    actions: tuple[ActionLine, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    warnings: tuple[str, ...] = ()


class _Patches:
    def __init__(self, snapshot: AdmissionSnapshot) -> None:
        self.snapshot = snapshot
        self.nodes: list[str] = []
        self.writes: list[ObjectPatch] = []
        self.actions: list[ActionLine] = []
        self.obstacles: list[Obstacle] = []
        self.warnings: list[str] = []

    def done(self) -> JudgedPatches:
        return JudgedPatches(
            tuple(dict.fromkeys(self.nodes)),
            tuple(self.writes),
            () if self.obstacles else tuple(self.actions),
            tuple(self.obstacles),
            tuple(dict.fromkeys(self.warnings)),
        )

    def refuse(self, node: str, gpu: str, rule: str, reasons: Iterable[Message]) -> None:
        for each in dict.fromkeys(reasons):
            self.obstacles.append(Obstacle(rule, each.sentence, node, gpu, next_step=each.next_step))

    def missing(self, node: str, gpu: str, what: str, name: str) -> None:
        text = f"{what} {name} not found"
        self.obstacles.append(Obstacle("NO_OBJECT", text, node, gpu, next_step=f"kubectl get {what.lower()}s"))


def judge(request: ObjectChangeRequest, snapshot: AdmissionSnapshot) -> JudgedPatches:
    """Build and check the patches of a request. Raises UsageError for a value that is not NODE/NAME."""
    found = _Patches(snapshot)
    match request:
        case SwitchFunctions():
            for word in dict.fromkeys(request.gpus):
                _functions(found, *split_place(word), on=request.on)
        case SetVgpus():
            for word in dict.fromkeys(request.places):
                _vgpu(found, *split_place(word), request.type)
        case SetLayout():
            _layout(found, request)
    return found.done()


def _functions(found: _Patches, node: str, address: str, *, on: bool) -> None:
    name = names.object_name(node, address) if ":" in address else address
    found.nodes.append(node)
    old = found.snapshot.gpus.get(name)
    if old is None:
        found.missing(node, address, "SRIOVGPUDevice", name)
        return
    if old.spec.enabled == on:
        return
    new = replace(old, spec=replace(old.spec, enabled=on))
    edit: ObjectEdit[SRIOVGPUDevice] = ObjectEdit(name, "", old, new)
    found.refuse(node, old.spec.address, "FUNCTIONS", gpus.update(edit, old, new, found.snapshot))
    found.warnings += map(str, gpus.warnings(edit, found.snapshot))
    found.writes.append(ObjectPatch(SRIOVGPUDevice, name, old.metadata.resource_version, {"enabled": on}))
    what = f"virtual functions {'enabled' if on else 'disabled'}"
    reason = f"in SRIOVGPUDevice {name}"
    found.actions.append(
        ActionLine(node, old.spec.address, "set", "", what, reason, feature="virtual functions", on=on)
    )
    found.snapshot = replace(found.snapshot, gpus={**found.snapshot.gpus, name: new})


def _vgpu(found: _Patches, node: str, name: str, kind: str) -> None:
    found.nodes.append(node)
    old = found.snapshot.vgpus.get(name)
    if old is None:
        found.missing(node, "", "VGPUDevice", name)
        return
    known = {each.rpartition(" ")[2]: each for each in old.status.available_types}
    kind = known.get(kind, kind)  # A2-4Q is NVIDIA A2-4Q
    if (old.spec.enabled, old.spec.type_name) == (True, kind) or (not kind and not old.spec.enabled):
        return
    spec = replace(old.spec, enabled=bool(kind), type_name=kind or old.spec.type_name)
    new = replace(old, spec=spec)
    edit: ObjectEdit[VGPUDevice] = ObjectEdit(name, "", old, new)
    found.refuse(node, old.spec.parent, "VGPU", vgpus.update(edit, old, new, found.snapshot))
    patch: dict[str, Any] = {"enabled": True, "vGPUTypeName": kind} if kind else {"enabled": False}
    found.writes.append(ObjectPatch(VGPUDevice, name, old.metadata.resource_version, patch))
    verb, what = ("create", kind) if kind else ("destroy", old.status.configured or old.spec.type_name)
    action = ActionLine(
        node, old.spec.parent, verb, "", f"{what} on {old.spec.address}", f"in VGPUDevice {name}", size=what
    )
    found.actions.append(action)
    found.snapshot = replace(found.snapshot, vgpus={**found.snapshot.vgpus, name: new})


def _layout(found: _Patches, request: SetLayout) -> None:
    name = names.object_name(request.node, request.gpu)
    found.nodes.append(request.node)
    old = found.snapshot.migs.get(name)
    if old is None:
        found.missing(request.node, request.gpu, "MigConfiguration", name)
        return
    rows = _requested(found, request, old)
    spec = replace(old.spec, enabled=request.enabled, profile_spec=rows)
    new = replace(old, spec=spec)
    if spec == old.spec:
        return
    edit: ObjectEdit[MigConfiguration] = ObjectEdit(name, "", old, new)
    found.refuse(request.node, request.gpu, "LAYOUT", migs.update(edit, old, new, found.snapshot))
    patch = {"enabled": request.enabled, "profileSpec": msgspec.to_builtins(rows)}
    found.writes.append(ObjectPatch(MigConfiguration, name, old.metadata.resource_version, patch))
    counts = ", ".join(f"{r.requested} x {r.name.removeprefix('MIG ')}" for r in rows if r.requested)
    what = f"MIG configuration {counts or 'empty'}" if request.enabled else "MIG configuration disabled"
    found.actions.append(ActionLine(request.node, request.gpu, "set", "", what, f"in MigConfiguration {name}"))


def _requested(found: _Patches, request: SetLayout, old: MigConfiguration) -> tuple[MigProfileSpec, ...]:
    """Return the object's rows with the requested counts. Disabling leaves them unchanged."""
    if not request.enabled and not request.counts:
        return old.spec.profile_spec
    known = {row.name.removeprefix("MIG "): row for row in old.spec.profile_spec}
    for profile, count in request.counts.items():
        if profile.removeprefix("MIG ") not in known and count:
            text = f"GPU {request.gpu} has no profile {profile}: use one of {', '.join(known)}"
            found.obstacles.append(Obstacle("PROFILE", text, request.node, request.gpu))
    counts = {name.removeprefix("MIG "): count for name, count in request.counts.items()}
    return tuple(replace(row, requested=counts.get(name, row.requested if not counts else 0))
                 for name, row in known.items())  # fmt: skip
