"""gres.conf: the lines of a node, and the block of a file that is ours. Pure.

``AutoDetect``, as ``--autodetect`` names it: ``none`` writes explicit lines alone; ``off`` the same and says on each
that nothing is detected for this node, where the file has a global AutoDetect; ``nvml`` leaves files and cores to
slurmd's NVML plugin (21.08 for MIG; 23.02 names every profile right); ``nvidia`` reads /proc (24.11) and knows no MIG;
``full`` tries all (26.05). No AutoDetect works for CLOUD nodes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import msgspec

from aliquot.errors import BlockedError
from aliquot.integrations.slurm.devices import Device, Offering
from aliquot.integrations.slurm.errors import OldSlurmError
from aliquot.integrations.slurm.values import Version

AUTODETECT = ("none", "off", "nvml", "nvidia", "full")
ENVIRONMENTS = ("nvidia", "uuid", "none", "all")
"""What jobs get: CUDA_VISIBLE_DEVICES alone, the same with UUIDs (26.05, detected devices only), nothing, or every
vendor's variable, which is Slurm's own default."""

_FLAGS = {"nvidia": "nvidia_gpu_env", "uuid": "nvidia_gpu_env,env_uuid", "none": "no_gpu_env", "all": ""}
_SINCE = {"nvml": Version(21, 8), "nvidia": Version(24, 11), "full": Version(26, 5)}
_NAMES_RIGHT = Version(23, 2)
_UUID_SINCE = Version(26, 5)
_FLAGS_SINCE = Version(21, 8)

BEGIN = "# aliquot: begin {node} {digest}"
END = "# aliquot: end {node}"


class Form(msgspec.Struct, frozen=True):
    """How gres.conf says it. ``cores`` are Slurm's core numbers by PCI address, only for GPUs that have near ones.
    ``version`` is slurmd's, None where nobody knows: then nothing is refused for its age.
    """

    autodetect: str = "none"
    environment: str = "nvidia"
    cores: Mapping[str, str] = {}
    version: Version | None = None


def lines(node: str, offered: Offering, form: Form | None = None) -> tuple[str, ...]:
    """A node's lines. Raises OldSlurmError where slurmd's release cannot do it, BlockedError where detection would
    find something else than is there.
    """
    said = form or Form()
    _refuse_old(said)
    if said.autodetect in ("none", "off"):
        return tuple(_explicit(node, device, said) for device in offered.devices)
    _refuse_detection(offered, said)
    flags = _FLAGS[said.environment]
    # Without a count the plugin's findings stand as they are: whoever adds a GPU has nothing to change here.
    line = f"NodeName={node} AutoDetect={said.autodetect} Name=gpu"
    return (line + (f" Flags={flags}" if flags else ""),) if offered.devices else ()


def _explicit(node: str, device: Device, form: Form) -> str:
    words = [f"NodeName={node}"]
    if form.autodetect == "off":
        words.append("AutoDetect=off")
    key = "MultipleFiles" if len(device.files) > 1 else "File"
    words += ["Name=gpu", f"Type={device.type}", f"{key}={','.join(device.files)}"]
    if device.pci in form.cores:
        words.append(f"Cores={form.cores[device.pci]}")
    flags = _FLAGS[form.environment]
    return " ".join([*words, *([f"Flags={flags}"] if flags else [])])


def _refuse_old(form: Form) -> None:
    version = form.version
    if version is None:
        return
    since = _SINCE.get(form.autodetect)
    if since and version < since:
        raise OldSlurmError(
            f"AutoDetect={form.autodetect} came with Slurm {_short(since)}, and this is {version}",
            next_step="aliquot slurm render --autodetect none",
        )
    if form.environment == "uuid" and version < _UUID_SINCE:
        raise OldSlurmError(
            f"the flag env_uuid came with Slurm {_short(_UUID_SINCE)}, and this is {version}",
            details=("a TaskProlog exports the UUID on every release: 'aliquot slurm task-prolog'",),
            next_step="aliquot slurm render --env nvidia",
        )
    if version < _FLAGS_SINCE:
        raise OldSlurmError(
            f"Slurm {version} knows no GRES of several device files: MIG devices need {_short(_FLAGS_SINCE)}",
            next_step="slurmd -V",
        )


def _refuse_detection(offered: Offering, form: Form) -> None:
    """What the plugins would find must be what is there."""
    slices = [d for d in offered.devices if d.instance is not None]
    if slices and form.autodetect == "nvidia":
        raise BlockedError(
            "AutoDetect=nvidia knows no MIG: it would offer whole GPUs that are cut",
            details=tuple(f"GPU {n} is cut" for n in dict.fromkeys(d.gpu for d in slices)),
            next_step="aliquot slurm render --autodetect nvml",
        )
    if any("offers nothing: MIG mode is on" in note for note in offered.notes):
        raise BlockedError(
            "slurmd's NVML plugin counts a GPU whole that is in MIG mode without instances",
            details=tuple(n for n in offered.notes if "MIG mode is on" in n),
            next_step="aliquot slurm render --autodetect none",
        )
    strange = [d for d in slices if d.type not in _detected(d, form.version)]
    if strange:
        first = strange[0]
        raise BlockedError(
            f"slurmd's NVML plugin would call {first.type} {_detected(first, form.version)}: the node would be INVALID",
            details=("Slurm before 23.02 leaves the c and the + of a profile out and rounds memory otherwise",),
            next_step="aliquot slurm render --autodetect none",
        )


def _detected(device: Device, version: Version | None) -> str:
    """What the plugin of a release calls a MIG device."""
    if version is None or version >= _NAMES_RIGHT:
        return device.detected
    return re.sub(r"_(\d+c\.)?(\d+g\.\d+gb)[^_]*$", r"_\2", device.detected)


def _short(version: Version) -> str:
    return f"{version.major}.{version.minor:02}"


class Block(msgspec.Struct, frozen=True):
    """Our lines in a file that has others, too. ``first`` and ``last`` are the numbers of the marks' lines, from 1."""

    node: str
    first: int
    last: int
    digest: str
    lines: tuple[str, ...]

    @property
    def edited(self) -> bool:
        """Somebody else has changed it since."""
        return digest(self.lines) != self.digest


