"""The output of ``aliquot libvirt``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aliquot.cli.framework import next_command as next_commands
from aliquot.cli.framework.parser import Args
from aliquot.errors import BlockedError

if TYPE_CHECKING:
    from aliquot.core.model.plan import Blocker
    from aliquot.libvirt.check import VmCheckReport
    from aliquot.libvirt.device_rules import DeviceCheck
    from aliquot.libvirt.models import Hostdev


def refuse(blockers: Sequence[Blocker], args: Args) -> None:
    """Raise BlockedError if there are blockers: the first gives the code, the others are details."""
    if not blockers:
        return
    first, *others = blockers
    details = [f"{b.rule}: {b.message}" for b in others]
    raise BlockedError(
        first.message, code=first.rule, details=tuple(details), next_step=first.next_step or f"{args.prog} --help"
    )


def plain(devices: Sequence[Hostdev]) -> list[dict[str, Any]]:
    """Return host devices as plain data."""
    keep = ("kind", "uuid", "address", "managed", "display", "ramfb")
    return [{name: getattr(each, name) for name in keep} for each in devices]


def report(found: VmCheckReport, node: str) -> str:
    """Return the report of one VM, device by device."""
    lines = [f"{found.vm}   {'running' if found.running else 'shut off'}   {_devices(len(found.rows))}"]
    for row in found.rows:
        lines += ["", *_row(row, found.running, node)]
    if found.problems:
        lines.append("")
    lines += [line for problem in found.problems for line in _problem(problem, node, "")]
    count = len(found.all_problems)
    lines += ["", *(f"note: {note}" for note in found.notes)]
    lines.append(f"verdict: {'fine' if not count else '1 problem' if count == 1 else f'{count} problems'}")
    return "\n".join(lines)


def _devices(count: int) -> str:
    return "no device" if not count else "1 device" if count == 1 else f"{count} devices"


def _row(row: DeviceCheck, running: bool, node: str) -> list[str]:
    where = {"definition": "   from its next start on", "running": "   only until it is shut down"}.get(row.where, "")
    where = where if running else ""
    lines = [f"{row.device}   {row.what}{where}"]
    if not row.problems:
        lines.append("  fine")
    lines += [line for problem in row.problems for line in _problem(problem, node, "  ")]
    return lines + [f"  note     {note}" for note in row.notes]


def _problem(problem: Blocker, node: str, indent: str) -> list[str]:
    lines = [f"{indent}problem[{problem.rule}]: {problem.message}"]
    if problem.suggestion:
        lines.append(f"{indent}  request  {next_commands.addressed(problem.suggestion, node)}")
    if problem.next_step:
        lines.append(f"{indent}  next     {next_commands.addressed(problem.next_step, node)}")
    return lines
