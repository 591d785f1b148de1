"""Rules for devices that jobs of a node must not open: GPUs of its host that it does not offer, and the administrators'
capabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from aliquot.slurm.check import minors, slots
from aliquot.slurm.check.detect import kind
from aliquot.slurm.check.finding import CheckInput, NodeGroup, SlurmFinding, error, warning
from aliquot.slurm.conf.gres import GresLine
from aliquot.slurm.conf.hosts import expand_leniently
from aliquot.slurm.conf.statements import ConfLocation, ConfPair
from aliquot.slurm.files import fence
from aliquot.slurm.files.fence import ADMIN, has_instances

MODES = {1: 0o400, 2: 0o444}
"""File modes that the driver requests for these capabilities (DeviceFileMode in /proc/driver/nvidia/capabilities)."""
_TRUE = {"yes", "true", "up", "1"}
_FENCE_FIX = (
    f"set GresTypes=gpu,{fence.NAME} in slurm.conf, add {fence.VALUE} to Gres=, and add a fence line to gres.conf"
)


def neighbours(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report unfenced GPUs of the same host that belong to other records, or to no record."""
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
    """Report administrators' capabilities that are not fenced, or that are more open than the driver makes them.

    They allow their holder to change (mig/config) or to monitor (mig/monitor) all instances.
    """
    fenced = _by_node(inputs.fence_lines)
    for group in inputs.groups if _constrained(inputs) else ():
        for name in group.names:
            unfenced = sorted(set(ADMIN) - _capabilities(fenced, name, group))
            if unfenced and _has_instances(inputs, name, group):
                yield msgspec.structs.replace(_unfenced_admin(inputs, group, unfenced), nodes=(name,))
    for minor, mode in sorted(inputs.modes.items()):
        if mode & ~MODES[minor]:
            sentence = f"nvidia-cap{minor} is {minors.ADMIN[minor]}, and its mode is {mode:04o}: the driver sets "
            path = f"/dev/nvidia-caps/nvidia-cap{minor}"
            fix = f"run chmod {MODES[minor]:04o} {path}, then find what changed it (udev rules, nvidia-modprobe)"
            yield error("ADMIN_MODE", ConfLocation(path), f"{sentence}{MODES[minor]:04o}", fix)


def _constrained(inputs: CheckInput) -> bool:
    """Report whether ConstrainDevices is on. Another rule reports that it is off."""
    pair = inputs.cgroup.last("ConstrainDevices") if inputs.cgroup else None
    return pair is not None and pair.value.lower() in _TRUE


def _has_instances(inputs: CheckInput, name: str, group: NodeGroup) -> bool:
    """Report whether a node has MIG devices, according to its lines or its inventory."""
    inventory = inputs.inventories.get(name)
    lines = any(minors.capability_minor(file) is not None for line in group.gres for file in line.files)
    return lines or (inventory is not None and has_instances(inventory.gpus))


def _capabilities(fenced: dict[str, list[GresLine]], name: str, group: NodeGroup) -> set[int | None]:
    """Return the minors of the capabilities in the node's fence, or in its pads; None for other files."""
    pads = [line for line in group.gres if slots.is_pad(line)]
    return {
        minors.capability_minor(file) for line in (*_fence_lines(fenced, name, group), *pads) for file in line.files
    }


def _unfenced_admin(inputs: CheckInput, group: NodeGroup, unfenced: list[int]) -> SlurmFinding:
    names = " and ".join(f"nvidia-cap{minor} ({minors.ADMIN[minor].name})" for minor in unfenced)
    location = group.gres[0].location if group.gres else inputs.file("gres.conf")
    sentence = f"jobs can open {names}: no line fences it"
    return warning("ADMIN_NOT_FENCED", location, sentence, _FENCE_FIX, "aliquot slurm apply")


def _unfenced(group: NodeGroup, unfenced: list[int]) -> SlurmFinding:
    more = f" and {len(unfenced) - 1} more" if len(unfenced) > 1 else ""
    sentence = f"jobs can open /dev/nvidia{unfenced[0]}{more}, which is on this host but does not belong to this node"
    return warning("NOT_FENCED", group.gres[0].location, sentence, _FENCE_FIX, "aliquot slurm apply")


