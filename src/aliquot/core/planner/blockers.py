"""Blockers of a request for one GPU: the rule, the blocking slices, their holders, and the next command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from shlex import join

import msgspec

from aliquot.core.model.desired import DesiredInstance
from aliquot.core.model.driver_branches import FIRST_WITH, PLACED_COMPUTE_INSTANCES
from aliquot.core.model.geometry import geometry, geometry_text
from aliquot.core.model.inventory import UNKNOWN_HOLDER, Gpu, GpuInstance, Holder
from aliquot.core.model.placement import slices
from aliquot.core.model.plan import Blocker
from aliquot.core.model.structured_text import GpuName, GpuOption, GpuPart, StructuredText
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.compute_grouping import groupings
from aliquot.core.planner.placement_table import PlacedInstance, PlacementTable
from aliquot.core.planner.rules import RuleRefusal, refusals

_MAX_LISTED = 3
"""Holders that a next step names."""


OR_WAIT = ", or add --policy wait"
"""The end of a next step, for commands with that option."""


def holders_next_step(holders: Sequence[Holder]) -> str:
    """Return the next step about holders: end them, or wait for them. Never proposes to end them by force."""
    if any(h.id == UNKNOWN_HOLDER for h in holders):
        return "find what uses it and end that, then destroy it with nvidia-smi: Aliquot cannot see its holders"
    distinct = dict.fromkeys(holders)
    if distinct and all(h.kind == "reservation" for h in distinct):
        return f"type '{join(['aliquot', 'docker', 'release', *(h.releasable for h in distinct)])}'{OR_WAIT}"
    if distinct and all(h.kind == "claim" for h in distinct):
        namespace, _, name = next(iter(distinct)).id.partition("/")
        return f"end the pods of the claim ({join(['kubectl', '-n', namespace, 'describe', 'resourceclaim', name])})"
    named = [str(h) for h in distinct]
    more = f" and {len(named) - _MAX_LISTED} more" if len(named) > _MAX_LISTED else ""
    return f"end {', '.join(named[:_MAX_LISTED]) or 'the holders'}{more}{OR_WAIT}"


def mig_argument(table: PlacementTable, counts: Counter[int]) -> str:
    """Format a geometry for ``--mig``, without characters that a shell expands: ``3g.20gb,1g.5gb:2``."""
    parts = [(table.profiles[p].name, counts[p]) for p in table.canonical(p for p in counts if counts[p])]
    return ",".join(name if n == 1 else f"{name}:{n}" for name, n in parts) or "empty"


def request_text(table: PlacementTable, requests: Sequence[DesiredInstance]) -> str:
    """Format a request for display: ``3g.20gb:1,1g.5gb:2``, or ``1c.3g.20gb:2``."""
    return geometry_text(geometry(name for request in requests for name in _request_names(table, request)))


def _request_names(table: PlacementTable, request: DesiredInstance) -> list[str]:
    profile = table.profiles.get(request.profile_id)
    parts = [profile.compute_profile(part) for part in request.compute] if profile and request.loose else []
    return [part.name for part in parts if part] or [request.name]


class InfeasibleRequest(msgspec.Struct, frozen=True):
    """The reason why no state of a GPU can meet a request. ``requested`` is empty if one instance of it is refused."""

    refusal: RuleRefusal
    requested: str = ""
    slices: tuple[int, ...] = ()
    next_step: str | None = None

    def sentence(self, subject: str) -> str:
        """Return the refusal as a sentence about ``subject``, which stands for the GPU."""
        message = self.refusal.message
        return f"{subject} cannot hold {self.requested}: {message}" if self.requested else message


def infeasible(table: PlacementTable, gpu: Gpu, requests: Sequence[DesiredInstance]) -> Blocker | None:
    """Return the blocker for a request that no state of this GPU can meet. None if some state can."""
    found = find_infeasible(table, gpu, requests)
    if found is None:
        return None
    suggestion = _nearest(table, gpu, groupings(table, requests)[0]) if found.requested else None
    step = StructuredText("aliquot profiles ", GpuPart(gpu.pci))
    if suggestion:
        step = StructuredText("aliquot plan ", GpuOption(gpu.pci), f" --mig {suggestion}")
    return Blocker(
        rule=found.refusal.rule,
        text=found.sentence(gpu.product),
        gpu=gpu.pci,
        slices=found.slices,
        suggestion=suggestion,
        step=found.next_step or step,
    )


def find_infeasible(table: PlacementTable, gpu: Gpu, requests: Sequence[DesiredInstance]) -> InfeasibleRequest | None:
    """Return why no state of this GPU can meet a request. None if some state can."""
    requested = request_text(table, requests)
    requests = groupings(table, requests)[0]
    counts = Counter(w.profile_id for w in requests)
    refusal = next(refusals(table, counts), None)
    if refusal is not None:
        return InfeasibleRequest(refusal, requested)
    for request in requests:
        found = _infeasible_instance(table, gpu, request)
        if found is not None:
            return found
    fixed = [(w.profile_id, w.start) for w in requests if w.start is not None]
    taken = 0
    for place in fixed:
        clash = table.masks[place] & taken
        if clash:
            overlap = RuleRefusal("PLACEMENT", "two requested placements overlap")
            return InfeasibleRequest(overlap, requested, slices(clash))
        taken |= table.masks[place]
    if next(pack.arrangements(table, counts, fixed), None) is None:
        where = " with the requested placements" if fixed else ""
        refusal = RuleRefusal("PLACEMENT", f"each count is legal, but no placement of all of them exists{where}")
        return InfeasibleRequest(refusal, requested, slices(taken))
    return None


def _infeasible_instance(table: PlacementTable, gpu: Gpu, request: DesiredInstance) -> InfeasibleRequest | None:
    profile = table.profiles[request.profile_id]
    if request.start is not None and request.start not in profile.starts:
        starts = ", ".join(str(s) for s in profile.starts)
        why = f"{profile.name} cannot start at memory slice {request.start} (it can at {starts})"
        return InfeasibleRequest(RuleRefusal("PLACEMENT", why))
    if compute.fits(profile, request.compute, request.compute_starts):
        return None
    placed = msgspec.structs.replace(profile, placed_compute=True)
    if not compute.fits(placed, request.compute, request.compute_starts):
        why = f"the requested compute instances do not fit into one {profile.name}"
        return InfeasibleRequest(RuleRefusal("COMPUTE_INSTANCES", why))
    chosen = "this driver chooses the placement of compute instances itself, and never the one requested in"
    why = StructuredText(GpuName(gpu.pci, ": "), f"{chosen} {profile.name}")
    step = f"update the NVIDIA driver to R{FIRST_WITH[PLACED_COMPUTE_INSTANCES]} or later, then run: aliquot show"
    return InfeasibleRequest(RuleRefusal("COMPUTE_PLACEMENT", why), next_step=step)


def _nearest(table: PlacementTable, gpu: Gpu, requests: Sequence[DesiredInstance]) -> str | None:
    """Return the nearest geometry that this GPU can have now, without destroying held or requested instances.

    None if it equals the request, or if it only destroys although the request adds instances.
    """
    wanted = Counter(w.profile_id for w in requests if w.profile_id in table.profiles)
    retained, left = [], wanted.copy()
    for instance in sorted(gpu.instances, key=lambda i: not i.held):
        if instance.held or left[instance.profile_id] > 0:
            retained.append(instance)
            left[instance.profile_id] -= 1
    pinned: list[PlacedInstance] = [(i.profile_id, i.place.start) for i in retained]
    if not all(place in table.masks for place in pinned) or not all(_has_default_compute(table, i) for i in retained):
        return None  # profiles do not describe these instances completely
    nearest = pack.nearest(table, wanted, pinned)
    present = Counter(i.profile_id for i in gpu.instances)
    if not nearest or nearest == wanted or (wanted - present and not nearest - present):
        return None
    return mig_argument(table, nearest)


def _has_default_compute(table: PlacementTable, instance: GpuInstance) -> bool:
    """Report whether an instance has only the default compute instance of its profile, or none yet."""
    inside = [c.profile_id for c in instance.compute_instances]
    return inside in ([], [table.profiles[instance.profile_id].default_compute.id])


def held(
    table: PlacementTable, gpu: Gpu, requests: Sequence[DesiredInstance], to_destroy: Sequence[GpuInstance]
) -> Blocker:
    """Return the blocker for a request that can only be met by destroying held instances."""
    mask = 0
    for instance in to_destroy:
        mask |= instance.place.mask
    names = StructuredText.joined(", ", ((i.profile, i.place) for i in to_destroy))
    count = f"{len(to_destroy)} instance is held" if len(to_destroy) == 1 else f"{len(to_destroy)} instances are held"
    request = request_text(table, requests)
    holders = tuple(h for i in to_destroy for h in i.holders)
    step = holders_next_step(holders)
    if holders and all(h.kind == "vgpu" for h in holders) and not any(v.held for v in gpu.vgpus):
        command = StructuredText("aliquot apply ", GpuOption(gpu.pci), " --vgpu none")
        step = StructuredText("destroy the idle vGPUs (", command, "), then run the command again")
    return Blocker(
        rule="HELD",
        text=StructuredText(GpuName(gpu.pci, " "), f"cannot become {request}: {count} (", names, ")"),
        gpu=gpu.pci,
        slices=slices(mask),
        holders=holders,
        suggestion=_nearest(table, gpu, requests),
        step=step,
    )


def not_capable(gpu: Gpu) -> Blocker:
    return Blocker(
        rule="NOT_CAPABLE",
        text=StructuredText(GpuName(gpu.pci, " "), f"({gpu.product}) does not support MIG"),
        gpu=gpu.pci,
        step="aliquot show",
    )


def lost(gpu: Gpu) -> Blocker:
    return Blocker(
        rule="GPU_LOST",
        text=StructuredText(GpuName(gpu.pci, " "), f"({gpu.product}) has fallen off the bus"),
        gpu=gpu.pci,
        step="reboot the node, then: aliquot show",
    )


def busy(gpu: Gpu, what: str) -> Blocker:
    """Return the blocker for a GPU in use outside any instance: the driver refuses mode changes and new instances."""
    return Blocker(
        rule="HELD",
        text=StructuredText(GpuName(gpu.pci, " "), f"is in use as a whole: {what}"),
        gpu=gpu.pci,
        holders=gpu.holders,
        step=holders_next_step(gpu.holders),
    )
