"""What asks about Harvester's objects come to: patches of specs, judged by the rules of our webhook. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from aliquot.dashboard.change_requests import SetFunctions, SetLayout, SetVgpus
from aliquot.dashboard.cluster.harvester_rows import plain
from aliquot.dashboard.view_models import Act, Obstacle
from aliquot.errors import UsageError
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import MigConfiguration, MigProfileSpec, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.virtual_machines.harvester.admission import mig_configurations as migs
from aliquot.kubernetes.virtual_machines.harvester.admission import sriov_gpu_devices as gpus
from aliquot.kubernetes.virtual_machines.harvester.admission import vgpu_devices as vgpus
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import Edit, World

replace = msgspec.structs.replace
ObjectAsk = SetFunctions | SetVgpus | SetLayout


class Write(msgspec.Struct, frozen=True):
    """One patch of one object as it was seen: refused where it has changed since."""

    kind: type[KubeObject]
    name: str
    version: str
    spec: dict[str, Any]
    namespace: str = ""


class Judged(msgspec.Struct, frozen=True):
    """What an ask comes to."""

    nodes: tuple[str, ...]
    writes: tuple[Write, ...] = ()
    acts: tuple[Act, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    warnings: tuple[str, ...] = ()


class _Sum:
    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: list[str] = []
        self.writes: list[Write] = []
        self.acts: list[Act] = []
        self.obstacles: list[Obstacle] = []
        self.warnings: list[str] = []

    def done(self) -> Judged:
        return Judged(
            tuple(dict.fromkeys(self.nodes)),
            tuple(self.writes),
            () if self.obstacles else tuple(self.acts),
            tuple(self.obstacles),
            tuple(dict.fromkeys(self.warnings)),
        )

    def refuse(self, node: str, gpu: str, rule: str, reasons: Sequence[str]) -> None:
        for reason in dict.fromkeys(reasons):
            step = reason.partition(" | next: ")[2]
            self.obstacles.append(Obstacle(rule, plain(reason), node, gpu, next_step=step))

    def missing(self, node: str, gpu: str, what: str, name: str) -> None:
        text = f"there is no {what} {name} (any more)"
        self.obstacles.append(Obstacle("NO_OBJECT", text, node, gpu, next_step=f"kubectl get {what.lower()}s"))


def split(word: str) -> tuple[str, str]:
    """``node/name``. Raises UsageError."""
    node, slash, name = word.partition("/")
    if not (slash and node and name):
        raise UsageError(f"{word!r} is not NODE/NAME")
    return node, name


def judge(ask: ObjectAsk, world: World) -> Judged:
    """Raises UsageError for a word that is not NODE/NAME."""
    found = _Sum(world)
    match ask:
        case SetFunctions():
            for word in dict.fromkeys(ask.gpus):
                _functions(found, *split(word), on=ask.on)
        case SetVgpus():
            for word in dict.fromkeys(ask.places):
                _vgpu(found, *split(word), ask.type)
        case SetLayout():
            _layout(found, ask)
    return found.done()


def _functions(found: _Sum, node: str, address: str, *, on: bool) -> None:
    name = names.object_name(node, address) if ":" in address else address
    found.nodes.append(node)
    old = found.world.gpus.get(name)
    if old is None:
        found.missing(node, address, "SRIOVGPUDevice", name)
        return
    if old.spec.enabled == on:
        return
    new = replace(old, spec=replace(old.spec, enabled=on))
    edit: Edit[SRIOVGPUDevice] = Edit(name, "", old, new)
    found.refuse(node, old.spec.address, "FUNCTIONS", list(gpus.update(edit, old, new, found.world)))
    found.warnings += gpus.warnings(edit, found.world)
    found.writes.append(Write(SRIOVGPUDevice, name, old.metadata.resource_version, {"enabled": on}))
    what = f"virtual functions {'on' if on else 'off'}"
    found.acts.append(Act(node, old.spec.address, "set", "", what, f"SRIOVGPUDevice {name} is to be so"))
    found.world = replace(found.world, gpus={**found.world.gpus, name: new})


def _vgpu(found: _Sum, node: str, name: str, kind: str) -> None:
    found.nodes.append(node)
    old = found.world.vgpus.get(name)
    if old is None:
        found.missing(node, "", "VGPUDevice", name)
        return
    known = {each.rpartition(" ")[2]: each for each in old.status.available_types}
    kind = known.get(kind, kind)  # A2-4Q is NVIDIA A2-4Q
    if (old.spec.enabled, old.spec.type_name) == (True, kind) or (not kind and not old.spec.enabled):
        return
    spec = replace(old.spec, enabled=bool(kind), type_name=kind or old.spec.type_name)
    new = replace(old, spec=spec)
    edit: Edit[VGPUDevice] = Edit(name, "", old, new)
    found.refuse(node, old.spec.parent, "VGPU", list(vgpus.update(edit, old, new, found.world)))
    patch: dict[str, Any] = {"enabled": True, "vGPUTypeName": kind} if kind else {"enabled": False}
    found.writes.append(Write(VGPUDevice, name, old.metadata.resource_version, patch))
    verb, what = ("create", kind) if kind else ("destroy", old.status.configured or old.spec.type_name)
    act = Act(node, old.spec.parent, verb, "", f"{what} on {old.spec.address}", f"VGPUDevice {name} is to be so")
    found.acts.append(act)
    found.world = replace(found.world, vgpus={**found.world.vgpus, name: new})


def _layout(found: _Sum, ask: SetLayout) -> None:
    name = names.object_name(ask.node, ask.gpu)
    found.nodes.append(ask.node)
    old = found.world.migs.get(name)
    if old is None:
        found.missing(ask.node, ask.gpu, "MigConfiguration", name)
        return
    rows = _requested(found, ask, old)
    spec = replace(old.spec, enabled=ask.enabled, profile_spec=rows)
    new = replace(old, spec=spec)
    if spec == old.spec:
        return
    edit: Edit[MigConfiguration] = Edit(name, "", old, new)
    found.refuse(ask.node, ask.gpu, "LAYOUT", list(migs.update(edit, old, new, found.world)))
    patch = {"enabled": ask.enabled, "profileSpec": msgspec.to_builtins(rows)}
    found.writes.append(Write(MigConfiguration, name, old.metadata.resource_version, patch))
    asked = ", ".join(f"{r.requested} x {r.name.removeprefix('MIG ')}" for r in rows if r.requested)
    what = f"MIG configuration {asked or 'empty'}" if ask.enabled else "MIG configuration off"
    found.acts.append(Act(ask.node, ask.gpu, "set", "", what, f"MigConfiguration {name} is to be so"))


def _requested(found: _Sum, ask: SetLayout, old: MigConfiguration) -> tuple[MigProfileSpec, ...]:
    """The object's rows with the counts that are asked for. A switch off leaves them as they are."""
    if not ask.enabled and not ask.counts:
        return old.spec.profile_spec
    known = {row.name.removeprefix("MIG "): row for row in old.spec.profile_spec}
    for profile, count in ask.counts.items():
        if profile.removeprefix("MIG ") not in known and count:
            text = f"{ask.gpu} has no profile {profile}: it has {', '.join(known)}"
            found.obstacles.append(Obstacle("PROFILE", text, ask.node, ask.gpu))
    counts = {name.removeprefix("MIG "): count for name, count in ask.counts.items()}
    return tuple(replace(row, requested=counts.get(name, row.requested if not counts else 0))
                 for name, row in known.items())  # fmt: skip
