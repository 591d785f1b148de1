"""gres.conf: the lines of a node. Pure.

``AutoDetect``, as ``--autodetect`` names it: ``none`` writes explicit lines alone; ``off`` the same and says on each
that nothing is detected for this node, where the file has a global AutoDetect; ``nvml`` leaves files and cores to
slurmd's NVML plugin (21.08 for MIG; 23.02 names every profile right); ``nvidia`` reads /proc (24.11) and knows no MIG;
``full`` tries all (26.05). No AutoDetect works for CLOUD nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import OldSlurmError
from aliquot.slurm.client.models import Version
from aliquot.slurm.files import fence
from aliquot.slurm.files.job_devices import GresDevice, OfferedDevices

AUTODETECT = ("none", "off", "nvml", "nvidia", "full")
ENVIRONMENTS = ("nvidia", "uuid", "none", "all")
"""What jobs get: CUDA_VISIBLE_DEVICES alone, the same with UUIDs (26.05, detected devices only), nothing, or every
vendor's variable, which is Slurm's own default."""

_FLAGS = {"nvidia": "nvidia_gpu_env", "uuid": "nvidia_gpu_env,env_uuid", "none": "no_gpu_env", "all": ""}
_SINCE = {"nvml": Version(21, 8), "nvidia": Version(24, 11), "full": Version(26, 5)}
_NAMES_RIGHT = Version(23, 2)
_UUID_SINCE = Version(26, 5)
_FLAGS_SINCE = Version(21, 8)


class GresForm(msgspec.Struct, frozen=True):
    """How gres.conf says it. ``cores`` are Slurm's core numbers by PCI address, only for GPUs that have near ones.
    ``version`` is slurmd's, None where nobody knows: then nothing is refused for its age.
    """

    autodetect: str = "none"
    environment: str = "nvidia"
    cores: Mapping[str, str] = {}
    version: Version | None = None


def lines(node: str, offered: OfferedDevices, form: GresForm | None = None) -> tuple[str, ...]:
    """A node's lines. Raises OldSlurmError where slurmd's release cannot do it, BlockedError where detection would
    find something else than is there.
    """
    chosen = form or GresForm()
    _refuse_old(chosen)
    fenced = (fence.line(node, offered.fenced),) if offered.fenced else ()
    if explicit(chosen):
        return (*(_explicit(node, device, chosen) for device in offered.devices), *fenced)
    _refuse_detection(offered, chosen)
    flags = _FLAGS[chosen.environment]
    line = f"NodeName={node} AutoDetect={chosen.autodetect}"
    # A plugin that finds NVIDIA's GPUs sets that vendor's variable by itself.
    usual = chosen.environment == "nvidia" and chosen.autodetect != "full"
    line = line if usual or not flags else f"{line} Name=gpu Flags={flags}"
    return ((line,) if offered.devices else ()) + fenced


def explicit(form: GresForm) -> bool:
    """Whether every device has a line, and slurmd detects none."""
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
            f"AutoDetect={form.autodetect} came with Slurm {since.release}, and this is {version}",
            next_step="aliquot slurm render --autodetect none",
        )
    if form.environment == "uuid" and version < _UUID_SINCE:
        raise OldSlurmError(
            f"the flag env_uuid came with Slurm {_UUID_SINCE.release}, and this is {version}",
            details=("a TaskProlog exports the UUID on every release: 'aliquot slurm task-prolog'",),
            next_step="aliquot slurm render --env nvidia",
        )
    if version < _FLAGS_SINCE:
        raise OldSlurmError(
            f"Slurm {version} knows no GRES of several device files: MIG devices need {_FLAGS_SINCE.release}",
            next_step="slurmd -V",
        )


def _refuse_detection(offered: OfferedDevices, form: GresForm) -> None:
    """What the plugins would find must be what is there."""
    slices = [d for d in offered.devices if d.instance is not None]
    if slices and form.autodetect == "nvidia":
        raise BlockedError(
            "AutoDetect=nvidia knows no MIG: it would offer whole GPUs that are cut",
            details=tuple(f"GPU {n} is cut" for n in dict.fromkeys(d.gpu for d in slices)),
            next_step="aliquot slurm render --autodetect nvml",
        )
    if offered.visible:
        raise BlockedError(
            "slurmd's plugins would find GPUs that this node does not offer",
            details=offered.visible,
            next_step="aliquot slurm render --autodetect none",
        )
    if slices and form.version is not None and form.version < _NAMES_RIGHT:
        raise OldSlurmError(
            f"Slurm {form.version} names MIG types by their memory, rounded, without c and +: a 7g.40gb is its 7g.39gb",
            details=(f"{_NAMES_RIGHT.release} and later call them as the driver does",),
            next_step="aliquot slurm render --autodetect none",
        )
    wrong = misread(offered)
    if wrong:
        raise BlockedError(
            "slurmd's NVML plugin would not count these devices as they are: the node would be INVALID, or jobs would "
            "get others than they asked for",
            details=wrong,
            next_step="aliquot slurm render --autodetect none",
        )


def misread(offered: OfferedDevices) -> tuple[str, ...]:
    """Where slurmd, matching what its plugin found with the types of ``Gres=``, comes to another type than ours. It
    takes what it found in order of the longest name, and gives each the longest type left that is a part of that name
    (gres_gpu.c).
    """
    left = sorted((d.type for d in offered.devices), key=lambda kind: (-len(kind), kind))
    found = sorted(offered.devices, key=lambda d: (-len(d.detected), d.detected, ",".join(d.files)))
    wrong = []
    for device in found:
        kind = next((each for each in left if each in device.detected), "")
        if kind:
            left.remove(kind)
        if kind != device.type:
            wrong.append(f"{device.detected} of GPU {device.gpu} would be {kind or 'left out'}, not {device.type}")
    return tuple(dict.fromkeys(wrong))
