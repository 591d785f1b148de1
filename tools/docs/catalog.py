"""docs/reference/catalog.md: what GPUs can be cut into, from the reviewed tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tools.docs.text import made, table

ROOT = Path(__file__).resolve().parents[2] / "catalog"
Row = dict[str, Any]


def page() -> str:
    """The whole page."""
    return "\n".join([*_head(), *_mig(), *_vgpu()]) + "\n"


def _read(folder: str) -> list[Row]:
    return [yaml.safe_load(path.read_text()) for path in sorted((ROOT / folder).glob("*.yaml"))]


def _head() -> Iterator[str]:
    yield from (
        "# Catalog: what each GPU can be divided into",
        "",
        made("catalog.md", "catalog/mig and catalog/vgpu"),
        "",
    )
    yield "For whoever plans for a GPU that is not at hand, or wants to know how sure a figure is. At the end you"
    yield "know its profiles, places and types. Where the"
    yield "figures come from, what the confidence words mean, and where sources disagree:"
    yield "[catalog/README.md](../../catalog/README.md). On a real GPU the driver's own"
    yield "tables are read, and `aliquot catalog check` says where they differ."
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
    yield f"`{family['family']}`, {family['architecture']}: {', '.join(names)}."
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
        yield from (f"- `{rule['kind']}`: {rule.get('reason', '')}" for rule in rules)
    yield ""


def _vgpu() -> Iterator[str]:
    boards = _read("vgpu")
    yield from (f"## vGPU types: {len(boards)} GPUs", "")
    yield "The number is `nvidia-NNN` of the kernel; `?` where no public source gives it: such a type is listed"
    yield "and never made. *Most* is per GPU, all of one size; *mixed* in"
    yield "mixed-size mode; *per VM* is what the driver allows in one machine."
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
        yield "No virtual functions: mdevs of the GPU itself."
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
