"""The geometry tables of this node: the catalog's, corrected by the driver's lists.

Profiles are matched by id. Names change with drivers, so a different name becomes the profile's name, and the catalog's
an alias. Different ids, counts, engines or placements are replaced by the driver's, with a note. A GPU that the catalog
lacks gets a whole table from NVML. Memory is never compared: the values of drivers differ by a few slices of 64 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family, Profile, Rule
from aliquot.core.model.inventory import Mig
from aliquot.hardware.nvml.profiles import GpuProfileRow, architecture, memory_mib, read_rows
from aliquot.hardware.nvml.session import NvmlSession

_GUESSED = ("unknown", "estimate")


class GpuProduct(Protocol):
    """The part of a GPU that a table belongs to."""

    pci_device: str
    subsystem: str
    product: str
    handle: object


class ProfileSource(Protocol):
    """A reader of the driver's own lists: through NVML or through nvidia-smi."""

    def rows(self, gpu: GpuProduct, *, placements: bool) -> tuple[GpuProfileRow, ...]:
        """Return all GPU instance profiles of a GPU; none if the driver lists none in its current mode."""
        ...

    def architecture(self, gpu: GpuProduct) -> str:
        """Return the architecture in lowercase, or ""."""
        ...

    def memory_mib(self, gpu: GpuProduct) -> int | None: ...


class SessionSource:
    """The lists of an NVML session."""

    def __init__(self, session: NvmlSession) -> None:
        self._session = session

    def rows(self, gpu: GpuProduct, *, placements: bool) -> tuple[GpuProfileRow, ...]:
        return read_rows(self._session, gpu.handle, placements=placements)

    def architecture(self, gpu: GpuProduct) -> str:
        return architecture(self._session, gpu.handle)

    def memory_mib(self, gpu: GpuProduct) -> int | None:
        return memory_mib(self._session, gpu.handle)


class SettledTable(msgspec.Struct):
    family: str | None
    changed: Family | None
    notes: tuple[str, ...]
    with_placements: bool


class Tables:
    """The tables of one session, determined once per distinct product, and again when MIG mode
    first allows placements.
    """

    def __init__(self, source: ProfileSource) -> None:
        self._source = source
        self._settled: dict[tuple[str, str, str], SettledTable] = {}

    def for_gpu(self, gpu: GpuProduct, mig: Mig) -> Family | None:
        """Return the table of a GPU, or None."""
        if not mig.capable:
            return None
        settled = self._settled_for(gpu, mig)
        return settled.changed or (catalog.family(settled.family) if settled.family else None)

    def changed(self) -> tuple[Family, ...]:
        """Return the tables that differ from the catalog's, for ``Inventory.tables``."""
        return tuple({s.changed.name: s.changed for s in self._settled.values() if s.changed is not None}.values())

    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(note for s in self._settled.values() for note in s.notes))

    def _settled_for(self, gpu: GpuProduct, mig: Mig) -> SettledTable:
        key = (gpu.pci_device, gpu.subsystem, gpu.product)
        known = self._settled.get(key)
        if known is None or (mig.enabled and not known.with_placements):
            self._settled[key] = known = self._settle(gpu, mig)
        return known

    def _settle(self, gpu: GpuProduct, mig: Mig) -> SettledTable:
        rows = self._source.rows(gpu, placements=mig.enabled)
        name = catalog.family_of_device(gpu.pci_device, gpu.subsystem) or _family_of_name(gpu.product)
        if name is None:
            return self._uncataloged(gpu, rows, mig.enabled)
        family = catalog.family(name)
        changed, notes = correct_family(family, rows)
        if changed is None:
            return SettledTable(name, None, notes, mig.enabled)
        for other in self._settled.values():
            taken = other.changed is not None and other.changed.name == name and other.changed != changed
            if taken or (other.family == name and other.changed is None):
                changed = msgspec.structs.replace(changed, name=f"{name}-{gpu.pci_device}")
        return SettledTable(changed.name, changed, notes, mig.enabled)

    def _uncataloged(self, gpu: GpuProduct, rows: tuple[GpuProfileRow, ...], enabled: bool) -> SettledTable:
        from aliquot.hardware.nvml.table_from_rows import family_from_rows

        name = f"nvml-{gpu.pci_device}"
        if not rows:
            note = f"GPUs {gpu.pci_device} are not in the catalog and this driver lists their profiles only in MIG mode"
            return SettledTable(None, None, (note,), enabled)
        kind = self._source.architecture(gpu)
        family = family_from_rows(name, rows, kind, gpu.pci_device, self._source.memory_mib(gpu))
        note = f"GPUs {gpu.pci_device} are not in the catalog: their table was read from the driver"
        if "placements" in family.estimates:
            note += "; placements are an estimate until MIG mode is on"
        return SettledTable(name, family, (note,), enabled)


