"""Rules for scripts and instructions: steps of a manual change that fail, or that leave Slurm with old counts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from aliquot.slurm.check.finding import CheckInput, SlurmFinding, error
from aliquot.slurm.conf.statements import ConfLocation, ConfSource

_UPDATE = re.compile(r"scontrol\s+(?:\S+\s+)*?update\b(?P<rest>.*)", re.IGNORECASE)
_STATE = re.compile(r"\bstate\s*=\s*[\"']?(drain|down|fail)", re.IGNORECASE)
_REASON = re.compile(r"\breason\s*=\s*[\"']?[^\s\"']", re.IGNORECASE)
_RESTART = re.compile(r"(systemctl\s+(?:\S+\s+)*?(try-)?restart\s+(?:\S+\s+)*?slurmd\b|service\s+slurmd\s+restart)")
_CONTROLLER = re.compile(
    r"scontrol\s+(?:\S+\s+)*?reconfig|restart\s+(?:\S+\s+)*?slurmctld|service\s+slurmctld\s+restart"
)
_DESTROY = re.compile(r"nvidia-smi\s+mig\b.*\s(-dgi|--destroy-gpu-instance)\b")
_INNER = re.compile(r"nvidia-smi\s+mig\b.*\s(-dci|--destroy-compute-instance)\b")


def scripts(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Check each script, playbook or page that the user named."""
    for source in inputs.scripts:
        commands = list(_commands(source))
        yield from _drains(commands)
        yield from _restarts(commands)
        yield from _destroys(commands)


def _commands(source: ConfSource) -> Iterator[tuple[ConfLocation, str]]:
    """Yield the lines of a script, continuations joined, without shell comments."""
    begun, first = "", 0
    for number, line in enumerate(source.text.split("\n"), start=1):
        first = first if begun else number
        begun += line.strip()
        if begun.endswith("\\"):
            begun = begun[:-1] + " "
            continue
        if not begun.startswith("#"):
            yield ConfLocation(source.path, first), begun
        begun = ""


def _drains(commands: list[tuple[ConfLocation, str]]) -> Iterator[SlurmFinding]:
    for location, text in commands:
        match = _UPDATE.search(text)
        # Jobs and partitions have states too, and another update on the line is not a drain.
        if match and re.search(r"\bnode", match["rest"], re.IGNORECASE):
            state = _STATE.search(match["rest"])
            if state and not _REASON.search(match["rest"]):
                sentence = f"state={state[1].lower()} without reason=: scontrol refuses, and the node keeps taking jobs"
                yield error("NO_REASON", location, sentence, 'add reason="why, and who"', "aliquot slurm apply")


def _restarts(commands: list[tuple[ConfLocation, str]]) -> Iterator[SlurmFinding]:
    if any(_CONTROLLER.search(text) for _, text in commands):
        return
    for location, text in commands:
        if _RESTART.search(text):
            sentence = "only slurmd is restarted: slurmctld keeps its old counts"
            sentence += ", and the node is INVALID if it has fewer devices now"
            fix = "from 23.11, run scontrol reconfigure instead; before that, restart slurmctld too"
            yield error("SLURMD_ALONE", location, sentence, fix, "aliquot slurm apply")


def _destroys(commands: list[tuple[ConfLocation, str]]) -> Iterator[SlurmFinding]:
    done = False
    for location, text in commands:
        inner, outer = _INNER.search(text), _DESTROY.search(text)
        done = done or inner is not None
        if outer and not done:
            sentence = "GPU instances cannot be destroyed while they have compute instances: the driver refuses"
            fix = "run nvidia-smi mig -dci before -dgi"
            yield error("INSTANCE_IN_USE", location, sentence, fix, "aliquot slurm apply")
