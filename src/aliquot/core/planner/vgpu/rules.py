"""Which vGPUs can be together on one GPU: each rule is a named predicate that explains its refusal.

Places are another matter (``aim``): these rules look at types and counts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu.naming import counts_text
from aliquot.core.planner.vgpu.placement_policies import MOST_TIME_SLICED, MOST_WITH_MIG, Types


def find_type(table: VgpuTable | None, type_id: int, name: str, product: str) -> VgpuType | RuleRefusal:
    """The type that a wish means on a card: by its number, else by its full or short name."""
    if table is None:
        return RuleRefusal("UNKNOWN_TYPE", f"no vGPU types of {product} are known")
    named = table.by_name.get(name)
    found = table.by_id.get(type_id)
    if found is not None and (named is None or named.id == type_id):
        return found
    if named is not None and named.id is None:
        return RuleRefusal("TYPE_WITHOUT_ID", f"no source gives the number of {name}, so that it cannot be made")
    if named is not None:
        return named
    owners = [t.name for t in vgpu.tables() if name in t.by_name or (not name and type_id in t.by_id)]
    if owners:
        return RuleRefusal(
            "WRONG_CARD", f"{name or type_id} is a vGPU type of {' and '.join(owners)}, not of {product}"
        )
    return RuleRefusal("UNKNOWN_TYPE", f"there is no vGPU type {name or type_id}")


def same_backing(table: VgpuTable, types: Types, mixed: bool) -> RuleRefusal | None:
    """Time-sliced vGPUs need MIG mode off, MIG-backed ones need it on."""
    if len({t.mig_backed for t, _ in types}) > 1:
        sliced = next(t.name for t, _ in types if not t.mig_backed)
        backed = next(t.name for t, _ in types if t.mig_backed)
        why = f"{backed} is MIG-backed and {sliced} is time-sliced: one GPU is either in MIG mode or not"
        return RuleRefusal("MIG_TYPE", why)
    return None


def equal_size(table: VgpuTable, types: Types, mixed: bool) -> RuleRefusal | None:
    """Without mixed-size mode all time-sliced vGPUs of a GPU have one size; their series may differ."""
    sizes = {t.fb_mib: t.short for t, _ in types if not t.mig_backed}
    if len(sizes) > 1 and not mixed:
        names = " and ".join(sizes.values())
        hint = ": add mixed-size" if table.mixed_size and table.sriov else ""
        return RuleRefusal("EQUAL_SIZE", f"{names} have different sizes, one GPU has vGPUs of one size{hint}")
    return None


def max_vgpus(table: VgpuTable, types: Types, mixed: bool) -> RuleRefusal | None:
    """The most of each type counts all time-sliced vGPUs of the GPU, of whatever series."""
    backed = any(t.mig_backed for t, _ in types)
    total = sum(n for _, n in types)
    for each, n in types:
        count = n if each.mig_backed else total
        if count > each.max and not (mixed and not each.mig_backed):
            vfs = f"{table.total_vfs} VFs but " if table.sriov and table.total_vfs else ""
            series = "" if count == n else f", {total} vGPUs of {each.size_gib} GiB asked"
            return RuleRefusal(
                "MAX_VGPUS", f"at most {each.max} fit on one GPU ({vfs}{each.max} x {each.short}){series}"
            )
    ceiling = MOST_WITH_MIG if backed else MOST_TIME_SLICED
    if total > ceiling:
        return RuleRefusal("MAX_VGPUS", f"{total} vGPUs asked, the driver makes at most {ceiling} on one GPU")
    return None


def mixed_size(table: VgpuTable, types: Types, mixed: bool) -> RuleRefusal | None:
    """In mixed-size mode each size has its places, mostly fewer than it could have alone."""
    if not mixed:
        return None
    if (refusal := no_mixed_size(table, any(t.mig_backed for t, _ in types))) is not None:
        return refusal
    for each, n in types:
        if n > len(each.mixed):
            mode = "in mixed-size mode"
            alone = f", {each.max} without" if each.max > len(each.mixed) else ""
            return RuleRefusal("MIXED_SIZE", f"{n} x {each.name} asked, {len(each.mixed)} have a place {mode}{alone}")
    need = sum(t.size_gib * n for t, n in types)
    if need > table.region:
        return RuleRefusal("MIXED_SIZE", f"{need} GiB of vGPUs asked, there is room for {table.region}")
    return None


def no_mixed_size(table: VgpuTable, mig: bool) -> RuleRefusal | None:
    """Why a GPU, with MIG mode on or off, is not brought into mixed-size mode: it has none, or we do not model it."""
    why = ""
    if mig and any(t.per_instance > 1 for t in table.types):
        # nvmlGpuInstanceSetVgpuHeterogeneousMode, on chips that time-slice inside GPU instances.
        why = (
            "with MIG on mixed-size mode is set for each GPU instance, which aliquot does not do: without it each size "
            "gets GPU instances of its own"
        )
    elif mig:
        why = f"{table.name} has no mixed-size mode while MIG is on: a GPU instance carries one vGPU"
    elif not table.mixed_size or not table.sriov:
        # NVIDIA AI Enterprise, "Heterogeneous vGPU": Turing and later, or Volta and later, by release.
        why = f"aliquot does not know the places of mixed-size mode on {table.name}, whatever its driver may do"
    return RuleRefusal("MIXED_SIZE", why) if why else None


RULES: tuple[Callable[[VgpuTable, Types, bool], RuleRefusal | None], ...] = (
    same_backing,
    equal_size,
    max_vgpus,
    mixed_size,
)


def refusals(table: VgpuTable, types: Types, *, mixed: bool) -> Iterator[RuleRefusal]:
    """Why these vGPUs cannot be together on one GPU, most telling rule first. Empty if no rule forbids them."""
    for rule in RULES:
        refusal = rule(table, types, mixed)
        if refusal is not None:
            yield refusal


def enough_functions(functions: Sequence[str], count: int, why: str = "") -> RuleRefusal | None:
    """One virtual function carries one vGPU."""
    if count > len(functions):
        return RuleRefusal("NO_FUNCTION", f"{count} vGPUs asked, {len(functions)} virtual functions can carry one{why}")
    return None


def count_types(types: Iterable[VgpuType]) -> Types:
    """Each type once, with how many there are: biggest first, then by its number."""
    found: dict[str, list[VgpuType]] = {}
    for each in types:
        found.setdefault(each.name, []).append(each)
    order = sorted(found.values(), key=lambda same: (-same[0].fb_mib, same[0].id or 0, same[0].name))
    return [(same[0], len(same)) for same in order]


def counts_by_name(types: Types) -> dict[str, int]:
    """Full names by number."""
    return {t.name: n for t, n in types}


def types_text(types: Types) -> str:
    return counts_text(counts_by_name(types))
