"""Rules for settings that GPUs need once in a cluster: GRES types, device constraints for jobs, our managed blocks."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.slurm.check.detect import kind
from aliquot.slurm.check.devices import gres_accesses
from aliquot.slurm.check.finding import CheckInput, SlurmFinding, error, warning
from aliquot.slurm.client.models import Version
from aliquot.slurm.conf import counts
from aliquot.slurm.conf.statements import Conf, ConfLocation
from aliquot.slurm.files.managed_block import blocks

_SELECT = "set SelectType=select/cons_tres"
_SELECTS = Version(23, 2)
"""From this release, cons_tres may be the default of SelectType (observed: linear in 22.05, cons_tres in 24.11)."""
_TRUE = {"yes", "true", "up", "1"}
_CONSTRAIN = "set ConstrainDevices=yes in cgroup.conf"
_NO_DEVICES = "every job can open every instance, and CUDA numbers the devices differently from Slurm"


def unreadable(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report lines that Slurm cannot read; in gres.conf and slurm.conf they keep the daemons from starting."""
    for conf in (inputs.slurm, inputs.gres, inputs.cgroup, inputs.helpers):
        for diagnostic in conf.diagnostics if conf else ():
            yield error("UNREADABLE", diagnostic.location, diagnostic.sentence)


def gres_types(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report a missing GresTypes=gpu: slurmctld and slurmd then ignore every GPU and log nothing."""
    if inputs.slurm is None:
        return
    pair = inputs.slurm.last("GresTypes")
    kinds = _gres_kinds(pair.value) if pair else []
    used = [line for line in inputs.node_lines if counts.entries(line.get("Gres"))]
    if "gpu" in kinds or not (used or inputs.gpu_lines):
        return
    location = pair.location if pair else inputs.file("slurm.conf")
    setting = f"GresTypes={pair.value} lacks gpu" if pair else "GresTypes is missing"
    yield error("NO_GRES_TYPES", location, f"{setting}: Slurm ignores every GPU", "set GresTypes=gpu")


def _gres_kinds(value: str) -> list[str]:
    return [kind.strip() for kind in value.split(",")]


def fence(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report settings that let a job open devices that Slurm did not allocate to it.

    A cluster with GresTypes=gpu is about to have lines for GPUs, even if it has none yet.
    """
    has_mig = any(gres.is_mig for line in inputs.gpu_lines for gres in gres_accesses(line))
    has_mig = has_mig or any(gpu.mig.enabled for found in inputs.inventories.values() for gpu in found.gpus)
    if not (inputs.gpu_lines or has_mig or (inputs.slurm and "gpu" in _gres_kinds(inputs.slurm.get("GresTypes")))):
        return
    make = error if has_mig else warning
    location = inputs.file("cgroup.conf")
    pair = inputs.cgroup.last("ConstrainDevices") if inputs.cgroup else None
    if pair is None or pair.value.lower() not in _TRUE:
        setting = f"ConstrainDevices={pair.value}" if pair else "ConstrainDevices is not set"
        sentence = f"{setting}: {_NO_DEVICES}"
        yield make("OPEN_DEVICES", pair.location if pair else location, sentence, _CONSTRAIN)
    plugin = inputs.cgroup.last("CgroupPlugin") if inputs.cgroup else None
    if plugin and plugin.value.lower() == "disabled":
        yield make(
            "OPEN_DEVICES", plugin.location, "CgroupPlugin=disabled: ConstrainDevices has no effect", "remove it"
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
        yield make("OPEN_DEVICES", location, sentence, "set TaskPlugin=task/cgroup,task/affinity")
    select = slurm.last("SelectType")
    if select and select.value.lower().removeprefix("select/") not in ("cons_tres",):
        sentence = f"{select.value} does not support GPUs: Slurm refuses --gpus and --gpus-per-task"
        yield warning("NO_GPU_SELECTION", select.location, sentence, _SELECT)
    elif not select and inputs.version and inputs.version < _SELECTS:
        sentence = (
            f"SelectType is not set, and the default of {inputs.version}, select/linear, gives steps no typed GPU"
        )
        yield warning("NO_GPU_SELECTION", inputs.file("slurm.conf"), sentence, _SELECT)


def task_prolog(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report a missing TaskProlog: Slurm gives a job GRES numbers, but CUDA needs the UUIDs of MIG devices."""
    if inputs.slurm is None or inputs.slurm.get("TaskProlog"):
        return
    for group in inputs.groups:
        detected = [inputs.autodetect(name) for name in group.names]
        slices = [gres for line in group.gres for gres in gres_accesses(line) if gres.is_mig]
        if slices and not all(pair and kind(pair.value) not in ("", "off") for pair in detected):
            sentence = (
                "TaskProlog is not set: unless the site sets CUDA_VISIBLE_DEVICES in another way, it holds Slurm's "
                "device numbers, and CUDA needs the UUIDs of MIG devices and finds no device"
            )
            fix = "set TaskProlog=/usr/local/libexec/aliquot/task-prolog.sh, which calls aliquot slurm task-prolog"
            yield warning("NO_TASK_PROLOG", inputs.file("slurm.conf"), sentence, fix)
            return


def nodes(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report nodes that are configured twice, and nodes that start drained without a reason."""
    seen: dict[str, str] = {}
    for line in inputs.node_lines:
        location = line.statement.location
        duplicate = next((name for name in line.names if name in seen), None)
        if duplicate is not None:
            yield error(
                "NODE_TWICE",
                location,
                f"{duplicate} is already configured at {seen[duplicate]}: slurmctld does not start",
            )
        seen.update((name, str(location)) for name in line.names)
        state = line.get("State").upper()
        if state in ("DRAIN", "DOWN", "FAIL", "FAILING") and not line.get("Reason"):
            sentence = f"State={state} without Reason=: operators cannot see why"
            fix = f'write {line.statement.head.value} ... Reason="why, and who"'
            yield warning("NO_REASON", location, sentence, fix)


def unknown_nodes(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report lines of gres.conf for nodes that slurm.conf does not name and that are not dynamic: misspelled names."""
    if inputs.slurm is None or not inputs.line_of:
        return
    registered = {node.name for node in inputs.live.nodes} if inputs.live else set()
    dynamic = inputs.slurm.get("MaxNodeCount") not in ("", "0")
    for line in inputs.gpu_lines:
        unknown = [n for n in line.nodes or () if n not in inputs.line_of and n not in registered]
        if unknown and not dynamic:
            sentence = f"slurm.conf has no node {unknown[0]}: this line has no effect"
            yield warning("UNKNOWN_NODE", line.location, sentence, "use the node's name from slurm.conf")


def edited_blocks(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report manually edited blocks, whose changes the next apply would lose, and nodes with two blocks."""
    seen: dict[str, int] = {}
    for source in inputs.gres.sources if inputs.gres else ():
        for block in blocks(source.text):
            location = ConfLocation(source.path, block.first)
            if block.node in seen:
                sentence = f"{block.node} has another managed block at line {seen[block.node]}"
                yield error("BLOCK_TWICE", location, sentence, "remove one of the blocks")
            seen.setdefault(block.node, block.first)
            if block.edited:
                sentence = f"the managed block of {block.node} was edited by hand"
                fix = "move your lines out of the block; 'aliquot slurm apply --force' replaces it"
                yield warning("HAND_EDITED", location, sentence, fix)
