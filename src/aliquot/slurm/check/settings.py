"""Rules about what GPUs need once for a cluster: GRES types, and the fence around each job."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.slurm.check.detect import kind
from aliquot.slurm.check.devices import opened
from aliquot.slurm.check.finding import Finding, Given, error, warning
from aliquot.slurm.client.models import Version
from aliquot.slurm.conf import counts
from aliquot.slurm.conf.statements import Conf

_SELECTS = Version(23, 2)
"""From here on cons_tres may be the default of SelectType (seen: linear in 22.05, cons_tres in 24.11)."""
_TRUE = {"yes", "true", "up", "1"}
_NO_DEVICES = "without it every job can open every instance, and CUDA's number of a device is another one"


def unreadable(given: Given) -> Iterator[Finding]:
    """What Slurm's own parser stumbles over. Of gres.conf and slurm.conf: the daemon does not start."""
    for conf in (given.slurm, given.gres, given.cgroup, given.helpers):
        for fault in conf.faults if conf else ():
            yield error("UNREADABLE", fault.place, fault.sentence)


def gres_types(given: Given) -> Iterator[Finding]:
    """Without GresTypes=gpu, slurmctld and slurmd leave every GPU out and say nothing."""
    if given.slurm is None:
        return
    pair = given.slurm.last("GresTypes")
    kinds = [kind.strip() for kind in pair.value.split(",")] if pair else []
    used = [line for line in given.node_lines if counts.entries(line.get("Gres"))]
    if "gpu" in kinds or not (used or given.gpu_lines):
        return
    place = pair.place if pair else given.file("slurm.conf")
    said = f"GresTypes={pair.value} lacks gpu" if pair else "GresTypes is missing"
    yield error("NO_GRES_TYPES", place, f"{said}: Slurm ignores every GPU", "GresTypes=gpu")


def fence(given: Given) -> Iterator[Finding]:
    """A job must not reach what it was not given."""
    cut = any(gres.slice for line in given.gpu_lines for gres in opened(line))
    cut = cut or any(gpu.mig.enabled for found in given.machines.values() for gpu in found.gpus)
    if not (given.gpu_lines or cut):
        return
    make = error if cut else warning
    place = given.file("cgroup.conf")
    pair = given.cgroup.last("ConstrainDevices") if given.cgroup else None
    if pair is None or pair.value.lower() not in _TRUE:
        said = f"ConstrainDevices={pair.value}" if pair else "ConstrainDevices is not set"
        sentence = f"{said}: {_NO_DEVICES}"
        yield make("OPEN_DEVICES", pair.place if pair else place, sentence, "ConstrainDevices=yes in cgroup.conf")
    plugin = given.cgroup.last("CgroupPlugin") if given.cgroup else None
    if plugin and plugin.value.lower() == "disabled":
        yield make(
            "OPEN_DEVICES", plugin.place, "CgroupPlugin=disabled: ConstrainDevices has no effect", "leave it out"
        )
    if given.slurm:
        yield from _plugins(given, given.slurm, make is error)


def _plugins(given: Given, slurm: Conf, cut: bool) -> Iterator[Finding]:
    make = error if cut else warning
    task = slurm.last("TaskPlugin")
    if task is None or "cgroup" not in task.value.lower():
        place = task.place if task else given.file("slurm.conf")
        said = f"TaskPlugin={task.value} has no task/cgroup" if task else "TaskPlugin is not set"
        sentence = f"{said}: ConstrainDevices has no effect"
        yield make("OPEN_DEVICES", place, sentence, "TaskPlugin=task/cgroup,task/affinity")
    select = slurm.last("SelectType")
    if select and select.value.lower().removeprefix("select/") not in ("cons_tres",):
        sentence = f"{select.value} knows nothing of GPUs: --gpus and --gpus-per-task are refused"
        yield warning("NO_GPU_SELECTION", select.place, sentence, "SelectType=select/cons_tres")
    elif not select and given.version and given.version < _SELECTS:
        sentence = f"SelectType is not set, and select/linear, the default of {given.version}, gives steps no typed GPU"
        yield warning("NO_GPU_SELECTION", given.file("slurm.conf"), sentence, "SelectType=select/cons_tres")


def task_prolog(given: Given) -> Iterator[Finding]:
    """Slurm gives a job the number of its GRES, and CUDA wants the UUID of a MIG device."""
    if given.slurm is None or given.slurm.get("TaskProlog"):
        return
    for group in given.groups:
        detected = [given.autodetect(name) for name in group.names]
        slices = [gres for line in group.gres for gres in opened(line) if gres.slice]
        if slices and not all(pair and kind(pair.value) not in ("", "off") for pair in detected):
            sentence = (
                "TaskProlog is not set: unless the site sets CUDA_VISIBLE_DEVICES in its own way, a job has Slurm's "
                "number in it; CUDA wants the UUID of a MIG device, and finds none"
            )
            fix = "TaskProlog=/usr/local/libexec/aliquot/task-prolog.sh, which calls aliquot slurm task-prolog"
            yield warning("NO_TASK_PROLOG", given.file("slurm.conf"), sentence, fix)
            return


def nodes(given: Given) -> Iterator[Finding]:
    """Nodes that stand there twice, and nodes that start drained without a word."""
    seen: dict[str, str] = {}
    for line in given.node_lines:
        place = line.statement.place
        again = next((name for name in line.names if name in seen), None)
        if again is not None:
            yield error(
                "NODE_TWICE", place, f"{again} is configured at {seen[again]} already: slurmctld does not start"
            )
        seen.update((name, str(place)) for name in line.names)
        state = line.get("State").upper()
        if state in ("DRAIN", "DOWN", "FAIL", "FAILING") and not line.get("Reason"):
            sentence = f"State={state} without Reason=: nobody will know why"
            yield warning("NO_REASON", place, sentence, f'{line.statement.head.value} ... Reason="why, and who"')


def unknown_nodes(given: Given) -> Iterator[Finding]:
    """Lines of gres.conf for nodes that slurm.conf does not name: misspelt, or dynamic."""
    if given.slurm is None or not given.line_of:
        return
    registered = {node.name for node in given.live.nodes} if given.live else set()
    dynamic = given.slurm.get("MaxNodeCount") not in ("", "0")
    for line in given.gpu_lines:
        strange = [n for n in line.nodes or () if n not in given.line_of and n not in registered]
        if strange and not dynamic:
            sentence = f"slurm.conf has no node {strange[0]}: nobody reads this line"
            yield warning("UNKNOWN_NODE", line.place, sentence, "the node's name as slurm.conf has it")
