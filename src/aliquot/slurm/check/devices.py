"""Rules for the device files of gres.conf: each GRES must be one MIG device or one whole GPU, and offered only once."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from aliquot.slurm.check import minors, slots
from aliquot.slurm.check.finding import CheckInput, NodeGroup, SlurmFinding, SlurmRule, error, warning
from aliquot.slurm.check.minors import MigCapability
from aliquot.slurm.conf.gres import GresLine
from aliquot.slurm.conf.hosts import expand_leniently
from aliquot.slurm.conf.statements import ConfLocation

_RENDER = "aliquot slurm render"


class GresAccess(msgspec.Struct, frozen=True):
    """The GPUs and capabilities that the files of one GRES give access to."""

    line: GresLine
    files: tuple[str, ...]
    gpus: tuple[int, ...]
    capabilities: tuple[MigCapability, ...]
    unknown_minors: tuple[int, ...]
    """Minors of capabilities that do not belong to an instance."""

    @property
    def location(self) -> ConfLocation:
        return self.line.location

    @property
    def is_mig(self) -> bool:
        """True for a MIG device, or for what is meant to be one."""
        return bool(self.capabilities or self.unknown_minors)


def gres_accesses(line: GresLine) -> Iterator[GresAccess]:
    """Yield the device access of each GRES of a line. Pads of a slot board stand for no device.

    The other records of a board begin with a marker, which gives access to nothing.
    """
    for files in () if slots.is_pad(line) else line.devices:
        caps = [m for m in map(minors.capability_minor, files) if m is not None]
        known = [(m, minors.capability(m)) for m in caps]
        yield GresAccess(
            line,
            files,
            tuple(m for m in map(minors.gpu_minor, files) if m is not None),
            tuple(c for _, c in known if c is not None),
            tuple(m for m, c in known if c is None),
        )


def lines(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Check each line on its own."""
    for line in inputs.gpu_lines:
        for gres in gres_accesses(line):
            yield from _admin(gres)
            if gres.is_mig:
                yield from _lone(gres) if not line.multiple else _belongs(gres)


def _admin(gres: GresAccess) -> Iterator[SlurmFinding]:
    for minor in gres.unknown_minors:
        rule: SlurmRule = "WRONG_MINOR"
        sentence = f"nvidia-cap{minor} does not belong to an instance"
        admin = minors.ADMIN.get(minor)
        if admin is not None:
            rule = "ADMIN_CAPABILITY"
            sentence = f"nvidia-cap{minor} is {admin}: jobs must not have it"
        yield error(rule, gres.location, sentence, _mig_files("/dev/nvidiaN"), _RENDER)


def _lone(gres: GresAccess) -> Iterator[SlurmFinding]:
    """Report a capability in ``File=``.

    ``File=`` makes one GRES of each file: either a capability without its GPU, or a GPU without the capability.
    """
    opens = f" ({gres.capabilities[0]})" if gres.capabilities else ""
    sentence = f"File= offers only {_base(gres.files[0])}: a job cannot use it without the GPU's device node"
    device = f"/dev/nvidia{gres.capabilities[0].gpu}" if gres.capabilities else "/dev/nvidiaN"
    yield error("LONE_CAPABILITY", gres.location, f"{sentence}{opens}", _mig_files(device), _RENDER)


def _belongs(gres: GresAccess) -> Iterator[SlurmFinding]:
    """Report files that are not one GPU, one GPU instance on it, and one compute instance within that."""
    outer = [c for c in gres.capabilities if c.ci is None]
    inner = [c for c in gres.capabilities if c.ci is not None]
    first = gres.capabilities[0] if gres.capabilities else None
    if first is None:
        return
    if not gres.gpus:
        yield error(
            "NO_GPU_NODE", gres.location, f"the GPU's device node is missing: {first}", f"add /dev/nvidia{first.gpu}"
        )
    elif len(gres.gpus) > 1:
        yield error("MIXED_INSTANCES", gres.location, "it offers several GPUs with one GPU instance", _mig_files(""))
    elif any(c.gpu != gres.gpus[0] for c in gres.capabilities):
        other = next(c for c in gres.capabilities if c.gpu != gres.gpus[0])
        sentence = f"nvidia-cap{other.minor} is {other}, not on /dev/nvidia{gres.gpus[0]}"
        right = MigCapability(gres.gpus[0], other.gi, other.ci).minor
        yield error("WRONG_MINOR", gres.location, sentence, f"there it would be nvidia-cap{right}", _RENDER)
    if not inner:
        sentence = f"the compute instance is missing: {first}"
        yield error(
            "HALF_INSTANCE", gres.location, sentence, f"add nvidia-cap{first.minor + 1}, its compute instance 0"
        )
    elif not outer:
        sentence = f"the GPU instance is missing: {first}"
        yield error("HALF_INSTANCE", gres.location, sentence, f"add nvidia-cap{first.parent.minor}, its GPU instance")
    elif len(outer) > 1 or len(inner) > 1:
        yield error("MIXED_INSTANCES", gres.location, "it offers several instances as one", "write a line for each")
    elif inner[0].parent != outer[0] and inner[0].gpu == outer[0].gpu:
        sentence = f"nvidia-cap{inner[0].minor} is {inner[0]}, which is not in {outer[0]}"
        fix = f"use a compute instance of nvidia-cap{outer[0].minor}: its minors come right after"
        yield error("WRONG_MINOR", gres.location, sentence, fix, _RENDER)