def digest(body: tuple[str, ...]) -> str:
    """Of the lines between the marks; spaces at their ends do not count."""
    return hashlib.sha256("\n".join(line.rstrip() for line in body).encode()).hexdigest()[:12]


def block(node: str, body: tuple[str, ...]) -> str:
    """Our lines with their marks, each line ended."""
    marks = BEGIN.format(node=node, digest=digest(body)), END.format(node=node)
    return "\n".join([marks[0], *body, marks[1]]) + "\n"


def blocks(text: str) -> tuple[Block, ...]:
    """The blocks of a file. One without an end reaches to the end of the file, or to the next beginning."""
    found: list[Block] = []
    start: tuple[int, str, str] | None = None
    body: list[str] = []

    def close(last: int) -> None:
        nonlocal start
        if start:
            found.append(Block(start[1], start[0], last, start[2], tuple(body)))
        start = None

    every = text.splitlines()
    for number, line in enumerate(every, start=1):
        words = line.split()
        if words[:3] == ["#", "aliquot:", "begin"] and len(words) > 3:
            close(number - 1)
            start, body = (number, words[3], words[4] if len(words) > 4 else ""), []
        elif words[:3] == ["#", "aliquot:", "end"] and start and words[3:] == [start[1]]:
            close(number)
        elif start:
            body.append(line)
    close(len(every))
    return tuple(found)


def placed(text: str, node: str, body: tuple[str, ...]) -> str:
    """A file with a node's block made so: in its place, or at the end. Everything else stays byte for byte. Without
    lines the block goes.
    """
    mine = [each for each in blocks(text) if each.node == node]
    kept = text.splitlines(keepends=True)
    new = [block(node, body)] if body else []
    if not mine:
        gap = "" if not text or text.endswith("\n") else "\n"
        return text + gap + "".join(new)
    for each in reversed(mine):
        kept[each.first - 1 : each.last] = new if each is mine[0] else []
    return "".join(kept)
