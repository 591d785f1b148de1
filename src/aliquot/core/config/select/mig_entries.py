"""Entries that request MIG: the GPUs that they claim, and their desired state."""

from __future__ import annotations

from collections import Counter
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
from aliquot.core.model.geometry import geometry_text
from aliquot.core.model.inventory import Gpu
from aliquot.core.model.structured_text import GpuName, GpuOption, GpuPart, StructuredText
from aliquot.core.planner.blockers import request_text
from aliquot.core.planner.change_distribution import ChangeCandidate
from aliquot.core.planner.change_space import smallest_removal
from aliquot.core.planner.geometry_change import change_gpu, lacking_instances, present_contents
from aliquot.core.planner.placement_table import compiled_table

Claims = list[tuple[Gpu, DesiredGpu | None]]
"""GPUs with the desired state of an entry; None if it is impossible, which was reported."""


def claims(report: SelectionReport, entry: ConfigEntry, gpus: Sequence[Gpu]) -> tuple[Claims, bool]:
    """Return the claims of an entry on the GPUs that it selects, and whether it matters on this node."""
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
        least = entry.at_least and wanted is not None
        found += [(gpu, _at_least(report, entry, gpu, wanted) if least and wanted else wanted) for gpu in members]
    return found, bool(capable) or able


def _incapable(report: SelectionReport, entry: ConfigEntry, gpus: Sequence[Gpu]) -> bool:
    """Report GPUs that cannot be partitioned: a note for ``all``, a failure if the entry names them.

    Returns True if leaving them alone is what the entry requests.
    """
    if not gpus:
        return False
    lost = any(gpu.lost for gpu in gpus)
    sentence = f"{gpus_text(gpus)} {'fell off the bus' if lost else 'cannot be partitioned'}"
    if entry.mig and not entry.selector.everything and not report.config.compat:
        rule: RuleCode = "GPU_LOST" if lost else "NOT_CAPABLE"
        report.block(rule, entry, f"{sentence}, but MIG is requested", gpus[0].pci, "aliquot show")
    else:
        report.missing_capability = "can be partitioned"
        report.notes.append(f"{sentence} and {'is' if len(gpus) == 1 else 'are'} left alone")
    return not entry.mig


def _wanted(report: SelectionReport, entry: ConfigEntry, gpus: Sequence[Gpu]) -> DesiredGpu | None:
    """Return what an entry requests of GPUs of one family; None if it is impossible, which is reported."""
    if not entry.mig or not entry.instances:
        return DesiredGpu("", entry.mig, ())
    try:
        family = report.inventory.family(gpus[0])
    except KeyError:
        report.block("NO_TABLE", entry, f"no geometry table is known for {gpus_text(gpus)}", gpus[0].pci)
        return None
    instances, problems = resolve(family, entry.instances)
    for problem in problems:
        report_problem(report, problem, family, gpus)
    return None if problems else DesiredGpu("", True, instances)


def _at_least(report: SelectionReport, entry: ConfigEntry, gpu: Gpu, wanted: DesiredGpu) -> DesiredGpu | None:
    """Return the present instances of a GPU plus the requested ones that are missing.

    Returns None, and reports it, if they do not fit.
    """
    try:
        table = compiled_table(report.inventory.family(gpu))
    except KeyError:
        return wanted
    lacking = lacking_instances(gpu, wanted.instances or ())
    changed = change_gpu(table, gpu, lacking)
    if changed is not None:
        return changed.desired or DesiredGpu("", True, present_contents(table, gpu))
    kinds = Counter(lacking)
    removal = smallest_removal([ChangeCandidate(gpu, table, tuple(kinds))], tuple(kinds.values()))
    text = StructuredText(GpuName(gpu.pci), f" has no room for {request_text(table, lacking)} beside what is there")
    if removal is None or not removal.profiles:
        step = StructuredText("aliquot profiles ", GpuPart(gpu.pci))
        report.block("PLACEMENT", entry, text, gpu.pci, step)
    else:
        step = StructuredText(
            "aliquot plan ",
            GpuOption(gpu.pci, counts_together=True),
            f" --remove {geometry_text(removal.profiles)}",
        )
        report.block("PLACEMENT", entry, StructuredText(text, f"; {removal}"), gpu.pci, step)
    return None


def report_problem(report: SelectionReport, problem: InstanceProblem, family: Family, gpus: Sequence[Gpu]) -> None:
    """Report that some GPUs cannot satisfy a request: a failure, or an error for a name that no GPU has."""
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
    """Check the profile names of an entry for absent GPUs, unless the catalog does not know these GPUs either."""
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
