"""Rules about GPUs of a node's host that the node does not offer: jobs there must not open them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from aliquot.slurm.check import minors
from aliquot.slurm.check.detect import kind
from aliquot.slurm.check.finding import Finding, Given, Group, error, warning
from aliquot.slurm.conf.gres import GresLine
from aliquot.slurm.conf.hosts import listed
from aliquot.slurm.conf.statements import Pair
from aliquot.slurm.files import fence

_TRUE = {"yes", "true", "up", "1"}


def neighbours(given: Given) -> Iterator[Finding]:
    """The GPUs of other records on the same host, and those that no record has."""
    pair = given.cgroup.last("ConstrainDevices") if given.cgroup else None
    if pair is None or pair.value.lower() not in _TRUE:
        return  # then nothing is fenced at all, which another rule says
    hosts = _Hosts(given)
    fenced = _by_node(given.fence_lines)
    for group in given.groups:
        own = _minors(group.gres)
        for name in group.names:
            detect = given.autodetect(name)
            if not own or (detect and kind(detect.value) not in ("", "off")):
                continue
            left = sorted((_of_machine(given, name) | hosts.gpus(name)) - own - _kept(fenced, name, group))
            if left:
                yield msgspec.structs.replace(_unfenced(group, left), nodes=(name,))


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


def _kept(fenced: dict[str, list[GresLine]], name: str, group: Group) -> set[int]:
    """The GPUs that the node's fence names; none where ``Gres=`` lacks its count, and slurmd drops the line."""
    if not fenced or (group.line and not _entries(group.line.pair("Gres"))):
        return set()
    return _minors([*fenced.get(name, ()), *fenced.get("", ())])


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
