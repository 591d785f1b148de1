"""Rules that compare the files with the host: they must offer the GPUs and instances that exist now."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Inventory
from aliquot.foundation.decimals import counted
from aliquot.slurm.check.detect import kind
from aliquot.slurm.check.devices import GresAccess, gres_accesses
from aliquot.slurm.check.finding import CheckInput, NodeGroup, SlurmFinding, error, warning
from aliquot.slurm.check.minors import MigCapability
from aliquot.slurm.check.numbers import MOST
from aliquot.slurm.conf.counts import entries
from aliquot.slurm.conf.gres import GresLine
from aliquot.slurm.conf.statements import ConfPair
from aliquot.slurm.gpus import gres_types as types

_PROFILE = re.compile(r"(?:^|_)((?:\d+c\.)?\d+g\.\d+gb[^_]*)$")
_APPLY = "aliquot slurm apply"
_Slices = dict[MigCapability, tuple[Gpu, GpuInstance, ComputeInstance]]


def compared(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Compare each node whose GPUs are known with its lines."""
    hosts = _Hosts(inputs)
    for name, found, group in inputs.known_nodes():
        for finding in (*_lines(found, group), *_types(found, group), *_whole(hosts, name, found, group)):
            yield msgspec.structs.replace(finding, nodes=(name,))


def _lines(found: Inventory, group: NodeGroup) -> Iterator[SlurmFinding]:
    gpus = {gpu.minor: gpu for gpu in found.gpus}
    slices = _slices(found)
    for line in group.gres:
        for gres in gres_accesses(line):
            unknown = next((m for m in gres.gpus if m not in gpus), None)
            if unknown is not None:
                sentence = f"/dev/nvidia{unknown} does not exist: the node has {counted(len(gpus), 'GPU')}"
                fix = "limit the line with NodeName= to nodes that have this GPU"
                yield error("NO_SUCH_GPU", gres.location, sentence, fix, _APPLY)
            elif gres.is_mig:
                yield from _slice(gres, slices, gpus)
            else:
                yield from _for_jobs(gres, gpus)


def _slice(gres: GresAccess, slices: _Slices, gpus: dict[int, Gpu]) -> Iterator[SlurmFinding]:
    """Report a MIG device that does not exist, or whose profile differs from its type."""
    inner = next((c for c in gres.capabilities if c.ci is not None), None)
    if inner is None:
        return
    if inner not in slices:
        sentence = f"there is no {inner} (nvidia-cap{inner.minor})"
        yield error("NO_SUCH_INSTANCE", gres.location, sentence + _instead(gpus.get(inner.gpu)), "", _APPLY)
        return
    gpu, instance, compute = slices[inner]
    profile_match = _PROFILE.search(gres.line.type.lower())
    if profile_match and profile_match[1] not in (compute.profile, instance.profile):
        sentence = f"Type={gres.line.type}, but {inner} is a {compute.profile}"
        fix = f"use Type={types.type_of(gpu, instance, compute)}"
        yield error("WRONG_TYPE", gres.location, sentence, fix, _APPLY)


def _instead(gpu: Gpu | None) -> str:
    if gpu is None:
        return ""
    if not gpu.mig.enabled:
        return f": GPU {gpu.index} is not in MIG mode"
    have = ", ".join(f"{i.id} ({i.profile})" for i in gpu.instances)
    return f": GPU {gpu.index} has {have or 'none'}"


def _for_jobs(gres: GresAccess, gpus: dict[int, Gpu]) -> Iterator[SlurmFinding]:
    """Report a GPU that is offered whole although jobs cannot use it whole."""
    for gpu in (gpus[m] for m in gres.gpus):
        why = _unusable(gpu)
        if why:
            yield error(
                "NOT_WHOLE", gres.location, f"/dev/nvidia{gpu.minor} is offered whole, but it {why}", "", _APPLY
            )
        profile_match = _PROFILE.search(gres.line.type.lower())
        if profile_match and not why:
            sentence = f"Type={gres.line.type}, but /dev/nvidia{gpu.minor} is a whole {gpu.product}"
            yield error("WRONG_TYPE", gres.location, sentence, f"use Type={types.whole_type(gpu)}", _APPLY)


def _unusable(gpu: Gpu) -> str:
    if gpu.lost:
        return "has fallen off the bus"
    if gpu.passthrough:
        return "is passed through to a VM"
    if gpu.vgpus:
        return "hosts vGPUs"
    return "is in MIG mode: jobs cannot run on the whole GPU" if gpu.mig.enabled else ""


def _types(found: Inventory, group: NodeGroup) -> Iterator[SlurmFinding]:
    """Report types of slurm.conf that no GPU of the node supports."""
    pair = group.line.pair("Gres") if group.line else None
    for entry in entries(pair.value) if pair else ():
        if pair is None or not entry.type or not entry.count or entry.error:
            continue
        if _PROFILE.search(entry.type.lower()) and not types.profile_of(entry.type, found.gpus, found.tables):
            sentence = f"Gres={entry.text}: no GPU of the node ({_products(found)}) supports that profile"
            yield error("UNKNOWN_TYPE", pair.location, sentence, "", "aliquot profiles")


