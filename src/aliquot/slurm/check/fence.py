"""Rules about what jobs of a node must not open: GPUs of its host that it does not offer, and the administrators'
capabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from aliquot.slurm.check import minors
from aliquot.slurm.check.detect import kind
from aliquot.slurm.check.finding import CheckInput, NodeGroup, SlurmFinding, error, warning
from aliquot.slurm.conf.gres import GresLine
from aliquot.slurm.conf.hosts import expand_leniently
from aliquot.slurm.conf.statements import ConfLocation, ConfPair
from aliquot.slurm.files import fence
from aliquot.slurm.files.fence import ADMIN, has_instances

MODES = {1: 0o400, 2: 0o444}
"""What the driver asks for the administrators' capabilities (DeviceFileMode in /proc/driver/nvidia/capabilities)."""
_TRUE = {"yes", "true", "up", "1"}


def neighbours(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """The GPUs of other records on the same host, and those that no record has."""
    if not _constrained(inputs):
        return
    hosts = _Hosts(inputs)
    fenced = _by_node(inputs.fence_lines)
    for group in inputs.groups:
        own = _minors(group.gres)
        for name in group.names:
            detect = inputs.autodetect(name)
            if not own or (detect and kind(detect.value) not in ("", "off")):
                continue
            unfenced = sorted(
                (_host_minors(inputs, name) | hosts.gpus(name)) - own - _minors(_fence_lines(fenced, name, group))
            )
            if unfenced:
                yield msgspec.structs.replace(_unfenced(group, unfenced), nodes=(name,))


def administrators(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """The capabilities to change and to watch all instances: fenced, and with the modes that the driver gives them."""
    fenced = _by_node(inputs.fence_lines)
    for group in inputs.groups if _constrained(inputs) else ():
        for name in group.names:
            unfenced = sorted(set(ADMIN) - _capabilities(fenced, name, group))
            if unfenced and _has_instances(inputs, name, group):
                yield msgspec.structs.replace(_unfenced_admin(inputs, group, unfenced), nodes=(name,))
    for minor, mode in sorted(inputs.modes.items()):
        if mode & ~MODES[minor]:
            sentence = f"nvidia-cap{minor} is {minors.ADMIN[minor]}, and its mode is {mode:04o}: the driver's is "
            path = f"/dev/nvidia-caps/nvidia-cap{minor}"
            fix = f"chmod {MODES[minor]:04o} {path}, and look for what set it (udev rules, nvidia-modprobe)"
            yield error("ADMIN_MODE", ConfLocation(path), f"{sentence}{MODES[minor]:04o}", fix)


def _constrained(inputs: CheckInput) -> bool:
    """Whether anything is fenced at all; that nothing is another rule says."""
    pair = inputs.cgroup.last("ConstrainDevices") if inputs.cgroup else None
    return pair is not None and pair.value.lower() in _TRUE


def _has_instances(inputs: CheckInput, name: str, group: NodeGroup) -> bool:
    """Whether a node has slices, as far as its lines or its machine say it."""
    inventory = inputs.inventories.get(name)
    lines = any(minors.capability_minor(file) is not None for line in group.gres for file in line.files)
    return lines or (inventory is not None and has_instances(inventory.gpus))


def _capabilities(fenced: dict[str, list[GresLine]], name: str, group: NodeGroup) -> set[int | None]:
    """The capabilities that the node's fence names."""
    return {minors.capability_minor(file) for line in _fence_lines(fenced, name, group) for file in line.files}


def _unfenced_admin(inputs: CheckInput, group: NodeGroup, unfenced: list[int]) -> SlurmFinding:
    names = " and ".join(f"nvidia-cap{minor} ({minors.ADMIN[minor].partition(',')[0]})" for minor in unfenced)
    fix = f"GresTypes=gpu,{fence.NAME} in slurm.conf; then Gres=...,{fence.VALUE}, and a line of gres.conf"
    location = group.gres[0].location if group.gres else inputs.file("gres.conf")
    return warning(
        "ADMIN_NOT_FENCED", location, f"jobs can open {names}: no line fences it", fix, "aliquot slurm apply"
    )


def _unfenced(group: NodeGroup, unfenced: list[int]) -> SlurmFinding:
    more = f" and {len(unfenced) - 1} more" if len(unfenced) > 1 else ""
    sentence = f"jobs can open /dev/nvidia{unfenced[0]}{more}, which is on this host and not this node's"
    fix = f"GresTypes=gpu,{fence.NAME} in slurm.conf; then Gres=...,{fence.VALUE}, and a line of gres.conf"
    return warning("NOT_FENCED", group.gres[0].location, sentence, fix, "aliquot slurm apply")


def _minors(lines: Iterable[GresLine]) -> set[int]:
    """The GPUs that lines are about, whole or in part."""
    found = (minors.gpu_minor(file) for line in lines for file in line.files)
    return {minor for minor in found if minor is not None}


def _by_node(lines: Iterable[GresLine]) -> dict[str, list[GresLine]]:
    """The lines of each node; under ``""`` those of every node."""
    found: dict[str, list[GresLine]] = {}
    for line in lines:
        for name in ("",) if line.nodes is None else line.nodes:
            found.setdefault(name, []).append(line)
    return found


def _host_minors(inputs: CheckInput, name: str) -> set[int]:
    inventory = inputs.inventories.get(name)
    return {g.minor for g in inventory.gpus if g.minor >= 0 and not g.passthrough} if inventory else set()


class _Hosts:
    """Which nodes share a host, as far as slurm.conf says it. Clusters have thousands of nodes: each line is looked at
    once.
    """

    def __init__(self, inputs: CheckInput) -> None:
        self._host = {
            name: host
            for line in inputs.node_lines
            if line.pair("NodeHostname")
            for name, host in zip(line.names, expand_leniently(line.get("NodeHostname")), strict=False)
        }
        self._gpus: dict[str, set[int]] = {}
        for name, lines in _by_node(inputs.gpu_lines).items() if self._host else ():
            if name in self._host:
                self._gpus.setdefault(self._host[name], set()).update(_minors(lines))

    def gpus(self, name: str) -> set[int]:
        """The GPUs that the lines of all nodes of this node's host are about."""
        return self._gpus.get(self._host.get(name, ""), set())


def _fence_lines(fenced: dict[str, list[GresLine]], name: str, group: NodeGroup) -> list[GresLine]:
    """The lines of the node's fence; none where ``Gres=`` lacks its count, and slurmd drops them."""
    if not fenced or (group.line and not _entries(group.line.pair("Gres"))):
        return []
    return [*fenced.get(name, ()), *fenced.get("", ())]


def allocatable_fences(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """A fence that jobs could be given, and one that nobody reads."""
    kinds = {word.strip() for word in inputs.slurm.get("GresTypes").split(",")} if inputs.slurm else set()
    for line in inputs.node_lines:
        pair = line.statement.pair("Gres")
        for word in _entries(pair):
            if pair and "no_consume" not in word.split(":"):
                sentence = f"Gres={word}: a job that asks for {fence.NAME}, or for the whole node, is given other GPUs"
                yield error("FENCE_HANDED_OUT", pair.location, sentence, fence.VALUE, "aliquot slurm apply")
            if pair and fence.NAME not in kinds:
                sentence = f"Gres={word}, and GresTypes lacks {fence.NAME}: nothing is fenced"
                yield error("NO_GRES_TYPES", pair.location, sentence, f"GresTypes=gpu,{fence.NAME}")


def _entries(pair: ConfPair | None) -> list[str]:
    words = pair.value.split(",") if pair else []
    return [word for word in words if fence.is_fence(word)]


def missing(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Files of the fence that are not on this machine's disk."""
    for line in inputs.fence_lines if inputs.local_node else ():
        gone = [file for file in line.files if file in inputs.absent]
        if gone and line.serves(inputs.local_node):
            sentence = f"{gone[0]} is not there: slurmd does not start"
            fix = "make the device nodes"
            yield error("FILE_MISSING", line.location, sentence, fix, "aliquot slurm render --make-devices")
