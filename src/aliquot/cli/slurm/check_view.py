"""What ``aliquot slurm check`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aliquot.cli.framework import next_command as following
from aliquot.foundation.decimals import counted
from aliquot.slurm.check.finding import SlurmFinding
from aliquot.slurm.conf import hostlist


def plain(finding: SlurmFinding) -> dict[str, Any]:
    """A finding as a document has it."""
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
    """Each finding with its place, what to do, and what to type; and their number. ``typed``: the --node that was."""
    if not findings:
        return f"{folder}: nothing is wrong" if folder else "nothing is wrong"
    return "\n".join([*(_shown(f, typed) for f in findings), "", _sum(findings)])


def _shown(finding: SlurmFinding, typed: str) -> str:
    where = f"{finding.location}: " if finding.location else ""
    nodes = f" [{_short(finding.nodes)}]" if finding.nodes else ""
    lines = [f"{where}{finding.severity} {finding.rule}{nodes}", f"  {finding.sentence}"]
    if finding.fix:
        lines.append(f"  fix      {finding.fix}")
    if finding.command:
        lines.append(f"  next     {following.addressed(finding.command, typed)}")
    return "\n".join(lines)


def _short(names: Sequence[str]) -> str:
    text = hostlist.compress(names)
    return text if len(text) <= 60 else f"{len(names)} nodes"


def _sum(findings: Sequence[SlurmFinding]) -> str:
    errors = sum(f.severity == "error" for f in findings)
    return f"{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"


def commands(findings: Sequence[SlurmFinding], typed: str) -> str:
    """The commands to type, each once, in the order of what they are for."""
    return "\n".join(dict.fromkeys(following.addressed(f.command, typed) for f in findings if f.command))
