"""Rules about what jobs of a node must not open: GPUs of its host that it does not offer, and the administrators'
capabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from aliquot.slurm.check import minors
from aliquot.slurm.check.detect import kind
from aliquot.slurm.check.finding import Finding, Given, Group, error, warning
from aliquot.slurm.conf.gres import GresLine
from aliquot.slurm.conf.hosts import listed
from aliquot.slurm.conf.statements import Pair, Place
from aliquot.slurm.files import fence
from aliquot.slurm.files.fence import ADMIN, cut

MODES = {1: 0o400, 2: 0o444}
"""What the driver asks for the administrators' capabilities (DeviceFileMode in /proc/driver/nvidia/capabilities)."""
_TRUE = {"yes", "true", "up", "1"}


def neighbours(given: Given) -> Iterator[Finding]:
    """The GPUs of other records on the same host, and those that no record has."""
    if not _constrained(given):
        return
    hosts = _Hosts(given)
    fenced = _by_node(given.fence_lines)
    for group in given.groups:
        own = _minors(group.gres)
        for name in group.names:
            detect = given.autodetect(name)
            if not own or (detect and kind(detect.value) not in ("", "off")):
                continue
            left = sorted((_of_machine(given, name) | hosts.gpus(name)) - own - _minors(_kept(fenced, name, group)))
            if left:
                yield msgspec.structs.replace(_unfenced(group, left), nodes=(name,))


def administrators(given: Given) -> Iterator[Finding]:
    """The capabilities to change and to watch all instances: fenced, and with the modes that the driver gives them."""
    fenced = _by_node(given.fence_lines)
    for group in given.groups if _constrained(given) else ():
        for name in group.names:
            left = sorted(set(ADMIN) - _capabilities(fenced, name, group))
            if left and _cut(given, name, group):
                yield msgspec.structs.replace(_watched(given, group, left), nodes=(name,))
    for minor, mode in sorted(given.modes.items()):
        if mode & ~MODES[minor]:
            sentence = f"nvidia-cap{minor} is {minors.ADMIN[minor]}, and its mode is {mode:04o}: the driver's is "
            path = f"/dev/nvidia-caps/nvidia-cap{minor}"
            fix = f"chmod {MODES[minor]:04o} {path}, and look for what set it (udev rules, nvidia-modprobe)"
            yield error("ADMIN_MODE", Place(path), f"{sentence}{MODES[minor]:04o}", fix)


def _constrained(given: Given) -> bool:
    """Whether anything is fenced at all; that nothing is another rule says."""
    pair = given.cgroup.last("ConstrainDevices") if given.cgroup else None
    return pair is not None and pair.value.lower() in _TRUE


def _cut(given: Given, name: str, group: Group) -> bool:
    """Whether a node has slices, as far as its lines or its machine say it."""
    machine = given.machines.get(name)
    lines = any(minors.capability_minor(file) is not None for line in group.gres for file in line.files)
    return lines or (machine is not None and cut(machine.gpus))


def _capabilities(fenced: dict[str, list[GresLine]], name: str, group: Group) -> set[int | None]:
    """The capabilities that the node's fence names."""
    return {minors.capability_minor(file) for line in _kept(fenced, name, group) for file in line.files}


def _watched(given: Given, group: Group, left: list[int]) -> Finding:
    names = " and ".join(f"nvidia-cap{minor} ({minors.ADMIN[minor].partition(',')[0]})" for minor in left)
    fix = f"GresTypes=gpu,{fence.NAME} in slurm.conf; then Gres=...,{fence.VALUE}, and a line of gres.conf"
    place = group.gres[0].place if group.gres else given.file("gres.conf")
    return warning("ADMIN_NOT_FENCED", place, f"jobs can open {names}: no line fences it", fix, "aliquot slurm apply")


def _unfenced(group: Group, left: list[int]) -> Finding:
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    sentence = f"jobs can open /dev/nvidia{left[0]}{more}, which is on this host and not this node's"
    fix = f"GresTypes=gpu,{fence.NAME} in slurm.conf; then Gres=...,{fence.VALUE}, and a line of gres.conf"
    return warning("NOT_FENCED", group.gres[0].place, sentence, fix, "aliquot slurm apply")


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


def _of_machine(given: Given, name: str) -> set[int]:
    machine = given.machines.get(name)
    return {g.minor for g in machine.gpus if g.minor >= 0 and not g.passthrough} if machine else set()


class _Hosts:
    """Which nodes share a host, as far as slurm.conf says it. Clusters have thousands of nodes: each line is looked at
    once.
    """

    def __init__(self, given: Given) -> None:
        self._host = {
            name: host
            for line in given.node_lines
            if line.pair("NodeHostname")
            for name, host in zip(line.names, listed(line.get("NodeHostname")), strict=False)
        }
        self._gpus: dict[str, set[int]] = {}
        for name, lines in _by_node(given.gpu_lines).items() if self._host else ():
            if name in self._host:
                self._gpus.setdefault(self._host[name], set()).update(_minors(lines))

    def gpus(self, name: str) -> set[int]:
        """The GPUs that the lines of all nodes of this node's host are about."""
        return self._gpus.get(self._host.get(name, ""), set())


def _kept(fenced: dict[str, list[GresLine]], name: str, group: Group) -> list[GresLine]:
    """The lines of the node's fence; none where ``Gres=`` lacks its count, and slurmd drops them."""
    if not fenced or (group.line and not _entries(group.line.pair("Gres"))):
        return []
    return [*fenced.get(name, ()), *fenced.get("", ())]


def handed_out(given: Given) -> Iterator[Finding]:
    """A fence that jobs could be given, and one that nobody reads."""
    kinds = {word.strip() for word in given.slurm.get("GresTypes").split(",")} if given.slurm else set()
    for line in given.node_lines:
        pair = line.statement.pair("Gres")
        for word in _entries(pair):
            if pair and "no_consume" not in word.split(":"):
                sentence = f"Gres={word}: a job that asks for {fence.NAME}, or for the whole node, is given other GPUs"
                yield error("FENCE_HANDED_OUT", pair.place, sentence, fence.VALUE, "aliquot slurm apply")
            if pair and fence.NAME not in kinds:
                sentence = f"Gres={word}, and GresTypes lacks {fence.NAME}: nothing is fenced"
                yield error("NO_GRES_TYPES", pair.place, sentence, f"GresTypes=gpu,{fence.NAME}")


def _entries(pair: Pair | None) -> list[str]:
    words = pair.value.split(",") if pair else []
    return [word for word in words if fence.ours(word)]


def missing(given: Given) -> Iterator[Finding]:
    """Files of the fence that are not on this machine's disk."""
    for line in given.fence_lines if given.here else ():
        gone = [file for file in line.files if file in given.absent]
        if gone and line.serves(given.here):
            sentence = f"{gone[0]} is not there: slurmd does not start"
            fix = "make the device nodes"
            yield error("FILE_MISSING", line.place, sentence, fix, "aliquot slurm render --make-devices")
