"""Entries that ask for MIG: which GPUs they claim, and what for."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.config.file import ConfigEntry
from aliquot.core.config.select.gpu_text import gpus_text
from aliquot.core.config.select.instances import InstanceProblem, resolve
from aliquot.core.config.select.profile_lookup import families_with_profile, profile_exists, profile_names
from aliquot.core.config.select.selection_report import SelectionReport
from aliquot.core.config.select.selector import packed
from aliquot.core.config.text.node_reader import did_you_mean
from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import DesiredGpu, RuleCode
from aliquot.core.model.inventory import Gpu

Claims = list[tuple[Gpu, DesiredGpu | None]]
"""GPUs with what an entry makes of them; None where that cannot be, which was noted."""


def claims(report: SelectionReport, entry: ConfigEntry, gpus: Sequence[Gpu]) -> tuple[Claims, bool]:
    """The claims of an entry on the GPUs that it is for, and whether it has any say on this node."""
    capable = [gpu for gpu in gpus if gpu.mig.capable]
    able = _incapable(report, entry, [gpu for gpu in gpus if not gpu.mig.capable])
    if not capable:
        _check_names(report, entry)
    by_family: dict[str, list[Gpu]] = {}
    for gpu in capable:
        by_family.setdefault(gpu.family or "", []).append(gpu)
    found: Claims = []
    for members in by_family.values():
        wanted = _wanted(report, entry, members)
        found += [(gpu, wanted) for gpu in members]
    return found, bool(capable) or able


def _incapable(report: SelectionReport, entry: ConfigEntry, gpus: Sequence[Gpu]) -> bool:
    """GPUs that cannot be partitioned: noted under ``all``, blocking where they were named. True if leaving them
    alone is what the entry wants.
    """
    if not gpus:
        return False
    lost = any(gpu.lost for gpu in gpus)
    sentence = f"{gpus_text(gpus)} {'fell off the bus' if lost else 'cannot be partitioned'}"
    if entry.mig and not entry.selector.everything and not report.config.compat:
        rule: RuleCode = "GPU_LOST" if lost else "NOT_CAPABLE"
        report.block(rule, entry, f"{sentence}, but MIG is wanted of it", gpus[0].pci, "aliquot show")
    else:
        report.missing_capability = "can be partitioned"
        report.notes.append(f"{sentence} and {'is' if len(gpus) == 1 else 'are'} left alone")
    return not entry.mig


def _wanted(report: SelectionReport, entry: ConfigEntry, gpus: Sequence[Gpu]) -> DesiredGpu | None:
    """What an entry wants of some GPUs of one family; None if that cannot be, which is noted."""
    if not entry.mig or not entry.instances:
        return DesiredGpu("", entry.mig, ())
    try:
        family = report.inventory.family(gpus[0])
    except KeyError:
        report.block("NO_TABLE", entry, f"no geometry table is known for {gpus_text(gpus)}", gpus[0].pci)
        return None
    instances, problems = resolve(family, entry.instances)
    for problem in problems:
        _problem(report, problem, family, gpus)
    return None if problems else DesiredGpu("", True, instances)


def _problem(report: SelectionReport, problem: InstanceProblem, family: Family, gpus: Sequence[Gpu]) -> None:
    request = problem.request
    next_step = f"aliquot profiles {gpus[0].index}"
    if problem.rule != "UNKNOWN_PROFILE":
        report.block(problem.rule, request, f"{problem.sentence} on {gpus_text(gpus)}", gpus[0].pci, next_step)
        return
    hint = _alternatives(request.text, family)
    others = families_with_profile(report.inventory, request)
    if not others and not report.config.compat:
        report.errors.next_step = next_step
        report.errors.add(request, f"no GPU has a profile {request.text}{hint}")
        return
    where = f"it is a profile of {', '.join(others)}" if others else "no GPU has it"
    have = "has" if len(gpus) == 1 else "have"
    sentence = f"{gpus_text(gpus)} {have} no profile {request.text}: {problem.sentence or where}{hint}"
    report.block(problem.rule, request, sentence, gpus[0].pci, next_step)


def _alternatives(text: str, family: Family) -> str:
    if text.startswith("id:"):
        return f" (ids here: {', '.join(f'{p.id} = {p.name}' for p in family.profiles)})"
    return did_you_mean(text, profile_names(family)) or f" (here: {', '.join(p.name for p in family.profiles)})"


def _check_names(report: SelectionReport, entry: ConfigEntry) -> None:
    """An entry for GPUs that are not here must still name profiles that exist, unless it is for GPUs that the
    catalog does not know either.
    """
    if report.config.compat or not entry.instances:
        return
    if entry.selector.filters is not None:
        familiar = {packed(device.pci_device) for device in catalog.devices()}
        if not any(primary in familiar for primary, _ in entry.selector.filters):
            return
    for request in entry.instances:
        for each in (request, *(request.compute or ())):
            if not profile_exists(report.inventory, each):
                names = (n for name in catalog.family_names() for n in profile_names(catalog.family(name)))
                report.errors.next_step = "aliquot profiles"
                report.errors.add(
                    each, f"no GPU has a profile {each.text}{did_you_mean(each.text, dict.fromkeys(names))}"
                )
