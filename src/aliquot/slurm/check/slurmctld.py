"""Rules about what slurmctld says now: nodes that are out of work, and files that nobody has read yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from aliquot.slurm.check.detect import kind
from aliquot.slurm.check.finding import CheckInput, SlurmFinding, error, warning
from aliquot.slurm.client.models import SlurmNode, Version
from aliquot.slurm.conf.counts import entries

_RECONFIGURES = Version(23, 11)


def nodes(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Each node with GPUs, in the files or in Slurm."""
    if inputs.live is None:
        return
    about = {name for name, line in inputs.line_of.items() if entries(line.get("Gres"))}
    about |= {name for line in inputs.gpu_lines for name in line.nodes or ()}
    for node in inputs.live.nodes:
        if node.name in about or any(g.name == "gpu" for g in node.gres):
            for finding in (*_state(node), *_registered(inputs, node), *_dynamic(inputs, node), *_older(inputs, node)):
                yield msgspec.structs.replace(finding, nodes=(node.name,))


def _state(node: SlurmNode) -> Iterator[SlurmFinding]:
    if node.invalid:
        sentence = f"Slurm has it INVALID: {node.reason or 'no reason is given'}"
        fix = "make the files and the machine agree; it is valid again once slurmd registers enough"
        yield error("NODE_INVALID", None, sentence, fix, "aliquot slurm check --live")
    elif node.draining and not node.reason:
        sentence = "it is drained without a reason: nobody knows why, nor who may resume it"
        command = f'scontrol update nodename={node.name} reason="why, and who"'
        yield warning("NO_REASON", None, sentence, "give it one, or resume it", command)


def _registered(inputs: CheckInput, node: SlurmNode) -> Iterator[SlurmFinding]:
    """slurmctld's counts against the files: another number means that it has not read them."""
    line = inputs.line_of.get(node.name)
    pair = line.pair("Gres") if line else None
    if pair is None or node.dynamic or any(e.error for e in entries(pair.value)):
        return
    want: Counter[str] = Counter()
    for entry in entries(pair.value):
        want[entry.type] += entry.count
    have: Counter[str] = Counter()
    for gres in node.gres:
        have[gres.type] += gres.count if gres.name == "gpu" else 0
    # Slurm shows types that it learnt from gres.conf where slurm.conf has none: then only the sum can be compared.
    typed = all(want)
    if (+want if typed else want.total()) == (+have if typed else have.total()):
        return
    shown = ",".join(str(g) for g in node.gres if g.name == "gpu") or "no GPU"
    sentence = f"slurm.conf says {pair.value}, and slurmctld has {shown}: it has not read the file since"
    yield error(
        "STALE_CONTROLLER", pair.location, sentence, "slurmd alone is not enough", _reread_command(inputs, node)
    )


def _dynamic(inputs: CheckInput, node: SlurmNode) -> Iterator[SlurmFinding]:
    """A node that registered itself: its record is what slurmd was started with, gres.conf what it hands out."""
    lines = [line for line in inputs.gpu_lines if line.serves(node.name)]
    detect = inputs.autodetect(node.name)
    if not node.dynamic or not lines or (detect and kind(detect.value) != "off"):
        return
    want: Counter[str] = Counter()
    for line in lines:
        want[line.type] += len(line.devices)
    have: Counter[str] = Counter()
    for gres in node.gres:
        have[gres.type] += gres.count if gres.name == "gpu" else 0
    if +want != +have:
        words = ", ".join(f"{number} {name or 'untyped'}" for name, number in want.items())
        shown = ",".join(str(g) for g in node.gres if g.name == "gpu") or "no GPU"
        sentence = f"gres.conf hands out {words}, and the node registered with {shown}"
        fix = "stop slurmd, delete the node, start slurmd with what gres.conf says"
        yield error("REGISTERED", lines[0].location, sentence, fix, f"aliquot slurm apply --node-name {node.name}")


def _reread_command(inputs: CheckInput, node: SlurmNode) -> str:
    if inputs.version is None or inputs.version >= _RECONFIGURES:
        return "scontrol reconfigure"
    return "systemctl restart slurmctld"


def _older(inputs: CheckInput, node: SlurmNode) -> Iterator[SlurmFinding]:
    """slurmd reads its files when it starts (from 23.11 on also at a reconfigure, by starting anew)."""
    changed = inputs.live.changed if inputs.live else 0
    if node.dynamic or not node.answers or not changed or not 0 < node.slurmd_start < changed:
        return
    sentence = f"its slurmd started {changed - node.slurmd_start} s before the files were last written"
    command = "scontrol reconfigure"
    if inputs.version is not None and inputs.version < _RECONFIGURES:
        command = f"aliquot slurm apply --node-name {node.name}"
    yield warning("STALE_SLURMD", None, sentence, "it must read them; drain it first where counts change", command)
