"""Rows of what one node offers to VMs, from its inventory and its last request. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from aliquot.core.config.boot_record import RecordedRequest
from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.model.vgpu_checks import DRIVER, warnings
from aliquot.core.planner.compute_grouping import same_instances
from aliquot.core.planner.fragmentation import find_fragmentation
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.vgpu.creatable_types import TypeAnswer, type_answers
from aliquot.core.rendering import action_text as action_texts
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.dashboard.local import desired_state
from aliquot.dashboard.view_models import MigRow, ProfileRow, SriovRow, VgpuRow, VirtualizationView
from aliquot.kubernetes.kinds.harvester_names import DISABLED, OUT_OF_SYNC, SYNCED


def rows(inventory: Inventory, recorded: Sequence[RecordedRequest] = ()) -> VirtualizationView:
    """Build all rows of a node."""
    recorded_by_gpu = {each.desired.pci: each for each in recorded}
    vgpus: list[VgpuRow] = []
    sriov: list[SriovRow] = []
    for gpu in inventory.gpus:
        if gpu.virtual is None:
            continue
        if gpu.virtual.total:
            sriov.append(_sriov(inventory, gpu))
        if gpu.virtual.functions or gpu.virtual.framework:
            vgpus += _places(inventory, gpu)
    migs = tuple(_mig(inventory, g, recorded_by_gpu.get(g.pci)) for g in inventory.gpus if g.mig.capable and g.family)
    return VirtualizationView(tuple(sriov), tuple(vgpus), migs, (), tuple(_missing(inventory)))


# -- SR-IOV


def _sriov(inventory: Inventory, gpu: Gpu) -> SriovRow:
    assert gpu.virtual is not None
    on = gpu.virtual.enabled
    return SriovRow(
        node=inventory.node,
        gpu=gpu.pci,
        product=mig_picture.product(gpu),
        name=gpu.pci,
        enabled=on,
        functions=len(gpu.virtual.functions),
        total=gpu.virtual.total,
        vgpus=len(gpu.vgpus),
        state=_functions(gpu),
        why_not=_why_not_switched(inventory, gpu, not on),
    )


def _functions(gpu: Gpu) -> str:
    assert gpu.virtual is not None
    if gpu.passthrough:
        return "passed through whole"
    if not gpu.virtual.enabled:
        return f"disabled: {gpu.virtual.total} functions possible"
    vgpus = "1 vGPU" if len(gpu.vgpus) == 1 else f"{len(gpu.vgpus)} vGPUs"
    return f"{len(gpu.virtual.functions)} functions, {vgpus}"


def _why_not_switched(inventory: Inventory, gpu: Gpu, on: bool) -> str:
    """Return the planner's blocker. Without the vGPU host driver, functions can only be passed through."""
    made = plan(inventory, desired_state.functions([gpu.pci], on, inventory))
    return made.blockers[0].message if made.blockers else ""


# -- vGPUs


def _places(inventory: Inventory, gpu: Gpu) -> Iterator[VgpuRow]:
    """Yield a row for each virtual function, or for each existing and possible mdev of a physical function."""
    answers = type_answers(inventory, gpu)
    able = tuple(shares.short(a.name) for a in answers if a.creatable)
    why = "" if able else _why_none(answers)
    assert gpu.virtual is not None
    if gpu.virtual.framework == "mdev":
        for vgpu in gpu.vgpus:
            yield _taken(inventory, gpu, vgpu, desired_state.place_of(gpu, vgpu), able)
        for n in range(max((a.now for a in answers), default=0)):
            spare = _row(inventory, gpu, f"{desired_state.SPARE}{gpu.pci}#{n + 1}", gpu.pci)
            yield replace(spare, types=able, state="free")
        return
    on = {v.function: v for v in gpu.vgpus}
    for function in gpu.virtual.functions:
        row = _row(inventory, gpu, function.pci, function.pci)
        if function.pci in on:
            yield _taken(inventory, gpu, on[function.pci], function.pci, able)
        elif function.driver == VFIO:
            used = tuple(map(str, function.holders))
            usage = "passed through whole (vfio-pci)"
            yield replace(row, holders=used, state=usage, why_not=f"it is {usage}")
        else:
            yield replace(row, types=able, state="free", why_not=why)


def _taken(inventory: Inventory, gpu: Gpu, vgpu: Vgpu, name: str, able: tuple[str, ...]) -> VgpuRow:
    holders = tuple(map(str, vgpu.holders))
    usage = f"held by {action_texts.holders(vgpu.holders)}" if holders else "idle"
    return replace(
        _row(inventory, gpu, name, vgpu.function),
        type=shares.short(vgpu.type),
        uuid=vgpu.uuid,
        types=able,
        holders=holders,
        state=usage,
        why_not=f"it is {usage}" if holders else "",
    )


def _row(inventory: Inventory, gpu: Gpu, name: str, address: str) -> VgpuRow:
    return VgpuRow(inventory.node, name, address, gpu.pci, mig_picture.product(gpu))


def _why_none(answers: Sequence[TypeAnswer]) -> str:
    """Return the most frequent reason why no type can be created, ignoring types that need another MIG mode."""
    counts = Counter(a.why for a in answers if a.why and a.rule != "MIG_TYPE") or Counter(a.why for a in answers)
    return counts.most_common(1)[0][0] if counts else "no vGPU type of this GPU is known"


# -- MIG


def _mig(inventory: Inventory, gpu: Gpu, recorded: RecordedRequest | None) -> MigRow:
    family = inventory.family(gpu)
    present = Counter(i.profile_id for i in gpu.instances)
    desired_gpu = recorded.desired if recorded is not None else None
    desired_instances = desired_gpu.instances if desired_gpu is not None else None
    open_or_met = desired_instances is None or same_instances(desired_instances, gpu.instances)
    requested = present if open_or_met else Counter(w.profile_id for w in desired_instances or ())
    found = find_fragmentation(inventory, gpu)
    available = {r.profile_id: r.now for r in found.capacities} if found is not None else {}
    profiles = tuple(
        ProfileRow(
            name=p.name,
            id=p.id,
            requested=requested[p.id],
            present=present[p.id],
            available=available.get(p.id, 0) if gpu.mig.enabled else p.max_instances,
            total=p.max_instances,
        )
        for p in family.profiles
    )
    met = open_or_met and (desired_gpu is None or desired_gpu.mig in (None, gpu.mig.enabled))
    status = (SYNCED if gpu.mig.enabled else DISABLED) if met else OUT_OF_SYNC
    return MigRow(
        node=inventory.node,
        gpu=gpu.pci,
        product=mig_picture.product(gpu),
        name=gpu.pci,
        enabled=gpu.mig.enabled,
        status=status,
        profiles=profiles,
        why_not=_why_not_partitioned(gpu),
    )


def _why_not_partitioned(gpu: Gpu) -> str:
    if gpu.lost:
        return "it has fallen off the bus"
    if gpu.passthrough:
        return "it is passed through whole to VMs"
    return f"it is in use as a whole by {action_texts.holders(gpu.holders)}" if gpu.holders else ""


# -- missing requirements


def _missing(inventory: Inventory) -> Iterator[str]:
    yield from warnings(inventory)
    able = any(inventory.vgpu_table(gpu) for gpu in inventory.gpus)
    if able and inventory.host is not None and inventory.host.vgpu_manager is False:
        yield f"NVIDIA's vGPU host driver is not installed, so no vGPU can be created: {DRIVER}"