def _family_of_name(product: str) -> str | None:
    """Return the family of a platform device. A GPU on a system on chip has no PCI id in the catalog, only a name."""
    for device in catalog.devices():
        if not device.pci_device.startswith("0x") and device.name.partition(" (")[0] == product:
            return device.mig_family
    return None


def correct_family(family: Family, rows: tuple[GpuProfileRow, ...]) -> tuple[Family | None, tuple[str, ...]]:
    """Return the family with the driver's numbers, or None if nothing differs, and a sentence for each kind of
    difference (``aliquot catalog check`` shows each number). Without rows (R535 with MIG mode off) there is nothing to
    compare.
    """
    if not rows:
        return None, ()
    by_id, by_index = {r.id: r for r in rows}, {r.index: r for r in rows}
    profiles: list[Profile] = []
    missing: dict[str, list[str]] = {}
    differing: list[str] = []
    unknown: list[str] = []
    matched: set[int] = set()
    for profile in family.profiles:
        guessed = profile.confidence.get("ids") in _GUESSED
        row = by_index.get(profile.nvml_index) if guessed else by_id.get(profile.id)
        if row is None:
            missing.setdefault(profile.since_driver or "", []).append(profile.name)
            continue
        matched.add(row.id)
        corrected_profile, differs = _with_row(profile, row)
        profiles.append(corrected_profile)
        differing += [profile.name] if differs else []
    for row in rows:
        if row.id not in matched:
            from aliquot.hardware.nvml.table_from_rows import profile_from_row

            profiles.append(profile_from_row(row, rows, family.memory_slices))
            unknown.append(f"{row.name} (id {row.id})")
    notes = tuple(f"{family.name}: {line}" for line in _differences(missing, differing, unknown))
    if tuple(profiles) == family.profiles:
        return None, notes
    rules = _renamed_rules(family, profiles)
    return msgspec.structs.replace(family, profiles=tuple(profiles), rules=rules, source="nvml"), notes


def _renamed_rules(family: Family, profiles: Sequence[Profile]) -> tuple[Rule, ...]:
    """Return the family's rules with the current names of its profiles."""
    names = {old.name: new.name for old in family.profiles for new in profiles if old.nvml_index == new.nvml_index}
    return tuple(
        msgspec.structs.replace(
            rule,
            profiles=tuple(names.get(n, n) for n in rule.profiles),
            exceptions=tuple(names.get(n, n) for n in rule.exceptions),
        )
        for rule in family.rules
    )


def _differences(missing: Mapping[str, list[str]], differing: list[str], unknown: list[str]) -> Iterator[str]:
    """Return the sentences about differences. ``missing`` are the profiles that the driver does not offer, by the
    branch that does.
    """
    for since, names in missing.items():
        needs = f" ({'it needs' if len(names) == 1 else 'they need'} {since} or later)" if since else ""
        yield f"this driver does not offer {', '.join(names)}{needs}"
    if differing:
        profiles = ", ".join(differing)
        yield f"the driver's values for {profiles} differ from the catalog and are used: aliquot catalog check"
    if unknown:
        many = "is not in the catalog, its row is" if len(unknown) == 1 else "are not in the catalog, their rows are"
        yield f"{', '.join(unknown)} {many} the driver's"


def _with_row(profile: Profile, row: GpuProfileRow) -> tuple[Profile, bool]:
    """Return one profile with the driver's numbers, and whether any of them differs."""
    known = {e: n if n is None else row.engines.get(e, n) for e, n in profile.engines.items()}
    driver_values: dict[str, object] = {
        "id": row.id,
        "max_instances": row.count,
        "compute_slices": row.slices,
        "engines": known,
    }
    if row.placements:
        driver_values |= {"starts": tuple(p.start for p in row.placements), "size": row.placements[0].size}
    changes = {field: value for field, value in driver_values.items() if getattr(profile, field) != value}
    differs = bool(changes)
    if row.name and row.name != profile.name:
        changes["name"] = row.name
        changes["aliases"] = (*profile.aliases, profile.name)
        changes["compute"] = tuple(
            msgspec.structs.replace(c, name=c.name.replace(profile.name, row.name)) for c in profile.compute
        )
    return (msgspec.structs.replace(profile, **changes) if changes else profile), differs
