"""Output of ``aliquot slurm check``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aliquot.cli.framework import next_command as next_commands
from aliquot.foundation.decimals import counted
from aliquot.slurm.check.finding import SlurmFinding
from aliquot.slurm.conf import hostlist


def plain(finding: SlurmFinding) -> dict[str, Any]:
    """Convert a finding for a document."""
    return {
        "severity": finding.severity,
        "rule": finding.rule,
        "file": finding.location.file if finding.location else "",
        "line": finding.location.line if finding.location else 0,
        "nodes": list(finding.nodes),
        "sentence": finding.sentence,
        "fix": finding.fix,
        "next": finding.command,
    }


def report(findings: Sequence[SlurmFinding], folder: str, typed: str) -> str:
    """Format the findings with location, fix and command, and their number. ``typed`` is the value of --sim."""
    if not findings:
        return f"{folder}: no problems found" if folder else "no problems found"
    return "\n".join([*(_shown(f, typed) for f in findings), "", _sum(findings)])


def _shown(finding: SlurmFinding, typed: str) -> str:
    where = f"{finding.location}: " if finding.location else ""
    nodes = f" [{_short(finding.nodes)}]" if finding.nodes else ""
    lines = [f"{where}{finding.severity} {finding.rule}{nodes}", f"  {finding.sentence}"]
    if finding.fix:
        lines.append(f"  fix      {finding.fix}")
    if finding.command:
        lines.append(f"  next     {next_commands.addressed(finding.command, typed)}")
    return "\n".join(lines)


def _short(names: Sequence[str]) -> str:
    text = hostlist.compress(names)
    return text if len(text) <= 60 else f"{len(names)} nodes"


def _sum(findings: Sequence[SlurmFinding]) -> str:
    errors = sum(f.severity == "error" for f in findings)
    return f"{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"


def commands(findings: Sequence[SlurmFinding], typed: str) -> str:
    """Return the commands of the findings, each once, in their order."""
    return "\n".join(dict.fromkeys(next_commands.addressed(f.command, typed) for f in findings if f.command))
