"""The lists ``nvidia-smi mig -lgip | -lgipp | -lgi | -lcip | -lci``. Widths as captured: the name column grew with
R570.
"""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.sim.tools.nvidia_smi_cli.driver import SmiDevice, default
from aliquot.sim.tools.nvidia_smi_cli.table_layout import head, left, right, row, rule

_WIDER_SINCE = 570

_CI_WIDTH = 70
_CIP_WIDTH = 88


class NothingListedError(Exception):
    """There is nothing to list; the text says so."""


def _wider(devices: Sequence[SmiDevice]) -> int:
    return 2 if devices[0].driver.major >= _WIDER_SINCE else 0


def gpu_instance_profiles(devices: Sequence[SmiDevice]) -> list[str]:
    more = _wider(devices)
    width, gap = 79 + more, " " * more
    lines = head(
        width,
        "GPU instance profiles:",
        f"GPU   Name             {gap}ID    Instances   Memory     P2P    SM    DEC   ENC  ",
        f"{gap}                             Free/Total   GiB              CE    JPEG  OFA  ",
    )
    for device in devices:
        for p in device.profiles:
            free = device.request("DeviceGetGpuInstanceRemainingCapacity", p.id)[0]
            lines += [
                row(
                    width,
                    right(4, device.index),
                    left(7, p.name),
                    right(26 + more, p.id),
                    left(32 + more, f"{free}/{p.total}"),
                    left(43 + more, f"{p.memory_mib / 1024:.2f}"),
                    left(54 + more, "No"),
                    left(61 + more, p.sm),
                    left(68 + more, p.dec),
                    left(74 + more, p.enc),
                ),
                row(width, left(62 + more, p.ce), left(68 + more, p.jpeg), left(74 + more, p.ofa)),
                rule(width),
            ]
    return lines


def placements(devices: Sequence[SmiDevice]) -> list[str]:
    lines = []
    for device in devices:
        for p in device.profiles:
            flat = device.request("DeviceGetGpuInstancePossiblePlacements", p.id)
            starts = ",".join(map(str, flat[::2]))
            word = "Placement :" if len(flat) == 2 else "Placements:"
            lines.append(f"GPU {device.index:>2} Profile ID {p.id:>2} {word} {{{starts}}}:{flat[1]}")
    return lines


def gpu_instances(devices: Sequence[SmiDevice]) -> list[str]:
    """Return the table of GPU instances. Raises NothingListedError."""
    more = _wider(devices)
    width, gap = 57 + more, " " * more
    lines = head(
        width,
        "GPU instances:",
        f"GPU   Name             {gap}Profile  Instance   Placement  ",
        f"                       {gap}  ID       ID       Start:Size ",
    )
    found = [(d, p, place) for d in devices for p, place in d.instances()]
    if not found:
        raise NothingListedError("No GPU instances found: Not Found")
    for device, profile, place in found:
        lines += [
            row(
                width,
                right(4, device.index),
                left(7, profile.name),
                right(28 + more, profile.id),
                right(37 + more, place.id),
                right(48 + more, place.start),
                left(49 + more, f":{place.size}"),
            ),
            rule(width),
        ]
    return lines


def compute_instance_profiles(devices: Sequence[SmiDevice], wanted: Sequence[int] | None) -> list[str]:
    """Return the profiles of all GPU instances, or of those named. Raises NothingListedError."""
    lines = head(
        _CIP_WIDTH,
        "Compute instance profiles:",
        "GPU     GPU       Name             Profile  Instances   Exclusive       Shared       ",
        "      Instance                       ID     Free/Total     SM       DEC   ENC   OFA  ",
        "        ID                                                          CE    JPEG       ",
    )
    found = [(d, g, i) for d in devices for g, i in d.instances() if wanted is None or i.id in wanted]
    if not found:
        raise NothingListedError("No GPU instances found: Not Found")
    for device, owner, instance in found:
        inside = device.compute_profiles(instance.id)
        whole = default(inside, owner.name)
        for p in inside:
            free = device.request("GpuInstanceGetComputeInstanceRemainingCapacity", p.id, gi=instance.id)[0]
            lines += [
                row(
                    _CIP_WIDTH,
                    right(4, device.index),
                    right(11, instance.id),
                    left(19, p.name),
                    right(40, p.id),
                    left(41, "*" if p == whole else ""),
                    left(47, f"{free}/{p.total}"),
                    left(61, p.sm),
                    left(71, p.dec),
                    left(77, p.enc),
                    left(83, p.ofa),
                ),
                row(_CIP_WIDTH, left(71, p.ce), left(77, p.jpeg)),
                rule(_CIP_WIDTH),
            ]
    return lines


def compute_instances(devices: Sequence[SmiDevice], wanted: Sequence[int] | None) -> list[str]:
    """Return the compute instances in all GPU instances, or in those named. Raises NothingListedError."""
    lines = head(
        _CI_WIDTH,
        "Compute instances:",
        "GPU     GPU       Name             Profile   Instance   Placement  ",
        "      Instance                       ID        ID       Start:Size ",
        "        ID                                                         ",
    )
    found = [
        (d, i, p, place)
        for d in devices
        for _, i in d.instances()
        if wanted is None or i.id in wanted
        for p, place in d.compute_instances(i.id)
    ]
    if not found:
        raise NothingListedError("No compute instances found: Not Found")
    for device, instance, profile, place in found:
        lines += [
            row(
                _CI_WIDTH,
                right(4, device.index),
                right(11, instance.id),
                left(19, profile.name),
                right(40, profile.id),
                right(50, place.id),
                right(61, place.start),
                left(62, f":{place.size}"),
            ),
            rule(_CI_WIDTH),
        ]
    return lines
