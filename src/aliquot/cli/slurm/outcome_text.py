"""Texts of ``aliquot slurm apply`` and ``aliquot slurm node``: the outcome of a change, and the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aliquot.slurm.node.context import SlurmChangeOutcome
    from aliquot.slurm.node.host_facts import SlurmHostFacts


def outcome_text(outcome: SlurmChangeOutcome) -> str:
    """Return the outcome of a change as text."""
    if outcome.status == "nothing":
        rest = f"; it stays drained: {outcome.reason}" if outcome.drained else ""
        return f"nothing to do: {outcome.name} has {outcome.gres or 'no GRES'}{rest}"
    seconds = sum(s for _, s in outcome.steps)
    if outcome.status == "done":
        end = f"it stays drained: {outcome.reason}" if outcome.drained else "it takes jobs"
        return f"done: {outcome.name} has {outcome.gres}; {end} ({seconds:.1f} s)"
    has = f"undone: {outcome.why}\n  {outcome.name} has {outcome.gres or 'no GRES'} as before"
    if not outcome.drained:
        return f"{has}; it takes jobs"
    if not outcome.reason:
        return f"{has}; Slurm does not have it, as before\n  next     aliquot slurm node --node-name {outcome.name}"
    resume = f"scontrol update nodename={outcome.name} state=resume"
    reason = " with that reason" if outcome.why and outcome.why in outcome.reason else f": {outcome.reason}"
    return f"{has}, and stays drained{reason}\n  next     {resume}"


def node_text(found: SlurmHostFacts) -> str:
    """Return the description of a node as text."""
    lines = [f"{found.name}: offers {found.offers or 'nothing'}"]
    lines.append(f"  Slurm: {found.slurm or found.error or 'does not have this node'}")
    lines.append(f"  slurmd {found.slurmd or 'is not installed'}, {found.runs}")
    if found.last:
        lines.append(f"  last change: {found.last}" + (f" ({found.why})" if found.why else ""))
    return "\n".join([*lines, *(f"  note: {n}" for n in found.notes)])
