"""What the journal keeps of a change: small, with a form of its own, so that another version of Aliquot understands it.

The first record of a run holds it. It answers three questions after a kill: is this plan the one that was interrupted,
is everything that exists now either older than the run or made by it, and what was there before. Unknown fields are
ignored. What another version wrote differently is not understood, and then the change is planned from what exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from aliquot.core.engine.ports import FORMAT, JournalEntry
from aliquot.core.model.actions import Action, Create, CreateVgpu, Reset, SetFunctions, SetMode, SetPassthrough
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import (
    ComputeInstance,
    Gpu,
    GpuInstance,
    GpuVirtualization,
    Inventory,
    Vgpu,
    VirtualFunction,
)
from aliquot.core.model.plan import Plan
from aliquot.core.planner.restore_point import VFIO

_EXCLUSIVE = (SetMode, Reset, SetFunctions, SetPassthrough)
"""Actions that a GPU refuses, or puts off, while a process has it open: a session that only reads included."""


class RecordedInstance(msgspec.Struct, frozen=True):
    """A GPU instance. ``compute`` are profile id and placement of its compute instances."""

    profile_id: int
    placement: str
    profile: str = ""
    compute: tuple[tuple[int, str], ...] = ()


class RecordedVgpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """A vGPU on a function."""

    function: str
    type_id: int
    type: str = ""
    uuid: str = ""


class GpuBefore(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU before the change. ``mig`` is its mode, empty where it has none. ``functions`` counts the virtual
    functions that were enabled, ``vfio_bound`` are those that vfio-pci had.
    """

    gpu: str
    mig: str = ""
    instances: tuple[RecordedInstance, ...] = ()
    vgpus: tuple[RecordedVgpu, ...] = ()
    functions: int = 0
    vfio_bound: tuple[str, ...] = msgspec.field(default=(), name="bound")
    mixed_size: bool | None = msgspec.field(default=None, name="mixed")
    passthrough: bool = False
    was_mig: bool = False


class GpuChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the change makes of one GPU: profile id and placement of new GPU instances, new vGPUs, the counts of virtual
    functions and the states of passthrough that it sets.
    """

    gpu: str
    instances: tuple[tuple[int, str], ...] = ()
    vgpus: tuple[RecordedVgpu, ...] = ()
    functions: tuple[int, ...] = ()
    passthrough: tuple[bool, ...] = ()


class RecordedChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change. ``fingerprint`` is that of the inventory that it was planned for, ``desired`` what was requested, in
    the form of the boot record. ``actions`` counts its actions; ``exclusive`` says that one of them needs a GPU that no
    process has open. ``attempted`` are GPU and step of what earlier runs of this change did before they were
    interrupted.
    """

    fingerprint: str
    desired: tuple[DesiredGpu, ...]
    before: tuple[GpuBefore, ...]
    gpus: tuple[GpuChange, ...] = ()
    actions: int = 0
    exclusive: bool = False
    attempted: tuple[tuple[str, str], ...] = ()

    def matches_plan(self, plan: Plan) -> bool:
        """Return whether this is the change that ``plan`` describes. A plan from a file may have been edited since."""
        mine = self.fingerprint, self.desired, self.gpus, self.actions
        return mine == (plan.fingerprint, _requested(plan.desired), _changes(plan), len(plan.actions))

    def explains(self, now: Inventory) -> bool:
        """Return whether all that exists now existed before or is made by this change, and no other GPU moved."""
        before = {each.gpu: each for each in self.before}
        changes = {each.gpu: each for each in self.gpus}
        return all(g.pci in before and _explained(g, before[g.pci], changes.get(g.pci)) for g in now.gpus)

    def inventory_before(self, now: Inventory) -> Inventory | None:
        """Return the inventory before the change: what is recorded, with the identity of the GPUs that are there now.
        None where a GPU is missing, or is another one.
        """
        present = {gpu.pci: gpu for gpu in now.gpus}
        if {each.gpu for each in self.before} != set(present):
            return None
        gpus = [_gpu_before(present[each.gpu], each) for each in self.before]
        whole = tuple(gpu for gpu in gpus if gpu is not None)
        return msgspec.structs.replace(now, gpus=whole) if len(whole) == len(gpus) else None


def record_change(plan: Plan, before: Inventory, attempted: Iterable[tuple[str, str]] = ()) -> RecordedChange:
    """Build what the journal keeps of a plan that starts from ``before``."""
    return RecordedChange(
        fingerprint=plan.fingerprint,
        desired=_requested(plan.desired),
        before=tuple(map(_before, before.gpus)),
        gpus=_changes(plan),
        actions=len(plan.actions),
        exclusive=any(isinstance(action, _EXCLUSIVE) for action in plan.actions),
        attempted=tuple(sorted(attempted)),
    )


