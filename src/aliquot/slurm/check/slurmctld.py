"""Rules for the current state of slurmctld: nodes out of service, and files that the daemons have not read yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from aliquot.slurm.check.detect import kind
from aliquot.slurm.check.finding import CheckInput, SlurmFinding, error, warning
from aliquot.slurm.client.models import SlurmNode, Version
from aliquot.slurm.conf.counts import entries
from aliquot.slurm.files.managed_block import blocks

_RECONFIGURES = Version(23, 11)


def nodes(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Check each node that has GPUs in the files or in Slurm."""
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
        sentence = f"the node is INVALID: {node.reason or 'no reason given'}"
        fix = "make the files match the host; the node is valid again once slurmd registers enough devices"
        yield error("NODE_INVALID", None, sentence, fix, "aliquot slurm check --live")
    elif node.draining and not node.reason:
        sentence = "the node is drained without a reason: operators cannot see why, or whether to resume it"
        command = f'scontrol update nodename={node.name} reason="why, and who"'
        yield warning("NO_REASON", None, sentence, "set a reason, or resume the node", command)


def _registered(inputs: CheckInput, node: SlurmNode) -> Iterator[SlurmFinding]:
    """Compare slurmctld's counts with the files: different counts mean that it has not read them."""
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
    # If slurm.conf has no types, Slurm shows those of gres.conf: then only the totals can be compared.
    typed = all(want)
    if (+want if typed else want.total()) == (+have if typed else have.total()):
        return
    shown = ",".join(str(g) for g in node.gres if g.name == "gpu") or "no GPU"
    sentence = f"slurm.conf says {pair.value}, but slurmctld has {shown}: it has not read the file since the change"
    fix = "restarting only slurmd is not enough"
    yield error("STALE_CONTROLLER", pair.location, sentence, fix, _reread_command(inputs, node))


def _dynamic(inputs: CheckInput, node: SlurmNode) -> Iterator[SlurmFinding]:
    """Report a dynamic node whose registered GRES, from slurmd's command line, differ from gres.conf."""
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
        sentence = f"gres.conf offers {words}, but the node registered with {shown}"
        fix = "stop slurmd, delete the node, and start slurmd with the GRES of gres.conf"
        yield error("REGISTERED", lines[0].location, sentence, fix, _apply_command(inputs, node))


def _apply_command(inputs: CheckInput, node: SlurmNode) -> str:
    """Return the command that registers the node again. It refuses a managed block that was edited, unless forced."""
    found = (block for source in inputs.gres.sources for block in blocks(source.text)) if inputs.gres else ()
    forced = any(block.edited and block.node == node.name for block in found)
    return f"aliquot slurm apply --node-name {node.name}{' --force' if forced else ''}"


def _reread_command(inputs: CheckInput, node: SlurmNode) -> str:
    if inputs.version is None or inputs.version >= _RECONFIGURES:
        return "scontrol reconfigure"
    return "systemctl restart slurmctld"


def _older(inputs: CheckInput, node: SlurmNode) -> Iterator[SlurmFinding]:
    """Report a slurmd older than the files.

    slurmd reads its files when it starts. From 23.11 it also restarts itself on ``scontrol reconfigure``.
    """
    changed = inputs.live.changed if inputs.live else 0
    if node.dynamic or not node.answers or not changed or not 0 < node.slurmd_start < changed:
        return
    sentence = f"its slurmd started {changed - node.slurmd_start} s before the files were last written"
    command = "scontrol reconfigure"
    if inputs.version is not None and inputs.version < _RECONFIGURES:
        command = _apply_command(inputs, node)
    fix = "let slurmd read them; drain the node first if counts change"
    yield warning("STALE_SLURMD", None, sentence, fix, command)
