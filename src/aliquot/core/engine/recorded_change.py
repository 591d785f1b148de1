"""The record of a change in the journal: small, and in a format of its own that other versions of Aliquot can read.

The begin entry of a run has it. After a kill it answers three questions:

- Is this plan the one that was interrupted?
- Is everything that exists now either older than the run or created by it?
- What was the state before?

Unknown fields are ignored. If this version cannot decode the record, the change is planned from the inventory.
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
from aliquot.core.model.vgpu_scheduler import scheduler_of
from aliquot.core.planner.restore_point import VFIO

_EXCLUSIVE = (SetMode, Reset, SetFunctions, SetPassthrough)
"""Actions that a GPU refuses or defers while a process has it open, even one that only reads."""


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
    parameters: str = ""


class GpuBefore(msgspec.Struct, frozen=True, omit_defaults=True):
    """A GPU before the change. ``mig`` is its mode, empty without MIG. ``functions`` counts the virtual functions that
    were enabled, ``vfio_bound`` are those bound to vfio-pci.
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
    scheduler: str = ""


class GpuChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change of one GPU: profile id and placement of new GPU instances, new vGPUs, the counts of virtual functions
    and the states of passthrough that it sets.
    """

    gpu: str
    instances: tuple[tuple[int, str], ...] = ()
    vgpus: tuple[RecordedVgpu, ...] = ()
    functions: tuple[int, ...] = ()
    passthrough: tuple[bool, ...] = ()


class RecordedChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change."""

    fingerprint: str
    """The fingerprint of the inventory that it was planned for."""
    desired: tuple[DesiredGpu, ...]
    """The desired state, in the form of the boot record."""
    before: tuple[GpuBefore, ...]
    gpus: tuple[GpuChange, ...] = ()
    actions: int = 0
    """The number of actions."""
    exclusive: bool = False
    """Whether an action needs a GPU that no process has open."""
    attempted: tuple[tuple[str, str], ...] = ()
    """GPU and step of the calls that earlier, interrupted runs of this change made."""

    def matches_plan(self, plan: Plan) -> bool:
        """Report whether this is the change of ``plan``. A plan from a file may have been edited since."""
        mine = self.fingerprint, self.desired, self.gpus, self.actions
        return mine == (plan.fingerprint, _requested(plan.desired), _changes(plan), len(plan.actions))

    def explains(self, now: Inventory) -> bool:
        """Report whether all that exists now existed before or is made by this change, and no other GPU changed."""
        before = {each.gpu: each for each in self.before}
        changes = {each.gpu: each for each in self.gpus}
        return all(g.pci in before and _explained(g, before[g.pci], changes.get(g.pci)) for g in now.gpus)

    def inventory_before(self, now: Inventory) -> Inventory | None:
        """Return the inventory before the change: the recorded state, with the identity of the present GPUs.

        None if a GPU is missing or was replaced.
        """
        present = {gpu.pci: gpu for gpu in now.gpus}
        if {each.gpu for each in self.before} != set(present):
            return None
        gpus = [_gpu_before(present[each.gpu], each) for each in self.before]
        whole = tuple(gpu for gpu in gpus if gpu is not None)
        return msgspec.structs.replace(now, gpus=whole) if len(whole) == len(gpus) else None


def record_change(plan: Plan, before: Inventory, attempted: Iterable[tuple[str, str]] = ()) -> RecordedChange:
    """Build the record of a plan that starts from ``before``."""
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
    """Return GPU and step of the calls that the driver did not refuse, in an interrupted run and in those before it."""
    found = set(change.attempted)
    for each in entries:
        if each.kind == "intent":
            found.add((each.gpu, each.step))
        elif each.kind == "refused":
            found.discard((each.gpu, each.step))
    return frozenset(found)


def change_of(begin: JournalEntry) -> RecordedChange | None:
    """Return the change of a run from its begin entry. None if it has none, or none that this version can decode."""
    if begin.change is None or begin.format > FORMAT:
        return None
    try:
        return msgspec.json.decode(begin.change, type=RecordedChange)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, as are decoding errors of bytes
        return None


def encode_change(change: RecordedChange) -> msgspec.Raw:
    """Encode the change for the begin entry."""
    return msgspec.Raw(msgspec.json.encode(change))


def _requested(desired: Desired) -> tuple[DesiredGpu, ...]:
    """Return the desired state without the places in the user's text."""
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
        vgpus=tuple(RecordedVgpu(v.function, v.type_id, v.type, v.uuid, v.parameters) for v in gpu.vgpus),
        functions=len(virtual.functions),
        vfio_bound=tuple(f.pci for f in virtual.functions if f.driver == VFIO),
        mixed_size=gpu.mixed_size,
        passthrough=gpu.passthrough,
        was_mig=virtual.was_mig,
        scheduler=scheduler_of(gpu),
    )


def _changes(plan: Plan) -> tuple[GpuChange, ...]:
    return tuple(_change(pci, actions) for pci, actions in plan.actions_by_gpu.items())


def _change(pci: str, actions: Iterable[Action]) -> GpuChange:
    every = tuple(actions)
    return GpuChange(
        gpu=pci,
        instances=tuple((a.profile_id, a.placement) for a in every if isinstance(a, Create)),
        vgpus=tuple(
            RecordedVgpu(a.function, a.type_id, a.type, a.uuid, a.parameters)
            for a in every
            if isinstance(a, CreateVgpu)
        ),
        functions=tuple(a.count for a in every if isinstance(a, SetFunctions)),
        passthrough=tuple(a.on for a in every if isinstance(a, SetPassthrough) and not a.function),
    )


def _explained(gpu: Gpu, before: GpuBefore, change: GpuChange | None) -> bool:
    """Report whether this change alone can explain how the GPU differs from its previous state."""
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
    """Return the GPU as it was. None if it now has fewer virtual functions than were enabled."""
    virtual = now.virtual
    if virtual is not None:
        if before.functions > len(virtual.addresses):
            return None
        functions = tuple(
            VirtualFunction(pci, number, VFIO if pci in before.vfio_bound else "")
            for number, pci in enumerate(virtual.addresses[: before.functions])
        )
        virtual = msgspec.structs.replace(
            virtual,
            functions=functions,
            mixed_size=before.mixed_size,
            was_mig=before.was_mig,
            scheduler="" if before.mig == "enabled" else before.scheduler,
        )
    mode = before.mig or "disabled"
    inside = before.mixed_size if mode == "enabled" and before.mixed_size is not None else msgspec.UNSET
    scheduler = before.scheduler if mode == "enabled" and before.scheduler else msgspec.UNSET
    return msgspec.structs.replace(
        now,
        mig=msgspec.structs.replace(now.mig, capable=bool(before.mig), current=mode, pending=mode),
        instances=tuple(
            msgspec.structs.replace(_instance(number, each), mixed_size=inside, scheduler=scheduler)
            for number, each in enumerate(before.instances)
        ),
        vgpus=tuple(Vgpu(v.function, v.type_id, v.type, v.uuid, parameters=v.parameters) for v in before.vgpus),
        passthrough=before.passthrough,
        virtual=virtual,
    )


def _instance(number: int, before: RecordedInstance) -> GpuInstance:
    """Build an instance with made-up ids: they are not recorded, since the driver assigns new ones anyway."""
    compute = tuple(ComputeInstance(n, "", profile, place) for n, (profile, place) in enumerate(before.compute))
    return GpuInstance(number, before.profile, before.profile_id, before.placement, compute_instances=compute)
