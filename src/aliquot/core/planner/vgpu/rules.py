"""Rules on vGPUs that are together on one GPU: each is a named predicate that explains its refusal.

These rules check only types and counts. ``placement_search`` and ``mixed_size`` check placements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.driver_branches import FIRST_WITH, SET_INSTANCE_SCHEDULER, SET_SCHEDULER, lacks
from aliquot.core.model.inventory import GpuInstance
from aliquot.core.model.plugin_parameters import CUDA_ONLY, CUDA_SERIES, as_switches
from aliquot.core.model.vgpu_scheduler import ALWAYS_STRICT, DEFAULT, FIXED, policy_of, unreadable, without_slice
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu.naming import counts_text
from aliquot.core.planner.vgpu.placement_policies import MOST_TIME_SLICED, MOST_WITH_MIG, Types


def find_type(table: VgpuTable | None, type_id: int, name: str, product: str) -> VgpuType | RuleRefusal:
    """Return the type that a request means on a GPU: by its number, else by its full or short name."""
    if table is None:
        return RuleRefusal("UNKNOWN_TYPE", f"no vGPU types of {product} are known")
    named = table.by_name.get(name)
    found = table.by_id.get(type_id)
    if found is not None and (named is None or named.id == type_id):
        return found
    if named is not None and named.id is None:
        return RuleRefusal("TYPE_WITHOUT_ID", f"the id of {name} is unknown, so it cannot be created")
    if named is not None:
        return named
    owners = [t.name for t in vgpu.tables() if name in t.by_name or (not name and type_id in t.by_id)]
    if owners:
        return RuleRefusal(
            "WRONG_CARD", f"{name or type_id} is a vGPU type of {' and '.join(owners)}, not of {product}"
        )
    return RuleRefusal("UNKNOWN_TYPE", f"unknown vGPU type {name or type_id}")


def same_backing(table: VgpuTable, types: Types, mixed: bool) -> RuleRefusal | None:
    """Require either time-sliced vGPUs (MIG mode disabled) or MIG-backed ones (MIG mode enabled)."""
    if len({t.mig_backed for t, _ in types}) > 1:
        sliced = next(t.name for t, _ in types if not t.mig_backed)
        backed = next(t.name for t, _ in types if t.mig_backed)
        why = f"{backed} is MIG-backed and {sliced} is time-sliced: one GPU is either in MIG mode or not"
        return RuleRefusal("MIG_TYPE", why)
    return None


def equal_size(table: VgpuTable, types: Types, mixed: bool) -> RuleRefusal | None:
    """Require one size of time-sliced vGPUs without mixed-size mode. Their series may differ."""
    sizes = {t.fb_mib: t.short for t, _ in types if not t.mig_backed}
    if len(sizes) > 1 and not mixed:
        names = " and ".join(sizes.values())
        hint = ": add mixed-size" if table.mixed_size and table.sriov else ""
        return RuleRefusal(
            "EQUAL_SIZE", f"{names} have different sizes, but all vGPUs of a GPU must have one size{hint}"
        )
    return None


def max_vgpus(table: VgpuTable, types: Types, mixed: bool) -> RuleRefusal | None:
    """Apply the maximum of each type, which counts all time-sliced vGPUs of the GPU, of any series."""
    backed = any(t.mig_backed for t, _ in types)
    total = sum(n for _, n in types)
    for each, n in types:
        count = n if each.mig_backed else total
        if count > each.max and not (mixed and not each.mig_backed):
            vfs = f"{table.total_vfs} VFs but " if table.sriov and table.total_vfs else ""
            series = "" if count == n else f", {total} vGPUs of {each.size_gib} GiB requested"
            return RuleRefusal(
                "MAX_VGPUS", f"at most {each.max} fit on one GPU ({vfs}{each.max} x {each.short}){series}"
            )
    ceiling = MOST_WITH_MIG if backed else MOST_TIME_SLICED
    if total > ceiling:
        return RuleRefusal("MAX_VGPUS", f"{total} vGPUs requested, the driver creates at most {ceiling} on one GPU")
    return None


def mixed_size(table: VgpuTable, types: Types, mixed: bool) -> RuleRefusal | None:
    """Limit each size to its placements in mixed-size mode, which are mostly fewer than in equal-size mode."""
    if not mixed:
        return None
    backed = any(t.mig_backed for t, _ in types)
    if (refusal := no_mixed_size(table, backed)) is not None or backed:
        return refusal  # GPU instances limit MIG-backed vGPUs, not the GPU
    for each, n in types:
        if n > len(each.mixed):
            mode = "in mixed-size mode"
            alone = f", {each.max} without" if each.max > len(each.mixed) else ""
            return RuleRefusal("MIXED_SIZE", f"{n} x {each.name} requested, {len(each.mixed)} fit {mode}{alone}")
    need = sum(t.size_gib * n for t, n in types)
    if need > table.region:
        return RuleRefusal("MIXED_SIZE", f"{need} GiB of vGPUs requested, the GPU has {table.region}")
    return None


def no_mixed_size(table: VgpuTable, mig: bool) -> RuleRefusal | None:
    """Return why a GPU cannot get mixed-size mode: it has none, or Aliquot does not model it.

    Source for Volta and Turing: NVIDIA AI Enterprise 8, "NVIDIA vGPU Types by Hardware". Its pages say "This GPU does
    not support mixed-size mode" for each board. The page "Heterogeneous vGPU" names Volta and later, but no board.
    """
    why = ""
    if mig and not table.shares_instances:
        why = f"{table.name} has no mixed-size mode with MIG mode enabled: a GPU instance has one vGPU"
    elif not mig and not (table.mixed_size and table.sriov):
        why = f"{table.name} has no mixed-size mode, by NVIDIA's table of its vGPU types"
    return RuleRefusal("MIXED_SIZE", why) if why else None


RULES: tuple[Callable[[VgpuTable, Types, bool], RuleRefusal | None], ...] = (
    same_backing,
    equal_size,
    max_vgpus,
    mixed_size,
)


def refusals(table: VgpuTable, types: Types, *, mixed: bool) -> Iterator[RuleRefusal]:
    """Yield why these vGPUs cannot be together on one GPU, most specific rule first. Empty if no rule refuses them."""
    for rule in RULES:
        refusal = rule(table, types, mixed)
        if refusal is not None:
            yield refusal


def parameter_refusal(vgpu_type: VgpuType, parameters: str | None) -> RuleRefusal | None:
    """Refuse plugin parameters for CUDA on types whose guests have none: the plugin would ignore them."""
    names = [name for name, on in (as_switches(parameters or "") or {}).items() if on and name in CUDA_ONLY]
    if not names or vgpu_type.series in CUDA_SERIES:
        return None
    why = f"{names[0]} needs CUDA in the guest, which {vgpu_type.name} does not offer: Q and C types do"
    return RuleRefusal("PARAMETER", why)


def scheduler_refusal(scheduler: str, driver: str, *, mig: bool, per_instance: bool) -> RuleRefusal | None:
    """Refuse a scheduler that the GPU's mode or its driver cannot have."""
    why = ""
    call, of = (SET_INSTANCE_SCHEDULER, " of a GPU instance") if mig else (SET_SCHEDULER, "")
    if mig and not per_instance:
        why = "MIG-backed vGPUs share no time: each has a GPU instance of its own. A scheduler needs MIG mode disabled"
    elif lacks(driver, call):
        why = f"driver {driver} cannot change the scheduler{of} while it runs: R{FIRST_WITH[call]} and later can"
    elif wrong := unreadable(scheduler):
        why = f"this release cannot read the scheduler: {wrong}"
    elif (possible := without_slice(scheduler, driver)) != scheduler:
        why = (
            f"drivers of R{ALWAYS_STRICT} and later always keep strict round robin, which a time slice turns off: "
            f"write {possible}"
        )
    return RuleRefusal("SCHEDULER", why) if why else None


