"""Facts besides the geometry, as far as nvidia-smi reports them; the other values of a MIG device come from its
profile.
"""

from __future__ import annotations

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model.facts import Facts, GpuFacts, MigDevice
from aliquot.core.model.ids import pci_address
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance
from aliquot.hardware.nvidia_smi.command import Smi
from aliquot.hardware.nvidia_smi.reader import SmiReading
from aliquot.hardware.nvml.tables import Tables


class ComputeCapabilities:
    """Compute capabilities. A GPU's never changes, so each is read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[int, int]] = {}

    def read(self, smi: Smi, reading: SmiReading) -> dict[str, tuple[int, int]]:
        """Return the compute capabilities of the GPUs in a reading, by PCI address. The next read
        repeats what failed.
        """
        gpus = [(each.pci, each.uuid) for each in reading.log.gpus]
        if not self._known.keys() >= set(gpus):
            found = _capabilities(smi)
            self._known |= {(pci, uuid): found[pci] for pci, uuid in gpus if any(found.get(pci, ()))}
        return {pci: self._known[pci, uuid] for pci, uuid in gpus if (pci, uuid) in self._known}


def facts_from_reading(smi: Smi, reading: SmiReading, tables: Tables, cache: ComputeCapabilities) -> Facts:
    """Return the facts of the GPUs and MIG devices in a reading. nvidia-smi does not report NUMA nodes or a function's
    class; a scan of the bus does.
    """
    capabilities = cache.read(smi, reading)
    present = {g.pci: g for g in reading.gpus if not g.lost}
    gpus = tuple(
        GpuFacts(r.pci, r.memory_mib, capabilities.get(r.pci, (0, 0)), vgpu=r.guest)
        for r in reading.log.gpus
        if r.pci in present
    )
    devices = tuple(d for gpu in present.values() for d in _devices(gpu, tables))
    return Facts(reading.log.driver, _version_pair(reading.log.cuda), gpus, devices)


def _capabilities(smi: Smi) -> dict[str, tuple[int, int]]:
    """Return compute capabilities by PCI address; none if this nvidia-smi does not know the field (before R510)."""
    result = smi.run("--query-gpu=pci.bus_id,compute_cap", "--format=csv,noheader")
    rows = [line.split(", ") for line in result.out.splitlines()] if result.status == 0 else []
    return {pci_address(row[0]): _version_pair(row[1]) for row in rows if len(row) == 2}


def _version_pair(text: str) -> tuple[int, int]:
    major, _, minor = text.strip().partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _devices(gpu: Gpu, tables: Tables) -> list[MigDevice]:
    pairs = [(i, c) for i in gpu.instances for c in i.compute_instances]
    return [_device(gpu, i, c, number, tables) for number, (i, c) in enumerate(pairs)]


def _device(gpu: Gpu, instance: GpuInstance, compute: ComputeInstance, number: int, tables: Tables) -> MigDevice:
    table = next((t for t in tables.changed() if t.name == gpu.family), None) or catalog.family(gpu.family or "")
    profile = table.by_id.get(instance.profile_id)
    bare = MigDevice(
        uuid=compute.uuid,
        gpu=gpu.pci,
        instance=instance.id,
        compute_instance=compute.id,
        profile=compute.profile,
        memory_mib=(profile.memory_mib or 0) if profile is not None else 0,
        multiprocessors=-1,
        gi_slices=profile.compute_slices if profile is not None else -1,
        ci_slices=compute.place.size,
        index=number,
    )
    if profile is None:
        return bare
    kind = next((c for c in profile.compute if c.id == compute.profile_id), None)
    names = {"ce": "copy", "dec": "decoder", "enc": "encoder", "jpeg": "jpeg", "ofa": "ofa"}
    engines = {word: profile.engines.get(key) or 0 for key, word in names.items()}
    sm = (kind.sm if kind is not None else None) or (profile.sm if kind is not None and kind.default else None)
    return msgspec.structs.replace(bare, multiprocessors=-1 if sm is None else sm, **engines)
