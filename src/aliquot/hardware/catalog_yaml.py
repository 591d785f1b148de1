"""A recorded geometry table in the schema of ``catalog/mig/*.yaml``, with its provenance."""

from __future__ import annotations

from typing import Any

from aliquot.core.model.catalog import ComputeProfile, Family, Profile
from aliquot.hardware.nvml.describe import GpuDescription
from aliquot.hardware.nvml.profiles import GpuProfileRow

_HEAD = "# MIG geometry table. Schema, units, source tags and confidence words: see ../README.md\n"
_UNITS = {"eighths": "1/8 of the memory", "quarters": "1/4 of the memory"}


def to_yaml(found: GpuDescription, family: Family, date: str) -> str:
    """Return the text of the file. ``date`` is the day of the recording (ISO)."""
    import yaml

    body = yaml.safe_dump(
        document(found, family, date), sort_keys=False, default_flow_style=None, width=10_000, allow_unicode=True
    )
    return _HEAD + str(body)


def document(found: GpuDescription, family: Family, date: str) -> dict[str, Any]:
    """Return the file as data."""
    gpu, has_placements = found.gpu, all(r.placements for r in found.rows)
    placements = "captured" if has_placements else "estimate"
    rows = {r.id: r for r in found.rows}
    return {
        "schema": 1,
        "family": family.name,
        "title": gpu.product.removeprefix("NVIDIA "),
        "architecture": family.architecture,
        "products": [_product(found)],
        "geometry": {
            "memory_slices": family.memory_slices,
            "compute_slices": family.compute_slices,
            "placement_unit": _UNITS.get(family.slot_model, "as the driver counts placements"),
            "slot_model": family.slot_model,
            "confidence": placements,
        },
        "sm_total": None,
        "sm_total_confidence": "unknown",
        "engine_totals": dict(family.engine_totals),
        "driver": {"min": None, "confidence": "unknown"},
        "mode": {
            "change_needs_gpu_reset": family.mode.change_needs_gpu_reset,
            "mode_survives_reboot": family.mode.mode_survives_reboot,
            "instances_survive_reboot": False,
            "confidence": "vendor-doc",
        },
        "rules": [{"kind": r.kind, "reason": r.reason} for r in family.rules],
        "profiles": [_profile(p, rows[p.id], found) for p in family.profiles],
        "notes": [f"recorded from {gpu.product} with driver {found.driver}, NVML {found.nvml}, on {date}"],
        "sources": [{"tag": "capture", "what": f"aliquot catalog record, driver {found.driver}, {date}"}],
    }


def _product(found: GpuDescription) -> dict[str, Any]:
    return {
        "pci_device": found.gpu.pci_device,
        "name": found.gpu.product,
        "memory_mib": found.memory_mib,
        "sm": None,
        "form": None,
        "subsystems": [found.gpu.subsystem[:6]],
        "memory_confidence": "captured" if found.memory_mib else "unknown",
    }


def _profile(profile: Profile, row: GpuProfileRow, found: GpuDescription) -> dict[str, Any]:
    observed = profile.id in found.compute
    return {
        "id": profile.id,
        "name": profile.name,
        "nvml_index": profile.nvml_index,
        "nvml_name": found.index_names.get(profile.nvml_index),
        "max_instances": profile.max_instances,
        "memory_gib_listed": f"{row.memory_mib / 1024:.2f}",
        "memory_mib": row.memory_mib,
        "sm": row.sm,
        "engines": dict(row.engines),
        "p2p": row.p2p,
        "compute_slices": profile.compute_slices,
        "memory_slices": profile.size,
        "placements": {"starts": list(profile.starts), "size": profile.size},
        "attributes": list(profile.attributes),
        "gfx": row.gfx,
        "confidence": {
            **dict.fromkeys(("ids", "memory", "sm", "engines", "max"), "captured"),
            "placements": "captured" if row.placements else "estimate",
        },
        "compute_instances": [_compute(c, "captured" if observed else "derived") for c in profile.compute],
    }


def _compute(compute: ComputeProfile, confidence: str) -> dict[str, Any]:
    return {
        "id": compute.id,
        "name": compute.name,
        "nvml_index": compute.nvml_index,
        "max_instances": compute.max_instances,
        "sm": compute.sm,
        "compute_slices": compute.compute_slices,
        "default": compute.default,
        "placements": {"starts": list(compute.starts), "size": compute.size},
        "confidence": dict.fromkeys(("ids", "sm", "placements"), confidence),
    }
