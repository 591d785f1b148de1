"""The check of Slurm's GPU files. Each finding has a location, the name of its rule, and a fix. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from aliquot.slurm.check import detect, devices, features, host_gpus, numbers, settings, slots
from aliquot.slurm.check import fence as fenced
from aliquot.slurm.check import scripts as script
from aliquot.slurm.check import slurmctld as live
from aliquot.slurm.check.finding import CheckInput, LiveState, SlurmFinding

RULES: tuple[Callable[[CheckInput], Iterator[SlurmFinding]], ...] = (
    settings.unreadable,
    settings.gres_types,
    settings.nodes,
    settings.unknown_nodes,
    settings.fence,
    settings.task_prolog,
    numbers.written,
    numbers.confused,
    numbers.compared,
    devices.lines,
    devices.twice,
    devices.shared,
    devices.missing,
    fenced.neighbours,
    fenced.administrators,
    fenced.allocatable_fences,
    fenced.long_lists,
    fenced.missing,
    slots.order,
    slots.pads,
    detect.words,
    detect.nodes,
    detect.flags,
    detect.links,
    host_gpus.numbered,
    host_gpus.compared,
    features.changeable,
    features.cloud,
    settings.edited_blocks,
    live.nodes,
    script.scripts,
)
"""Each rule reports everything that it finds; no rule depends on another."""


def check(inputs: CheckInput) -> tuple[SlurmFinding, ...]:
    """Return all findings: errors first, then by location. A finding that holds for several nodes is returned once."""
    found = merged(finding for rule in RULES for finding in rule(inputs))
    return tuple(
        sorted(found, key=lambda f: (f.severity != "error", f.location is None, f.location or (), f.rule, f.sentence))
    )


def merged(findings: Iterable[SlurmFinding]) -> list[SlurmFinding]:
    """Merge findings that differ only in their nodes."""
    nodes: dict[SlurmFinding, dict[str, None]] = {}
    for finding in findings:
        alone = msgspec.structs.replace(finding, nodes=())
        nodes.setdefault(alone, {}).update(dict.fromkeys(n for n in finding.nodes if n))
    return [msgspec.structs.replace(finding, nodes=tuple(names)) for finding, names in nodes.items()]


__all__ = ["RULES", "CheckInput", "LiveState", "SlurmFinding", "check"]