def _minors(lines: Iterable[GresLine]) -> set[int]:
    """Return the minors of the GPUs in these lines, whole or partitioned."""
    found = (minors.gpu_minor(file) for line in lines for file in line.files)
    return {minor for minor in found if minor is not None}


def _by_node(lines: Iterable[GresLine]) -> dict[str, list[GresLine]]:
    """Return the lines of each node; those for every node are under ``""``."""
    found: dict[str, list[GresLine]] = {}
    for line in lines:
        for name in ("",) if line.nodes is None else line.nodes:
            found.setdefault(name, []).append(line)
    return found


def _host_minors(inputs: CheckInput, name: str) -> set[int]:
    inventory = inputs.inventories.get(name)
    return {g.minor for g in inventory.gpus if g.minor >= 0 and not g.passthrough} if inventory else set()


class _Hosts:
    """The GPUs of all node records of a host, according to slurm.conf.

    Clusters have thousands of nodes, so each line is read once.
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
        """Return the minors of the GPUs in the lines of all nodes on this node's host."""
        return self._gpus.get(self._host.get(name, ""), set())


def _fence_lines(fenced: dict[str, list[GresLine]], name: str, group: NodeGroup) -> list[GresLine]:
    """Return the lines of the node's fence; none if ``Gres=`` lacks the fence, because slurmd then drops them."""
    if not fenced or (group.line and not _entries(group.line.pair("Gres"))):
        return []
    return [*fenced.get(name, ()), *fenced.get("", ())]


def long_lists(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report nodes with more device files than an old release can surely deny to jobs."""
    plugin = inputs.cgroup.last("CgroupPlugin") if inputs.cgroup else None
    old = inputs.version is not None and inputs.version < fence.ANY_DEVICES
    if not old or not _constrained(inputs) or (plugin is not None and plugin.value.lower() == "cgroup/v1"):
        return
    fenced = _by_node(inputs.fence_lines)
    for group in inputs.groups:
        for name in group.names:
            lines = (*group.gres, *_fence_lines(fenced, name, group))
            count = len({file for line in lines for file in line.files})
            if count > fence.FEW_DEVICES:
                sentence = (
                    f"{count} device files: with control groups of version 2, Slurm {inputs.version} can fail to "
                )
                fix = "update Slurm to 23.02.4 or later, or use control groups of version 1"
                yield msgspec.structs.replace(
                    warning("LONG_DEVICE_LIST", lines[0].location, f"{sentence}deny them to jobs", fix),
                    nodes=(name,),
                )


def allocatable_fences(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report a fence that Slurm could allocate to jobs, and one that Slurm ignores."""
    kinds = {word.strip() for word in inputs.slurm.get("GresTypes").split(",")} if inputs.slurm else set()
    for line in inputs.node_lines:
        pair = line.statement.pair("Gres")
        for word in _entries(pair):
            if pair and "no_consume" not in word.split(":"):
                sentence = f"Gres={word}: a job that requests {fence.NAME}, or the whole node, gets the fenced devices"
                yield error("FENCE_HANDED_OUT", pair.location, sentence, f"use {fence.VALUE}", "aliquot slurm apply")
            if pair and fence.NAME not in kinds:
                sentence = f"Gres={word}, but GresTypes lacks {fence.NAME}: nothing is fenced"
                yield error("NO_GRES_TYPES", pair.location, sentence, f"set GresTypes=gpu,{fence.NAME}")


def _entries(pair: ConfPair | None) -> list[str]:
    words = pair.value.split(",") if pair else []
    return [word for word in words if fence.is_fence(word)]


def missing(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report files of the fence that this host lacks."""
    for line in inputs.fence_lines if inputs.local_node else ():
        gone = [file for file in line.files if file in inputs.absent]
        if gone and line.serves(inputs.local_node):
            sentence = f"{gone[0]} does not exist: slurmd does not start"
            fix = "create the device nodes"
            yield error("FILE_MISSING", line.location, sentence, fix, "aliquot slurm render --make-devices")
