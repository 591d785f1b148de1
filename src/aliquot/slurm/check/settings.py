"""Rules about what GPUs need once for a cluster: GRES types, the fence around each job, our blocks."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.slurm.check.detect import kind
from aliquot.slurm.check.devices import gres_accesses
from aliquot.slurm.check.finding import CheckInput, SlurmFinding, error, warning
from aliquot.slurm.client.models import Version
from aliquot.slurm.conf import counts
from aliquot.slurm.conf.statements import Conf, ConfLocation
from aliquot.slurm.files.managed_block import blocks

_SELECTS = Version(23, 2)
"""From here on cons_tres may be the default of SelectType (seen: linear in 22.05, cons_tres in 24.11)."""
_TRUE = {"yes", "true", "up", "1"}
_NO_DEVICES = "without it every job can open every instance, and CUDA's number of a device is another one"


def unreadable(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """What Slurm's own parser stumbles over. Of gres.conf and slurm.conf: the daemon does not start."""
    for conf in (inputs.slurm, inputs.gres, inputs.cgroup, inputs.helpers):
        for diagnostic in conf.diagnostics if conf else ():
            yield error("UNREADABLE", diagnostic.location, diagnostic.sentence)


def gres_types(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Without GresTypes=gpu, slurmctld and slurmd leave every GPU out and say nothing."""
    if inputs.slurm is None:
        return
    pair = inputs.slurm.last("GresTypes")
    kinds = [kind.strip() for kind in pair.value.split(",")] if pair else []
    used = [line for line in inputs.node_lines if counts.entries(line.get("Gres"))]
    if "gpu" in kinds or not (used or inputs.gpu_lines):
        return
    location = pair.location if pair else inputs.file("slurm.conf")
    setting = f"GresTypes={pair.value} lacks gpu" if pair else "GresTypes is missing"
    yield error("NO_GRES_TYPES", location, f"{setting}: Slurm ignores every GPU", "GresTypes=gpu")


def fence(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """A job must not reach what it was not given."""
    has_mig = any(gres.is_mig for line in inputs.gpu_lines for gres in gres_accesses(line))
    has_mig = has_mig or any(gpu.mig.enabled for found in inputs.inventories.values() for gpu in found.gpus)
    if not (inputs.gpu_lines or has_mig):
        return
    make = error if has_mig else warning
    location = inputs.file("cgroup.conf")
    pair = inputs.cgroup.last("ConstrainDevices") if inputs.cgroup else None
    if pair is None or pair.value.lower() not in _TRUE:
        setting = f"ConstrainDevices={pair.value}" if pair else "ConstrainDevices is not set"
        sentence = f"{setting}: {_NO_DEVICES}"
        yield make("OPEN_DEVICES", pair.location if pair else location, sentence, "ConstrainDevices=yes in cgroup.conf")
    plugin = inputs.cgroup.last("CgroupPlugin") if inputs.cgroup else None
    if plugin and plugin.value.lower() == "disabled":
        yield make(
            "OPEN_DEVICES", plugin.location, "CgroupPlugin=disabled: ConstrainDevices has no effect", "leave it out"
        )
    if inputs.slurm:
        yield from _plugins(inputs, inputs.slurm, make is error)


def _plugins(inputs: CheckInput, slurm: Conf, has_mig: bool) -> Iterator[SlurmFinding]:
    make = error if has_mig else warning
    task = slurm.last("TaskPlugin")
    if task is None or "cgroup" not in task.value.lower():
        location = task.location if task else inputs.file("slurm.conf")
        setting = f"TaskPlugin={task.value} has no task/cgroup" if task else "TaskPlugin is not set"
        sentence = f"{setting}: ConstrainDevices has no effect"
        yield make("OPEN_DEVICES", location, sentence, "TaskPlugin=task/cgroup,task/affinity")
    select = slurm.last("SelectType")
    if select and select.value.lower().removeprefix("select/") not in ("cons_tres",):
        sentence = f"{select.value} knows nothing of GPUs: --gpus and --gpus-per-task are refused"
        yield warning("NO_GPU_SELECTION", select.location, sentence, "SelectType=select/cons_tres")
    elif not select and inputs.version and inputs.version < _SELECTS:
        sentence = (
            f"SelectType is not set, and select/linear, the default of {inputs.version}, gives steps no typed GPU"
        )
        yield warning("NO_GPU_SELECTION", inputs.file("slurm.conf"), sentence, "SelectType=select/cons_tres")


def task_prolog(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Slurm gives a job the number of its GRES, and CUDA wants the UUID of a MIG device."""
    if inputs.slurm is None or inputs.slurm.get("TaskProlog"):
        return
    for group in inputs.groups:
        detected = [inputs.autodetect(name) for name in group.names]
        slices = [gres for line in group.gres for gres in gres_accesses(line) if gres.is_mig]
        if slices and not all(pair and kind(pair.value) not in ("", "off") for pair in detected):
            sentence = (
                "TaskProlog is not set: unless the site sets CUDA_VISIBLE_DEVICES in its own way, a job has Slurm's "
                "number in it; CUDA wants the UUID of a MIG device, and finds none"
            )
            fix = "TaskProlog=/usr/local/libexec/aliquot/task-prolog.sh, which calls aliquot slurm task-prolog"
            yield warning("NO_TASK_PROLOG", inputs.file("slurm.conf"), sentence, fix)
            return


def nodes(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Nodes that stand there twice, and nodes that start drained without a word."""
    seen: dict[str, str] = {}
    for line in inputs.node_lines:
        location = line.statement.location
        duplicate = next((name for name in line.names if name in seen), None)
        if duplicate is not None:
            yield error(
                "NODE_TWICE",
                location,
                f"{duplicate} is configured at {seen[duplicate]} already: slurmctld does not start",
            )
        seen.update((name, str(location)) for name in line.names)
        state = line.get("State").upper()
        if state in ("DRAIN", "DOWN", "FAIL", "FAILING") and not line.get("Reason"):
            sentence = f"State={state} without Reason=: nobody will know why"
            yield warning("NO_REASON", location, sentence, f'{line.statement.head.value} ... Reason="why, and who"')


def unknown_nodes(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Lines of gres.conf for nodes that slurm.conf does not name: misspelt, or dynamic."""
    if inputs.slurm is None or not inputs.line_of:
        return
    registered = {node.name for node in inputs.live.nodes} if inputs.live else set()
    dynamic = inputs.slurm.get("MaxNodeCount") not in ("", "0")
    for line in inputs.gpu_lines:
        unknown = [n for n in line.nodes or () if n not in inputs.line_of and n not in registered]
        if unknown and not dynamic:
            sentence = f"slurm.conf has no node {unknown[0]}: nobody reads this line"
            yield warning("UNKNOWN_NODE", line.location, sentence, "the node's name as slurm.conf has it")


def edited_blocks(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Blocks whose digest does not hold (the next apply would lose the change), and nodes with two blocks."""
    seen: dict[str, int] = {}
    for source in inputs.gres.sources if inputs.gres else ():
        for block in blocks(source.text):
            location = ConfLocation(source.path, block.first)
            if block.node in seen:
                sentence = f"the block of {block.node} is there twice (line {seen[block.node]})"
                yield error("BLOCK_TWICE", location, sentence, "leave out one of them")
            seen.setdefault(block.node, block.first)
            if block.edited:
                sentence = f"the lines of {block.node} between the marks were changed by hand"
                fix = "move your lines out of the block; 'aliquot slurm apply --force' replaces it"
                yield warning("HAND_EDITED", location, sentence, fix)
