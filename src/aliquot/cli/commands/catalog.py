"""``aliquot catalog``: the tables of GPU profiles, compared with this host and recorded from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aliquot.cli.commands import profiles
from aliquot.cli.framework import file_output as documents
from aliquot.cli.framework import output
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.family_names import find_family
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family

if TYPE_CHECKING:
    from aliquot.hardware.catalog_recorder import CatalogCheckReport


def run(args: Args) -> int:
    return {"list": _list, "show": _show, "check": _check, "record": _record}[args.verb](args)


def _list(args: Args) -> int:
    families = [catalog.family(name) for name in catalog.family_names()]
    plain = [{"name": f.name, "title": f.title, "products": [p.name for p in f.products]} for f in families]
    rows = [("family", "GPUs", "memory slices", "driver")]
    rows += [(f.name, f.title, str(f.memory_slices), f.driver_min or "?") for f in families]
    output.emit(output.build("Catalog", families=plain), args.output, "\n".join(draw.table(rows, indent="")))
    return 0


def _show(args: Args) -> int:
    family = find_family(args.family)
    facts = {
        "name": family.name,
        "title": family.title,
        "architecture": family.architecture,
        "memory_slices": family.memory_slices,
        "compute_slices": family.compute_slices,
        "driver_min": family.driver_min,
        "mode": family.mode,
        "products": family.products,
        "rules": family.rules,
        "profiles": [profiles.plain_profile(p) for p in family.profiles],
    }
    output.emit(output.build("Family", **facts), args.output, _text(family))
    return 0


def _text(family: Family) -> str:
    mode = "a GPU reset" if family.mode.change_needs_gpu_reset else "no reset"
    survives = "survives" if family.mode.mode_survives_reboot else "is lost at"
    lines = [
        f"{family.name}   {family.title}   {family.architecture}",
        f"  {family.memory_slices} memory slices, {family.compute_slices} compute slices; "
        f"driver {family.driver_min or '?'} or later",
        f"  a change of MIG mode needs {mode}; the mode {survives} a reboot",
        *(f"  {p.name}  {p.pci_device}" for p in family.products),
        *draw.table(profiles.rows(family, None)),
        *(f"  rule  {r.reason}" for r in family.rules),
    ]
    return "\n".join(lines)


def _check(args: Args) -> int:
    from aliquot.hardware import catalog_recorder as record

    with node.connected(args) as connection:
        report = record.check(connection.nvml)
    document = output.build("CatalogCheck", agrees=report.agrees, **_fields(report))
    output.emit(document, args.output, "\n".join(_sentences(report)) or "no GPU of this node is MIG-capable")
    return 0 if report.agrees else 30


def _fields(report: CatalogCheckReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in report.__struct_fields__}


def _sentences(report: CatalogCheckReport) -> list[str]:
    lines = [f"agrees: {line}" if report.agrees else f"compared: {line}" for line in report.checked]
    lines += [f"differs: {d}" for d in report.differences if not d.note]
    lines += [f"note: {d}" for d in report.differences if d.note]
    return lines + [f"not compared: {line}" for line in report.unchecked]


def _record(args: Args) -> int:
    import time

    from aliquot.hardware import catalog_recorder as record

    with node.connected(args) as connection:
        pci = node.gpu(connection.nvml.read(), args.gpu).pci if args.gpu else None
        text = record.record(connection.nvml, pci, date=time.strftime("%Y-%m-%d"))
    form = "json" if args.output == "json" else "yaml"
    if form == "json":
        import yaml

        text = output.encoded(yaml.safe_load(text), form)
    return documents.write(text, form, args)
