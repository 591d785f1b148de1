"""The implementation of ``catalog check`` and ``catalog record``: compares the catalog's table with a node's, and
writes a new table from a node.

A driver lists placements only with MIG mode on, and compute instance profiles only of existing instances. Values that
could not be read are reported as unchecked, and a recorded table marks them as estimates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from aliquot.core.engine.ports import GpuDriver
from aliquot.core.model import catalog
from aliquot.core.model.catalog import ComputeProfile, Family, Profile
from aliquot.errors import BlockedError
from aliquot.hardware.nvml.backend import NvmlBackend
from aliquot.hardware.nvml.describe import GpuDescription
from aliquot.hardware.nvml.profiles import ComputeRow, GpuProfileRow
from aliquot.hardware.nvml.table_from_rows import compute_from_rows, family_from_rows


class Difference(msgspec.Struct, frozen=True):
    """A number on which the catalog and the node disagree."""

    family: str
    profile: str
    what: str
    catalog: str
    observed: str = msgspec.field(name="machine")
    note: bool = False
    """For information only: names and memory change with drivers. All other differences mean that the catalog is wrong
    for this node.
    """

    def __str__(self) -> str:
        return f"{self.family} {self.profile}: {self.what} is {self.observed} here, {self.catalog} in the catalog"


class CatalogCheckReport(msgspec.Struct, frozen=True):
    """The result of a check."""

    node: str
    driver: str
    nvml: str
    checked: tuple[str, ...]
    """Sentences that list what was compared."""
    unchecked: tuple[str, ...]
    """Sentences that list what could not be compared."""
    differences: tuple[Difference, ...]

    @property
    def agrees(self) -> bool:
        return all(d.note for d in self.differences)


def check(driver: GpuDriver) -> CatalogCheckReport:
    """Compare the catalog with this node, one GPU per product (one with MIG mode on, if there is one). Raises
    BlockedError without NVML.
    """
    backend = _nvml(driver)
    inventory = backend.read()
    chosen: dict[tuple[str, str], str] = {}
    for gpu in sorted(inventory.gpus, key=lambda g: (not g.mig.enabled, -len(g.instances))):
        if gpu.mig.capable and not gpu.lost:
            chosen.setdefault((gpu.pci_device, gpu.subsystem), gpu.pci)
    checked: list[str] = []
    unchecked: list[str] = []
    differences: list[Difference] = []
    for (device, subsystem), pci in chosen.items():
        found = backend.describe(pci)
        name = catalog.family_of_device(device, subsystem)
        if name is None:
            unchecked.append(f"{found.gpu.product} ({device}) is not in the catalog: aliquot catalog record")
            continue
        if not found.rows:
            unchecked.append(f"{name}: driver {found.driver} lists no profiles while MIG mode is off")
            continue
        family = catalog.family(name)
        checked.append(f"{name}: {len(found.rows)} profiles of {found.gpu.product} at {pci}")
        unchecked += _unchecked(family, found)
        differences += _compare(family, found)
    return CatalogCheckReport(
        node=inventory.node,
        driver=inventory.driver,
        nvml=inventory.nvml,
        checked=tuple(checked),
        unchecked=tuple(unchecked),
        differences=tuple(differences),
    )


def _unchecked(family: Family, found: GpuDescription) -> Iterator[str]:
    if any(row.placements is None for row in found.rows):
        yield f"{family.name}: placements (the driver lists them only to root, and only while MIG mode is on)"
    missing = [p.name for p in family.profiles if p.id not in found.compute]
    if missing:
        yield f"{family.name}: compute instance profiles of {', '.join(missing)} (no instance of them exists)"


def _compare(family: Family, found: GpuDescription) -> Iterator[Difference]:
    rows = {row.id: row for row in found.rows}
    for profile in family.profiles:
        row = rows.pop(profile.id, None)
        if row is None:
            newer = profile.since_driver is not None
            yield Difference(family.name, profile.name, "profile", f"id {profile.id}", "absent", newer)
            continue
        yield from _compare_profile(family, profile, row)
        if profile.id in found.compute:
            yield from _compare_compute(family, profile, found.compute[profile.id])
    for row in rows.values():
        yield Difference(family.name, row.name, "profile", "absent", f"id {row.id}")


def _compare_profile(family: Family, profile: Profile, row: GpuProfileRow) -> Iterator[Difference]:
    def differ(what: str, ours: object, theirs: object, note: bool = False) -> Iterator[Difference]:
        if ours is not None and theirs is not None and ours != theirs:
            yield Difference(family.name, profile.name, what, str(ours), str(theirs), note)

    yield from differ("name", profile.name, row.name or None, True)
    yield from differ("memory (MiB)", profile.memory_mib, row.memory_mib, True)
    yield from differ("NVML index", profile.nvml_index, row.index)
    yield from differ("compute slices", profile.compute_slices, row.slices)
    yield from differ("instances at most", profile.max_instances, row.count)
    yield from differ("SM", profile.sm, row.sm)
    for engine, count in profile.engines.items():
        yield from differ(f"{engine} engines", count, row.engines.get(engine))
    listed = None if row.placements is None else " ".join(map(str, row.placements))
    yield from differ("placements", " ".join(map(str, profile.placements)), listed)


def _compare_compute(family: Family, profile: Profile, rows: Sequence[ComputeRow]) -> Iterator[Difference]:
    def facts(compute_profile: ComputeProfile) -> str:
        placements = " ".join(map(str, compute_profile.placements))
        return f"{compute_profile.compute_slices} slices, at most {compute_profile.max_instances}, at {placements}"

    ours = {c.id: c for c in profile.compute}
    theirs = {c.id: c for c in compute_from_rows(profile.name, profile.compute_slices, tuple(rows))}
    for key in sorted({*ours, *theirs}):
        left = facts(ours[key]) if key in ours else "absent"
        right = facts(theirs[key]) if key in theirs else "absent"
        if left != right:
            yield Difference(family.name, profile.name, f"compute instance profile {key}", left, right)


def record(driver: GpuDriver, pci: str | None = None, *, date: str, name: str | None = None) -> str:
    """Return a catalog file (YAML) for the GPU at ``pci``, else for the first MIG-capable GPU. ``date`` (ISO) goes into
    its provenance. Raises BlockedError if the driver lists nothing.
    """
    from aliquot.hardware.catalog_yaml import to_yaml

    backend = _nvml(driver)
    inventory = backend.read()
    able = [g for g in inventory.gpus if g.mig.capable and not g.lost and pci in (None, g.pci)]
    if not able:
        raise BlockedError(
            f"no MIG-capable GPU{f' at {pci}' if pci else ' on this node'}",
            code="NOT_CAPABLE",
            next_step="aliquot show",
        )
    able.sort(key=lambda g: not g.mig.enabled)
    found = backend.describe(able[0].pci)
    if not found.rows:
        raise BlockedError(
            f"driver {found.driver} lists no profiles while MIG mode is off",
            code="NO_TABLE",
            next_step=f"enable MIG mode (nvidia-smi -i {able[0].pci} -mig 1), then run it again",
        )
    return to_yaml(found, family_of(found, name), date)


def _nvml(driver: GpuDriver) -> NvmlBackend:
    if not isinstance(driver, NvmlBackend):
        raise BlockedError(
            "tables can be read only through NVML, and this simulated node has no NVML library",
            code="NO_NVML",
            next_step="install gcc, or unset ALIQUOT_BACKEND",
        )
    return driver


def family_of(found: GpuDescription, name: str | None = None) -> Family:
    """Return the table that a description contains."""
    device = found.gpu.pci_device
    known = catalog.family_of_device(device, found.gpu.subsystem)
    family = family_from_rows(
        name or known or f"nvml-{device}", found.rows, found.architecture, device, found.memory_mib
    )
    profiles = tuple(
        msgspec.structs.replace(p, compute=compute_from_rows(p.name, p.compute_slices, found.compute[p.id]))
        if p.id in found.compute
        else p
        for p in family.profiles
    )
    return msgspec.structs.replace(family, profiles=profiles)