def twice(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report GPUs and instances that one node offers more than once."""
    for group in inputs.groups:
        for finding in _twice(group):
            yield msgspec.structs.replace(finding, nodes=group.names)


def _twice(group: NodeGroup) -> Iterator[SlurmFinding]:
    every = [gres for line in group.gres for gres in gres_accesses(line)]
    first: dict[int | MigCapability, GresAccess] = {}
    for gres in every:
        whole = () if gres.is_mig else gres.gpus
        devices: tuple[int | MigCapability, ...] = (*whole, *_compute_instances(gres))
        for device in devices:
            if device in first:
                yield _same(gres, first[device], _name(device))
            first.setdefault(device, gres)
    for gpu, gres in first.items():
        mig_gres = next(
            (g for g in every if g.is_mig and (gpu in g.gpus or any(c.gpu == gpu for c in g.capabilities))), None
        )
        if mig_gres:
            place = _line(mig_gres.location, gres.location)
            sentence = f"/dev/nvidia{gpu} is offered whole, and as MIG devices at {place}"
            yield error("COUNTED_TWICE", gres.location, sentence, "remove the line for the whole GPU", _RENDER)


def shared(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report devices that several node records of one host share.

    Each record (one slurmd per GPU) must have its own devices. CLOUD records are exempt, because only one of them is up
    at a time.
    """
    hosts: dict[str, dict[str, None]] = {}
    for line in inputs.node_lines:
        if not line.cloud and line.pair("NodeHostname"):
            for name, host in zip(line.names, expand_leniently(line.get("NodeHostname")), strict=False):
                hosts.setdefault(host, {})[name] = None
    for host, names in hosts.items():
        if len(names) > 1:
            yield from _shared(inputs, host, names)


def _shared(inputs: CheckInput, host: str, names: Collection[str]) -> Iterator[SlurmFinding]:
    owners: dict[object, str] = {}
    reported: set[tuple[str, str]] = set()
    for line in inputs.gpu_lines:
        for name in (n for n in line.nodes or () if n in names):
            for gres in gres_accesses(line):
                for what in _compute_instances(gres) or gres.gpus:
                    owner = owners.setdefault(what, name)
                    if owner != name and (owner, name) not in reported:
                        reported.add((owner, name))
                        sentence = f"{owner} and {name}, both on {host}, each offer {_name(what)}: jobs would share it"
                        fix = "give each record its own GPUs"
                        yield warning("SHARED_BY_NODES", line.location, sentence, fix, _RENDER)


def _compute_instances(gres: GresAccess) -> tuple[MigCapability, ...]:
    return tuple(c for c in gres.capabilities if c.ci is not None)


def _name(device: int | MigCapability) -> str:
    return f"/dev/nvidia{device}" if isinstance(device, int) else str(device)


def _same(gres: GresAccess, first: GresAccess, what: str) -> SlurmFinding:
    sentence = f"{what} is already offered at {_line(first.location, gres.location)}: two jobs would share it"
    return error("SAME_DEVICE", gres.location, sentence, "remove one of the lines", _RENDER)


def _line(location: ConfLocation, relative_to: ConfLocation) -> str:
    return f"line {location.line}" if location.file == relative_to.file else str(location)


def _base(file: str) -> str:
    return file.rpartition("/")[2]


def _mig_files(gpu: str) -> str:
    return f"use MultipleFiles={gpu or '/dev/nvidiaN'} and the capabilities of the GPU instance and compute instance"


def missing(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report device files that this host lacks: slurmd waits 20 seconds for each, and does not start."""
    for line in inputs.gpu_lines if inputs.local_node else ():
        gone = [file for file in line.files if file in inputs.absent]
        if gone and line.serves(inputs.local_node):
            sentence = f"{gone[0]} does not exist" + (f" (and {len(gone) - 1} more)" if len(gone) > 1 else "")
            yield error(
                "FILE_MISSING", line.location, f"{sentence}: slurmd does not start", "create the device nodes", _RENDER
            )
