"""The lines of a node in gres.conf. Pure.

Values of ``AutoDetect``, as in ``--autodetect``:

- ``none`` writes only explicit lines.
- ``off`` does the same, and turns detection off on each line, for files with a global AutoDetect.
- ``nvml`` leaves files and cores to slurmd's NVML plugin (21.08 for MIG; 23.02 names every profile correctly).
- ``nvidia`` reads /proc (24.11) and does not support MIG.
- ``full`` tries all plugins (26.05).

No AutoDetect works for CLOUD nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import OldSlurmError
from aliquot.slurm.client.models import Version
from aliquot.slurm.files import fence
from aliquot.slurm.files.job_devices import GresDevice, OfferedDevices

AutoDetect = Literal["none", "off", "nvml", "nvidia", "full"]
JobEnvironment = Literal["nvidia", "uuid", "none", "all"]
"""The variables that jobs get: only CUDA_VISIBLE_DEVICES, the same with UUIDs (26.05, only detected devices), none, or
those of every vendor, which is Slurm's default.
"""

_FLAGS: dict[JobEnvironment, str] = {
    "nvidia": "nvidia_gpu_env",
    "uuid": "nvidia_gpu_env,env_uuid",
    "none": "no_gpu_env",
    "all": "",
}
_SINCE: dict[AutoDetect, Version] = {"nvml": Version(21, 8), "nvidia": Version(24, 11), "full": Version(26, 5)}
_NAMES_RIGHT = Version(23, 2)
_UUID_SINCE = Version(26, 5)
_FLAGS_SINCE = Version(21, 8)


class GresForm(msgspec.Struct, frozen=True):
    """The form of lines in gres.conf."""

    autodetect: AutoDetect = "none"
    environment: JobEnvironment = "nvidia"
    cores: Mapping[str, str] = {}
    """Slurm's core numbers by PCI address, for GPUs that have near cores."""
    version: Version | None = None
    """The version of slurmd. If it is None, nothing is refused because of an old release."""


def lines(node: str, offered: OfferedDevices, form: GresForm | None = None) -> tuple[str, ...]:
    """Return a node's lines.

    Raises OldSlurmError if slurmd's release does not support the form. Raises BlockedError if detection would find
    other devices than those offered.
    """
    chosen = form or GresForm()
    _refuse_old(chosen)
    fenced = (fence.line(node, offered.fenced),) if offered.fenced else ()
    if explicit(chosen):
        return (*(_explicit(node, device, chosen) for device in offered.devices), *fenced)
    _refuse_detection(offered, chosen)
    flags = _FLAGS[chosen.environment]
    line = f"NodeName={node} AutoDetect={chosen.autodetect}"
    # A plugin that finds NVIDIA GPUs sets that vendor's variable on its own.
    usual = chosen.environment == "nvidia" and chosen.autodetect != "full"
    line = line if usual or not flags else f"{line} Name=gpu Flags={flags}"
    return ((line,) if offered.devices else ()) + fenced


def explicit(form: GresForm) -> bool:
    """Report whether every device has a line and slurmd detects none."""
    return form.autodetect in ("none", "off")


def _explicit(node: str, device: GresDevice, form: GresForm) -> str:
    words = [f"NodeName={node}"]
    if form.autodetect == "off":
        words.append("AutoDetect=off")
    key = "MultipleFiles" if len(device.files) > 1 else "File"
    words += ["Name=gpu", f"Type={device.type}", f"{key}={','.join(device.files)}"]
    if device.pci in form.cores:
        words.append(f"Cores={form.cores[device.pci]}")
    flags = _FLAGS[form.environment]
    return " ".join([*words, *([f"Flags={flags}"] if flags else [])])


def _refuse_old(form: GresForm) -> None:
    version = form.version
    if version is None:
        return
    since = _SINCE.get(form.autodetect)
    if since and version < since:
        raise OldSlurmError(
            f"AutoDetect={form.autodetect} needs Slurm {since.release}, and this is {version}",
            next_step="aliquot slurm render --autodetect none",
        )
    if form.environment == "uuid" and version < _UUID_SINCE:
        raise OldSlurmError(
            f"the flag env_uuid needs Slurm {_UUID_SINCE.release}, and this is {version}",
            details=("A TaskProlog exports the UUID on every release: see 'aliquot slurm task-prolog'.",),
            next_step="aliquot slurm render --env nvidia",
        )
    if version < _FLAGS_SINCE:
        raise OldSlurmError(
            f"MIG devices need Slurm {_FLAGS_SINCE.release} (several device files per GRES), and this is {version}",
            next_step="slurmd -V",
        )


def _refuse_detection(offered: OfferedDevices, form: GresForm) -> None:
    """Raise BlockedError or OldSlurmError if slurmd's plugins would find other devices than those offered."""
    slices = [d for d in offered.devices if d.instance is not None]
    if slices and form.autodetect == "nvidia":
        raise BlockedError(
            "AutoDetect=nvidia does not support MIG: it would offer partitioned GPUs as whole ones",
            code="AUTODETECT",
            details=tuple(f"GPU {n} has MIG devices" for n in dict.fromkeys(d.gpu for d in slices)),
            next_step="aliquot slurm render --autodetect nvml",
        )
    if offered.visible:
        raise BlockedError(
            "slurmd's plugins would find GPUs that this node does not offer",
            code="AUTODETECT",
            details=offered.visible,
            next_step="aliquot slurm render --autodetect none",
        )
    if slices and form.version is not None and form.version < _NAMES_RIGHT:
        raise OldSlurmError(
            f"Slurm {form.version} names MIG types by rounded memory, without c and +: it names a 7g.40gb 7g.39gb",
            details=(f"{_NAMES_RIGHT.release} and later use the driver's names.",),
            next_step="aliquot slurm render --autodetect none",
        )
    wrong = misread(offered)
    if wrong:
        raise BlockedError(
            "slurmd's NVML plugin would count these devices as other types: the node would be INVALID, or jobs would "
            "get other devices than they requested",
            code="AUTODETECT",
            details=wrong,
            next_step="aliquot slurm render --autodetect none",
        )


def misread(offered: OfferedDevices) -> tuple[str, ...]:
    """Return the devices for which slurmd's detection arrives at another type than ours, as sentences.

    slurmd goes through the detected devices, longest name first, and gives each the longest remaining type of ``Gres=``
    that is part of its name (gres_gpu.c).
    """
    left = sorted((d.type for d in offered.devices), key=lambda kind: (-len(kind), kind))
    found = sorted(offered.devices, key=lambda d: (-len(d.detected), d.detected, ",".join(d.files)))
    wrong = []
    for device in found:
        kind = next((each for each in left if each in device.detected), "")
        if kind:
            left.remove(kind)
        if kind != device.type:
            wrong.append(f"{device.detected} of GPU {device.gpu} would be {kind or 'omitted'}, not {device.type}")
    return tuple(dict.fromkeys(wrong))
