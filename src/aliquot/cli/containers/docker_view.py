"""How ``aliquot docker`` shows devices, and what it says about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aliquot.cli.framework import streams
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.errors import BlockedError, UsageError

if TYPE_CHECKING:
    from aliquot.cli.containers.site import Site
    from aliquot.containers.runtime.models import Device, Reservation

_FILE = "/var/run/cdi/nvidia.com-gpu.yaml"


def plain(device: Device) -> dict[str, Any]:
    """A device for programs."""
    return {"uuid": device.uuid, "index": device.index, "profile": device.profile, "gpu": device.pci}


def table(site: Site) -> str:
    """One line per device with whoever has it, then reservations whose container is not there."""
    if not site.devices:
        return "no device that a container could have: no GPU, or GPUs in MIG mode without instances"
    waiting = {uuid: r for r in site.settled.kept for uuid in r.devices}
    rows = [("index", "device", "profile", "taken by")]
    for device in site.devices:
        who = ", ".join(map(str, site.busy.get(device.uuid, ()))) or "free"
        note = _kept(waiting[device.uuid]) if device.uuid in waiting else ""
        rows.append((device.index, device.uuid, device.profile or "whole GPU", who + note))
    return "\n".join(line.rstrip() for line in draw.table(rows))


def _kept(reservation: Reservation) -> str:
    if reservation.until is None:
        return "   kept until released"
    if reservation.container:
        return f"   kept until {reservation.name or reservation.container[:12]} is removed"
    import time

    return f"   kept {max(0, round(reservation.until - time.time()))} s for a container to come"


def remarks(site: Site, devices: Sequence[Device], form: str) -> None:
    """What a user of these devices should know, on stderr."""
    from aliquot.containers.runtime.reserve import ended_ones

    if len(devices) > 1:
        streams.note(
            "note     a program uses one MIG device at most: with several in a container, each process needs "
            "CUDA_VISIBLE_DEVICES"
        )
    for device in devices:
        if device.shared:
            streams.note(f"note     {device.uuid} shares memory and engines with other compute instances")
        for each in ended_ones(site.containers, device, site.names):
            streams.note(f"note     container {each.name} has ended, but would have {device.uuid} if started again")


def no_name(device: Device, site: Site) -> BlockedError:
    """No CDI file opens this device under any name."""
    behind = sorted({e.path for e in site.entries if e.simulated == site.simulated})
    if behind:
        sentence = f"no CDI file has {device.uuid}: {', '.join(behind)} tells of other instances"
    else:
        sentence = f"no CDI file has {device.uuid}: runtimes find no device of this node"
    details = ("--form legacy needs no CDI, but NVIDIA's container toolkit",)
    ours = next((path for path in behind if path.endswith("nvidia.com-gpu.yaml")), _FILE)
    error = BlockedError(sentence, details=details, next_step=f"aliquot cdi generate --output {ours}")
    error.code = "NO_CDI_NAME"
    return error


def no_reservation(words: Sequence[str], recorded: Sequence[Reservation]) -> UsageError:
    known = tuple(f"{r.id}  {r.name or '-'}  {', '.join(r.devices)}" for r in recorded) or ("nothing is reserved",)
    return UsageError(f"no reservation {', '.join(words)}", details=known, next_step="aliquot docker list")
