"""Findings as text, grouped by area, with the command to type below each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from aliquot.cli.doctor.finding import DoctorFinding
from aliquot.cli.framework import color as colors
from aliquot.cli.framework import next_command as next_commands
from aliquot.foundation.decimals import counted

_TINTS = {"ok": colors.GREEN, "problem": colors.RED}


def text(findings: Sequence[DoctorFinding], typed_node: str = "") -> str:
    """Format the findings. ``typed_node`` is the simulated node of the command, empty if it is about none."""
    tinted = colors.wanted()
    lines = []
    for area, group in groupby(findings, lambda finding: finding.area):
        lines.append(area)
        for finding in group:
            status = colors.paint(f"{finding.status:<8}", _TINTS.get(finding.status, ""), tinted)
            lines.append(f"  {status} {finding.message}")
            if finding.next_step:
                lines.append(f"  next     {next_commands.addressed(finding.next_step, typed_node)}")
        lines.append("")
    problems = sum(finding.status == "problem" for finding in findings)
    return "\n".join([*lines, f"verdict: {counted(problems, 'problem') if problems else 'no problem'}"])
