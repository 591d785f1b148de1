"""Devices and counters of the GPUs in the cases, from the catalog of geometries."""

from __future__ import annotations

import json
from typing import Any

from aliquot.core.model.catalog import Family, Profile, family
from support.schedulercases import Table

JSON = dict[str, Any]
DOMAIN = "gpu.nvidia.com"
PARENT = f"{DOMAIN}/parentUUID"
PRODUCTS = {"a30": "a30-24gb", "a100": "a100-40gb", "h100": "h100-80gb-sxm"}


def tables() -> dict[str, Table]:
    """Return the table of each product, and one of whole GPUs that share nothing."""
    found = {name: _table(name, family(key)) for name, key in PRODUCTS.items()}
    return {**found, "whole": _whole()}


def profile_names(table: str) -> list[str]:
    """Return the profiles of a product, without those for media and graphics."""
    return [profile.name for profile in family(PRODUCTS[table]).plain_profiles]


def geometry_size(table: str) -> int:
    """Return how many of the smallest partitions a product has."""
    return family(PRODUCTS[table]).compute_slices


def _table(name: str, geometry: Family) -> Table:
    counters = {f"memory-slice-{number}": "1" for number in range(geometry.memory_slices)}
    counters["compute-slices"] = str(geometry.compute_slices)
    counters["copy-engines"] = str(geometry.engine_totals["ce"])
    counters["jpeg-engines"] = str(geometry.engine_totals["jpeg"])
    devices = [
        json.dumps(_device(name, profile, start))
        for profile in geometry.profiles
        if not profile.gfx
        for start in profile.starts
    ]
    return Table(counters, tuple(devices))


def _device(product: str, profile: Profile, start: int) -> JSON:
    takes = {f"memory-slice-{number}": "1" for number in range(start, start + profile.size)}
    takes["compute-slices"] = str(profile.compute_slices)
    takes |= {f"{name}-engines": str(profile.engines[key] or 0) for name, key in (("copy", "ce"), ("jpeg", "jpeg"))}
    text = profile.name.replace(".", "").replace("+", "-")
    return {
        "name": f"gpu-#-mig-{text}-{start}",
        "attributes": {
            "type": {"string": "mig"},
            "profile": {"string": profile.name},
            "parentUUID": {"string": "GPU-#"},
            "productName": {"string": product},
            "driverVersion": {"version": "570.86.15"},
        },
        "capacity": {"memory": {"value": f"{profile.memory_mib or 1024}Mi"}},
        "consumesCounters": [
            {"counterSet": "gpu-#", "counters": {key: {"value": value} for key, value in takes.items() if value != "0"}}
        ],
    }


def _whole() -> Table:
    """Return GPUs without partitions, one device each, which differ in version, memory and attributes."""

    def device(version: str, memory: str, **more: JSON) -> str:
        attributes = {"type": {"string": "gpu"}, "uuid": {"string": "GPU-#"}, "driverVersion": {"version": version}}
        return json.dumps({"name": "gpu-#", "attributes": attributes | more, "capacity": {"memory": {"value": memory}}})

    numa: list[JSON] = [{"resource.kubernetes.io/numaNode": {"int": number}} for number in range(2)]
    return Table(
        {},
        (
            device("570.86.15", "40Gi", **numa[0]),
            device("570.86.15", "40Gi", **numa[1]),
            device("535.104.5", "24Gi", **numa[0]),
            device("550.0.0-rc.1", "80Gi", **numa[1], coherent={"bool": True}),
        ),
    )