def _whole(hosts: _Hosts, name: str, found: Inventory, group: NodeGroup) -> Iterator[SlurmFinding]:
    """Report GPUs and MIG devices of the host that the files do not offer. With AutoDetect, predict what it finds."""
    inputs = hosts.given
    pair = group.line.pair("Gres") if group.line else None
    detect = inputs.autodetect(name)
    location = group.gres[0].location if group.gres else (pair.location if pair else inputs.file("gres.conf"))
    if detect and kind(detect.value) not in ("", "off"):
        if pair and kind(detect.value) == "nvml":
            yield from _detection(found, pair)
        return
    every = [gres for line in hosts.lines(name) for gres in gres_accesses(line)]
    offered_instances = {c for gres in every for c in gres.capabilities if c.ci is not None}
    left = [c for c in _slices(found) if c not in offered_instances]
    offered_gpus = {m for gres in every if not gres.is_mig for m in gres.gpus}
    idle = [g.minor for g in found.gpus if not _unusable(g) and g.minor not in offered_gpus]
    words = [str(c) for c in left] + [f"/dev/nvidia{m}" for m in idle]
    if words and (group.gres or pair):
        more = f" and {counted(len(words) - 1, 'other')}" if len(words) > 1 else ""
        yield warning("NOT_OFFERED", location, f"no line offers {words[0]}{more}", "", _APPLY)


class _Hosts:
    """The lines of each host: those of all its node records (one per slurmd), and those for every node.

    The host of a dynamic node is unknown here, so its lines count as lines of every host that slurm.conf does not name.
    Clusters have thousands of nodes, so each line is read once.
    """

    def __init__(self, inputs: CheckInput) -> None:
        self.given = inputs
        self._by_host: dict[str, dict[int, GresLine]] = {}
        self._all = {n: line for n, line in enumerate(inputs.gpu_lines) if line.nodes is None}
        for n, line in enumerate(inputs.gpu_lines):
            for name in line.nodes or ():
                self._by_host.setdefault(self._host(name), {})[n] = line

    def lines(self, name: str) -> list[GresLine]:
        """Return the lines of a node's host in the order of the file."""
        found = self._by_host.get(self._host(name), {}) | self._all
        return [found[n] for n in sorted(found)]

    def _host(self, name: str) -> str:
        line = self.given.line_of.get(name)
        return (line.get("NodeHostname") or name) if line else ""


def _slices(found: Inventory) -> _Slices:
    """Return every MIG device by the capability of its compute instance."""
    return {
        MigCapability(gpu.minor, instance.id, compute.id): (gpu, instance, compute)
        for gpu in found.gpus
        if gpu.mig.enabled and not gpu.passthrough and not gpu.vgpus
        for instance in gpu.instances
        for compute in instance.compute_instances
    }


def numbered(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Compare the minors on the host with the formula that the files are written by."""
    for name, found, _ in inputs.known_nodes():
        for cap, (_, instance, compute) in _slices(found).items():
            for minor, right in ((instance.capability_minor, cap.parent), (compute.capability_minor, cap)):
                if minor not in (-1, right.minor):
                    sentence = f"{right} has minor {minor} on {name}, but {right.minor} by the formula"
                    yield error("WRONG_MINOR", inputs.file("gres.conf"), sentence, "", "aliquot show")


def _detection(found: Inventory, pair: ConfPair) -> Iterator[SlurmFinding]:
    """Report types that slurmd matches wrongly, or not at all, when it detects GPUs.

    slurmd goes through the devices that NVML finds, longest name first, and gives each the longest remaining type that
    is part of its name (gres_gpu.c). A type that is left over makes the node INVALID.
    """
    entered = entries(pair.value)
    if any(entry.error for entry in entered):
        return
    left = sorted((e.type for e in entered for _ in range(min(e.count, MOST))), key=lambda t: (-len(t), t))
    names = [(types.detected_type(*each), True) for each in _slices(found).values()]
    names += [(types.detected_type(gpu, None, None), False) for gpu in found.gpus if not _unusable(gpu)]
    fix = f"detection finds {', '.join(dict.fromkeys(name for name, _ in names)) or 'nothing'}"
    for name, is_mig in sorted(names, key=lambda n: (-len(n[0]), n[0])):
        match = next((t for t in left if t.lower() in name), None)
        if match is None:
            continue
        left.remove(match)
        if match and is_mig and not _PROFILE.search(match.lower()):
            sentence = f"Gres={pair.value}: AutoDetect=nvml counts the MIG device {name} as {match}"
            yield error("AUTODETECT_TYPE", pair.location, sentence, fix, _APPLY)
    for kind_left in dict.fromkeys(left):
        sentence = f"Gres={pair.value}: AutoDetect=nvml finds {left.count(kind_left)} too few of {kind_left or 'them'}"
        yield error("AUTODETECT_TYPE", pair.location, f"{sentence}: the node will be INVALID", fix, _APPLY)


def _products(found: Inventory) -> str:
    return ", ".join(dict.fromkeys(gpu.product for gpu in found.gpus)) or "it has none"
