"""Entries that request vGPUs or passthrough: the GPUs that they claim, and their desired state."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.config.file import PASSTHROUGH, VGPU_DEVICE_MANAGER, ConfigEntry
from aliquot.core.config.select.gpu_text import gpus_text
from aliquot.core.config.select.mig_entries import Claims
from aliquot.core.config.select.selection_report import SelectionReport
from aliquot.core.config.select.selector import packed
from aliquot.core.config.select.vgpu_lookup import alternatives, every_name, hint, products_with_type
from aliquot.core.config.select.vgpus import VgpuProblem, mig_backed, resolve_types, time_sliced, type_conflict
from aliquot.core.config.text.vgpu_request import VgpuRequest
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.desired import DesiredGpu, RuleCode
from aliquot.core.model.inventory import Gpu
from aliquot.core.model.vgpu_types import VgpuTable


def claims(report: SelectionReport, entry: ConfigEntry, gpus: Sequence[Gpu]) -> tuple[Claims, bool]:
    """Return the claims of an entry on the GPUs that it selects, and whether it matters on this node."""
    lost = [gpu for gpu in gpus if gpu.lost]
    gpus = [gpu for gpu in gpus if not gpu.lost]
    _passed_over(report, entry, lost, "GPU_LOST", "fell off the bus", "is on the bus")
    if entry.share == PASSTHROUGH:
        desired_gpu = DesiredGpu("", None, None, passthrough=entry.on)
        return [(gpu, desired_gpu) for gpu in gpus], bool(gpus)
    known: list[tuple[VgpuTable, list[Gpu]]] = []
    without_table: list[Gpu] = []
    for gpu in gpus:
        table = report.inventory.vgpu_table(gpu)
        same = next((members for other, members in known if other == table and members[0].family == gpu.family), None)
        if table is None:
            without_table.append(gpu)
        elif same is not None:
            same.append(gpu)
        else:
            known.append((table, [gpu]))
    if not known:
        _check_names(report, entry)
    for gpu in without_table:
        _passed_over(report, entry, [gpu], "NOT_CAPABLE", _why_none(gpu), "has vGPU types")
    found: Claims = []
    for table, members in known:
        wanted = _wanted(report, entry, table, members)
        found += [(gpu, wanted) for gpu in members]
    return found, bool(known) or (bool(without_table) and not entry.types)


def _passed_over(
    report: SelectionReport, entry: ConfigEntry, gpus: Sequence[Gpu], rule: RuleCode, why: str, able: str
) -> None:
    """Report GPUs that cannot have the share of an entry: a note for ``all``, a failure if the entry names them."""
    if not gpus:
        return
    nothing = entry.share != PASSTHROUGH and not entry.types
    if entry.selector.everything or (nothing and rule != "GPU_LOST") or report.config.compat:
        report.missing_capability = able
        report.notes.append(f"{gpus_text(gpus)} {why} and {'is' if len(gpus) == 1 else 'are'} left alone")
        return
    what = "passthrough is" if entry.share == PASSTHROUGH else "vGPUs are"
    report.block(rule, entry, f"{gpus_text(gpus)} {why}, but {what} requested", gpus[0].pci, "aliquot show")


def _why_none(gpu: Gpu) -> str:
    boards = [row.name for row in vgpu.rows() if row.pci_device.lower() == gpu.pci_device.lower()]
    if len(boards) > 1:
        return f"could be {' or '.join(boards)}, which only its subsystem id can distinguish"
    return "has no known vGPU types"


def _wanted(report: SelectionReport, entry: ConfigEntry, table: VgpuTable, gpus: Sequence[Gpu]) -> DesiredGpu | None:
    """Return what an entry requests of GPUs of one product; None if it is impossible, which is reported."""
    if not entry.types:
        return DesiredGpu("", None, None, vgpus=(), mixed_size=entry.mixed_size, scheduler=entry.scheduler)
    found, problems = resolve_types(table, entry.types)
    for problem in problems:
        _problem(report, problem, table, gpus)
    equal = [gpu for gpu in gpus if not _mixed(entry, gpu)]
    clashing = type_conflict(table, found, not equal, _mixed_size_advice(report))
    if clashing is not None:
        _problem(report, clashing, table, equal or gpus)
    if problems or clashing is not None:
        return None
    if not found[0][1].mig_backed:
        return time_sliced(gpus[0], table, entry, found)
    try:
        family = report.inventory.family(gpus[0])
    except KeyError:
        _problem(report, VgpuProblem("NO_TABLE", entry.types[0], "no geometry table is known for"), table, gpus)
        return None
    made = mig_backed(gpus[0], table, family, entry, found)
    if isinstance(made, VgpuProblem):
        _problem(report, made, table, gpus)
        return None
    return made


def _mixed(entry: ConfigEntry, gpu: Gpu) -> bool:
    """Report whether the GPU is to be in mixed-size mode: as the entry requests, else as it is."""
    if entry.mixed_size is not None:
        return entry.mixed_size
    return gpu.virtual is not None and gpu.virtual.mixed_size is True


def _mixed_size_advice(report: SelectionReport) -> str:
    """Return how to request mixed-size mode."""
    if report.config.schema == VGPU_DEVICE_MANAGER:
        return "which this format cannot express: use the native format with 'mixed-size: true', or --vgpu --mixed-size"
    return "write 'mixed-size: true' beside 'vgpu', or --mixed-size"


def _problem(report: SelectionReport, problem: VgpuProblem, table: VgpuTable, gpus: Sequence[Gpu]) -> None:
    request = problem.request
    next_step = f"aliquot vgpu types {gpus[0].index}"
    if problem.mixed_size_types:
        next_step = f"aliquot plan --gpu {gpus[0].index} --vgpu {problem.mixed_size_types} --mixed-size"
    if problem.rule == "TWICE":
        report.errors.add(request, f"{request.name!r} names a vGPU type that this entry already has")
    elif problem.rule != "WRONG_CARD":
        report.block(problem.rule, request, f"{problem.sentence} {gpus_text(gpus)}", gpus[0].pci, next_step)
    else:
        others = products_with_type(report.inventory, request)
        if not others:
            _unknown(report, request, next_step)
            return
        have = "has" if len(gpus) == 1 else "have"
        where = f"{', '.join(others)} {'has' if len(others) == 1 else 'have'} it"
        sentence = f"{gpus_text(gpus)} {have} no vGPU type {request.name}: {where}{alternatives(request, table)}"
        report.block("WRONG_CARD", request, sentence, gpus[0].pci, next_step)


def _unknown(report: SelectionReport, request: VgpuRequest, next_step: str) -> None:
    report.errors.next_step = next_step
    sentence = f"no GPU has a vGPU type {request.name}{hint(request, every_name(report.inventory))}"
    report.errors.add(request, sentence)


def _check_names(report: SelectionReport, entry: ConfigEntry) -> None:
    """Check the type names of an entry for absent GPUs, unless the tables do not know these GPUs either."""
    if entry.selector.filters is not None:
        familiar = {packed(row.pci_device) for row in vgpu.rows()}
        if not any(primary in familiar for primary, _ in entry.selector.filters):
            return
    for request in entry.types:
        if not products_with_type(report.inventory, request):
            _unknown(report, request, "aliquot vgpu types")