def attempted_calls(change: RecordedChange, entries: Iterable[JournalEntry]) -> frozenset[tuple[str, str]]:
    """Return GPU and step of the calls that the driver did not refuse to an interrupted run, and to those before it."""
    found = set(change.attempted)
    for each in entries:
        if each.kind == "intent":
            found.add((each.gpu, each.step))
        elif each.kind == "refused":
            found.discard((each.gpu, each.step))
    return frozenset(found)


def change_of(begin: JournalEntry) -> RecordedChange | None:
    """Return the change of a run from its first record. None where it holds none, or none that this version
    understands.
    """
    if begin.change is None or begin.format > FORMAT:
        return None
    try:
        return msgspec.json.decode(begin.change, type=RecordedChange)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, as is that for bytes that are no text
        return None


def encode_change(change: RecordedChange) -> msgspec.Raw:
    """Return the change as it stands in the record."""
    return msgspec.Raw(msgspec.json.encode(change))


def _requested(desired: Desired) -> tuple[DesiredGpu, ...]:
    """What was requested, without where in the user's text."""
    return tuple(msgspec.structs.replace(each, source="") for each in desired.gpus)


def _before(gpu: Gpu) -> GpuBefore:
    virtual = gpu.virtual or GpuVirtualization()
    return GpuBefore(
        gpu=gpu.pci,
        mig=gpu.mig.current if gpu.mig.capable else "",
        instances=tuple(
            RecordedInstance(
                i.profile_id, i.placement, i.profile, tuple((c.profile_id, c.placement) for c in i.compute_instances)
            )
            for i in gpu.instances
        ),
        vgpus=tuple(RecordedVgpu(v.function, v.type_id, v.type, v.uuid) for v in gpu.vgpus),
        functions=len(virtual.functions),
        vfio_bound=tuple(f.pci for f in virtual.functions if f.driver == VFIO),
        mixed_size=virtual.mixed_size,
        passthrough=gpu.passthrough,
        was_mig=virtual.was_mig,
    )


def _changes(plan: Plan) -> tuple[GpuChange, ...]:
    return tuple(_change(pci, actions) for pci, actions in plan.actions_by_gpu.items())


def _change(pci: str, actions: Iterable[Action]) -> GpuChange:
    every = tuple(actions)
    return GpuChange(
        gpu=pci,
        instances=tuple((a.profile_id, a.placement) for a in every if isinstance(a, Create)),
        vgpus=tuple(RecordedVgpu(a.function, a.type_id, a.type, a.uuid) for a in every if isinstance(a, CreateVgpu)),
        functions=tuple(a.count for a in every if isinstance(a, SetFunctions)),
        passthrough=tuple(a.on for a in every if isinstance(a, SetPassthrough) and not a.function),
    )


def _explained(gpu: Gpu, before: GpuBefore, change: GpuChange | None) -> bool:
    """Whether a GPU may have come from its former state to this by this change, and by nothing else."""
    instances = {(i.profile_id, i.placement) for i in gpu.instances}
    vgpus = {(v.function, v.type_id, v.uuid) for v in gpu.vgpus}
    functions = len(gpu.virtual.functions) if gpu.virtual else 0
    old = {(i.profile_id, i.placement) for i in before.instances}
    old_vgpus = _vgpus(before.vgpus)
    if change is None:
        return (instances, vgpus, functions, gpu.passthrough) == (old, old_vgpus, before.functions, before.passthrough)
    return (
        gpu.passthrough in {*change.passthrough, before.passthrough}
        and instances <= old | set(change.instances)
        and vgpus <= old_vgpus | _vgpus(change.vgpus)
        and functions in {*change.functions, before.functions}
    )


def _vgpus(found: Collection[RecordedVgpu]) -> set[tuple[str, int, str]]:
    return {(v.function, v.type_id, v.uuid) for v in found}


def _gpu_before(now: Gpu, before: GpuBefore) -> Gpu | None:
    """The GPU as it was. None where it has fewer virtual functions now than were enabled."""
    virtual = now.virtual
    if virtual is not None:
        if before.functions > len(virtual.addresses):
            return None
        functions = tuple(
            VirtualFunction(pci, number, VFIO if pci in before.vfio_bound else "")
            for number, pci in enumerate(virtual.addresses[: before.functions])
        )
        virtual = msgspec.structs.replace(
            virtual, functions=functions, mixed_size=before.mixed_size, was_mig=before.was_mig
        )
    mode = before.mig or "disabled"
    return msgspec.structs.replace(
        now,
        mig=msgspec.structs.replace(now.mig, capable=bool(before.mig), current=mode, pending=mode),
        instances=tuple(_instance(number, each) for number, each in enumerate(before.instances)),
        vgpus=tuple(Vgpu(v.function, v.type_id, v.type, v.uuid) for v in before.vgpus),
        passthrough=before.passthrough,
        virtual=virtual,
    )


def _instance(number: int, before: RecordedInstance) -> GpuInstance:
    """Ids are not recorded: the driver gives others anyhow."""
    compute = tuple(ComputeInstance(n, "", profile, place) for n, (profile, place) in enumerate(before.compute))
    return GpuInstance(number, before.profile, before.profile_id, before.placement, compute_instances=compute)
