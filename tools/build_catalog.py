"""Make the packaged JSON (``src/aliquot/core/model/data``) from the reviewed YAML (``catalog``).

Usage: python tools/build_catalog.py [--check]     exit 1 if --check finds a difference
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "src/aliquot/core/model/data"
ID_OF_UNKNOWN = 1000
"""Profiles without a published id get 1000 + their NVML index: no real id is that large."""


def profile(row: dict[str, Any]) -> dict[str, Any]:
    confidence = dict(row["confidence"])
    known = row["id"] is not None
    if not known:
        confidence["ids"] = "estimate" if "id_guess" in row else "unknown"
    return {
        "id": row["id"] if known else row.get("id_guess", ID_OF_UNKNOWN + row["nvml_index"]),
        **{k: row[k] for k in ("name", "nvml_index", "max_instances", "memory_mib", "sm", "engines", "compute_slices")},
        "starts": row["placements"]["starts"],
        "size": row["placements"]["size"],
        "attributes": row["attributes"],
        **({"aliases": row["aliases"]} if "aliases" in row else {}),
        "since_driver": row.get("since_driver"),
        "confidence": confidence,
        "compute": [
            {
                **{k: c[k] for k in ("id", "name", "nvml_index", "max_instances", "sm", "compute_slices", "default")},
                "starts": c["placements"]["starts"],
                "size": c["placements"]["size"],
            }
            for c in row["compute_instances"]
        ],
    }


def family(doc: dict[str, Any]) -> dict[str, Any]:
    profiles = [profile(row) for row in doc["profiles"]]
    weak = {"estimate", "unknown", "inferred", "secondary"}
    groups = sorted({g for p in profiles for g, word in p["confidence"].items() if word in weak})
    return {
        "name": doc["family"],
        **{k: doc[k] for k in ("title", "architecture", "engine_totals", "sm_total")},
        **{k: doc["geometry"][k] for k in ("memory_slices", "compute_slices", "slot_model")},
        "driver_min": doc["driver"]["min"],
        "mode": {k: doc["mode"][k] for k in ("change_needs_gpu_reset", "mode_survives_reboot")},
        "rules": [
            {
                "kind": r["kind"],
                "reason": r["reason"],
                "profiles": r.get("profiles", []),
                "exceptions": r.get("except", []),
                "count": r.get("count", 0),
            }
            for r in doc["rules"]
            if r["kind"] != "info"
        ],
        "products": [
            {k: p[k] for k in ("pci_device", "name", "memory_mib")} | {"subsystems": p.get("subsystems", [])}
            for p in doc["products"]
        ],
        "profiles": profiles,
        "estimates": groups,
    }


def files() -> dict[str, bytes]:
    """Return file name to content, for every file that the package should have."""
    out: dict[str, bytes] = {}
    docs = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "catalog/mig").glob("*.yaml"))]
    for doc in docs:
        out[f"{doc['family']}.json"] = encode(family(doc))
    rows = yaml.safe_load((ROOT / "catalog/pci-ids.yaml").read_text())["devices"]
    listed = {row["pci_device"] for row in rows}
    rows += [
        {**product, "mig_family": doc["family"], "architecture": doc["architecture"]}
        for doc in docs
        for product in doc["products"]
        if product["pci_device"] not in listed
    ]
    keys = ("pci_device", "name", "mig_family", "architecture")
    out["index.json"] = encode([{k: row[k] for k in keys} | {"subsystems": row.get("subsystems", [])} for row in rows])
    return out | vgpu_files()


def vgpu_type(row: dict[str, Any]) -> dict[str, Any]:
    mig = row.get("mig") or {}
    return {
        **{k: row[k] for k in ("name", "series", "kind", "fb_mib", "max", "id", "per_vm", "confidence")},
        "mixed": row.get("mixed_placements", []),
        "profile_id": mig.get("gi_profile_id"),
        "profile": mig.get("profile", ""),
        "per_instance": mig.get("max_per_gi", 0),
        **description(row),
    }


def description(row: dict[str, Any]) -> dict[str, Any]:
    """Return heads, frame rate limit and resolution of the mdev description; those of an A2 if no source has them."""
    heads, frl, res = {
        "A": (1, 60, "1280x1024"),
        "B": (4, 45, "5120x2880"),
        "Q": (4, 60, "5120x2880" if row["fb_mib"] <= 1024 else "7680x4320"),
    }.get(row["series"], (1, 60, "4096x2400"))
    return {"heads": row.get("heads", heads), "frl": row.get("frl", frl), "max_res": row.get("max_res", res)}


def vgpu_table(doc: dict[str, Any]) -> dict[str, Any]:
    sriov = doc["sriov"]
    return {
        **{k: doc[k] for k in ("name", "pci_device", "architecture", "mixed_size", "mig_family")},
        "subsystem": doc["subsystem"] or "",
        "prefix": doc["type_prefix"],
        "region": doc["placement_region"],
        "sriov": sriov["capable"],
        "total_vfs": sriov["total_vfs"],
        "at_least": sriov["at_least"] or 0,
        "first_vf": sriov["first_vf_function"],
        "types": [vgpu_type(row) for row in doc["types"]],
    }


def vgpu_files() -> dict[str, bytes]:
    """Build the vGPU types: one file per product and an index by PCI id."""
    out: dict[str, bytes] = {}
    index = []
    for path in sorted((ROOT / "catalog/vgpu").glob("*.yaml")):
        made = vgpu_table(yaml.safe_load(path.read_text()))
        out[f"vgpu/{path.stem}.json"] = encode(made)
        index.append({"file": path.stem, **{k: made[k] for k in ("name", "pci_device", "subsystem", "prefix")}})
    return out | {"vgpu/index.json": encode(index + _siblings(index))}


def _siblings(index: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return boards that share another's vGPU types (A30X has A30's), found by the prefix of their type names."""
    by_prefix = {row["prefix"]: row for row in index}
    listed = {row["pci_device"] for row in index}
    devices = yaml.safe_load((ROOT / "catalog/pci-ids.yaml").read_text())["devices"]
    return [
        {**by_prefix[row["vgpu_type_prefix"]], "name": row["name"], "pci_device": row["pci_device"], "subsystem": ""}
        for row in devices
        if row["pci_device"] not in listed and row["vgpu_type_prefix"] in by_prefix
    ]


def encode(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _same(path: Path, body: bytes) -> bool:
    return path.is_file() and path.read_bytes() == body


def main() -> int:
    wanted = files()
    if "--check" in sys.argv[1:]:
        stale = sorted(name for name, body in wanted.items() if not _same(DATA / name, body))
        extra = sorted({str(p.relative_to(DATA)) for p in DATA.rglob("*.json")} - set(wanted))
        print(
            "\n".join([f"differs: {n}" for n in stale] + [f"unknown: {n}" for n in extra]) or "catalog data is current"
        )
        return 1 if stale or extra else 0
    (DATA / "vgpu").mkdir(parents=True, exist_ok=True)
    for name, body in wanted.items():
        (DATA / name).write_bytes(body)
    print(f"wrote {len(wanted)} files")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
