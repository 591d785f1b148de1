"""docs/reference/catalog.md: the profiles and vGPU types of GPUs, from the reviewed tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tools.docs.text import joined, made, table

ROOT = Path(__file__).resolve().parents[2] / "catalog"
Row = dict[str, Any]


def page() -> str:
    """Return the whole page."""
    return joined([*_head(), *_mig(), *_vgpu()])


def _read(folder: str) -> list[Row]:
    return [yaml.safe_load(path.read_text()) for path in sorted((ROOT / folder).glob("*.yaml"))]


def _head() -> Iterator[str]:
    yield from (
        "# Catalog: profiles and vGPU types of each GPU",
        "",
        made("catalog.md", "catalog/mig and catalog/vgpu"),
        "",
    )
    yield "The profiles, placements and vGPU types of each GPU, and how certain each fact is. For the sources, the"
    yield "meaning of the confidence words and disagreements between sources, see"
    yield "[catalog/README.md](../../catalog/README.md). On a real GPU Aliquot reads the driver's tables;"
    yield "`aliquot catalog check` lists the differences."
    yield ""


def _mig() -> Iterator[str]:
    families = _read("mig")
    yield from (f"## MIG: {len(families)} families", "")
    for family in families:
        yield from _family(family)


def _family(family: Row) -> Iterator[str]:
    geometry = family["geometry"]
    yield f"### {family['title']}"
    yield ""
    names = dict.fromkeys(p["name"].removeprefix("NVIDIA ") for p in family["products"])
    yield f"`{family['family']}`, {family['architecture']}: {', '.join(f'`{name}`' for name in names)}."
    driver = (family.get("driver") or {}).get("min")
    slices = f"{geometry['memory_slices']} memory slices, {geometry['compute_slices']} compute slices"
    yield f"{slices} ({geometry['confidence']})" + (f"; driver {driver} or later." if driver else ".")
    yield ""
    rows = []
    for profile in family["profiles"]:
        places = profile.get("placements") or {}
        starts = ",".join(map(str, places.get("starts") or ()))
        where = f"{{{starts}}}:{places.get('size')}" if starts else "unknown"
        known = profile.get("confidence") or {}
        words = ", ".join(dict.fromkeys(map(str, known.values() if isinstance(known, dict) else [known])))
        number = profile["id"] if profile.get("id") is not None else f"? (guess {profile.get('id_guess')})"
        rows.append(
            (
                f"`{profile['name']}`",
                number,
                profile["max_instances"],
                profile.get("memory_mib") or "?",
                profile.get("sm") or "?",
                f"`{where}`",
                words,
            )
        )
    yield from table(("profile", "id", "most", "MiB", "SM", "placements", "sources"), rows)
    rules = [rule for rule in family.get("rules") or () if rule["kind"] != "info"]
    if rules:
        yield ""
        yield from (f"- {rule.get('reason', '')} (`{rule['kind']}`)" for rule in rules)
    yield ""


def _vgpu() -> Iterator[str]:
    boards = _read("vgpu")
    yield from (f"## vGPU types: {len(boards)} GPUs", "")
    yield "The number is the kernel's `nvidia-NNN`. A type without a public number has a `?`, and is never created."
    yield "*Most* is the maximum per GPU if all vGPUs have one size, *mixed* the maximum in mixed-size mode, and"
    yield "*per VM* the maximum in one VM."
    yield ""
    for board in boards:
        yield from _board(board)


def _board(board: Row) -> Iterator[str]:
    sriov = board.get("sriov") or {}
    functions = sriov.get("total_vfs") or (f"at least {sriov.get('at_least')}" if sriov.get("at_least") else "unknown")
    yield f"### {board['name']}: vGPU"
    yield ""
    if sriov.get("capable"):
        mixed = "yes" if board.get("mixed_size") else "no"
        yield f"Virtual functions: {functions} ({sriov.get('confidence', 'unknown')}). Mixed sizes: {mixed}."
    else:
        yield "No virtual functions: vGPUs are mdevs of the GPU itself."
    yield ""
    rows = []
    for each in board["types"]:
        known = each.get("confidence") or {}
        words = ", ".join(dict.fromkeys(map(str, known.values())))
        inside = (
            f"in `{each['mig']['profile']}`"
            if isinstance(each.get("mig"), dict) and each["mig"].get("profile")
            else each["kind"]
        )
        short = each["name"].removeprefix("NVIDIA ")
        rows.append(
            (
                f"`{short}`",
                each["id"] if each.get("id") is not None else "?",
                each.get("fb_mib") or "?",
                each.get("max") or "?",
                each.get("max_mixed") or "",
                each.get("per_vm") or "?",
                inside,
                words,
            )
        )
    yield from table(("type", "number", "MiB", "most", "mixed", "per VM", "kind", "sources"), rows)
    yield ""