def unseen_scheduler(instance: GpuInstance | None) -> RuleRefusal | None:
    """Refuse to set a scheduler that cannot be read back. None without such a GPU instance."""
    if instance is None:
        return None
    name = f"GPU instance {instance.id} ({instance.profile})"
    why = f"the scheduler of {name} cannot be seen: only NVML reports and sets it"
    return RuleRefusal("SCHEDULER", why)


def scheduler_conflict(scheduler: str, mixed: bool, parameters: Iterable[str | None]) -> RuleRefusal | None:
    """Refuse what the driver does not do together with a scheduler, whether it is requested or stays."""
    policy = policy_of(scheduler)
    if policy == FIXED and mixed:
        why = f"{FIXED} needs vGPUs of one size: with mixed-size, request equal-share or {DEFAULT}"
        return RuleRefusal("SCHEDULER", why)
    limited = any((as_switches(text or "") or {}).get("frame_rate_limiter") for text in parameters)
    if limited and policy not in ("", DEFAULT):
        why = f"{policy} turns the frame-rate limiter off: request frame_rate_limiter with {DEFAULT}"
        return RuleRefusal("SCHEDULER", why)
    return None


def enough_functions(functions: Sequence[str], count: int, why: str = "") -> RuleRefusal | None:
    """Require a virtual function for each vGPU."""
    if count > len(functions):
        return RuleRefusal(
            "NO_FUNCTION", f"{count} vGPUs requested, {len(functions)} virtual functions can have one{why}"
        )
    return None


def count_types(types: Iterable[VgpuType]) -> Types:
    """Return each type once with its count: largest first, then by its number."""
    found: dict[str, list[VgpuType]] = {}
    for each in types:
        found.setdefault(each.name, []).append(each)
    order = sorted(found.values(), key=lambda same: (-same[0].fb_mib, same[0].id or 0, same[0].name))
    return [(same[0], len(same)) for same in order]


def counts_by_name(types: Types) -> dict[str, int]:
    """Return counts by full name."""
    return {t.name: n for t, n in types}


def types_text(types: Types) -> str:
    return counts_text(counts_by_name(types))
