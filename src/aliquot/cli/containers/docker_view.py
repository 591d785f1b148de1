"""The output of ``aliquot docker``: devices, reservations and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aliquot.cli.framework import streams
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.cli.containers.container_host import ContainerHost
    from aliquot.containers.runtime.models import ContainerDevice, ContainerReservation


def plain(device: ContainerDevice) -> dict[str, Any]:
    """Return a device as plain data."""
    return {"uuid": device.uuid, "index": device.index, "profile": device.profile, "gpu": device.pci}


def table(host: ContainerHost) -> str:
    """Return a line per device with its holders, or the reservation that keeps it."""
    if not host.devices:
        return "no device for containers: this node has no GPU, or only GPUs in MIG mode without instances"
    waiting = {uuid: r for r in host.settled.active for uuid in r.devices}
    rows = [("index", "device", "profile", "taken by")]
    for device in host.devices:
        who = ", ".join(map(str, host.busy.get(device.uuid, ()))) or "free"
        note = _reserved_until(waiting[device.uuid]) if device.uuid in waiting else ""
        rows.append((device.index, device.uuid, device.profile or "whole GPU", who + note))
    return "\n".join(line.rstrip() for line in draw.table(rows))


def _reserved_until(reservation: ContainerReservation) -> str:
    if reservation.until is None:
        return "   kept until released"
    if reservation.container:
        return f"   kept until {reservation.name or reservation.container[:12]} is removed"
    import time

    return f"   kept {max(0, round(reservation.until - time.time()))} s for a container to start"


def remarks(host: ContainerHost, devices: Sequence[ContainerDevice], form: str) -> None:
    """Print what a user of these devices should know, to stderr."""
    from aliquot.containers.runtime.reserve import stopped_containers

    if len(devices) > 1:
        streams.note(
            "note     a program uses one MIG device at most: with several in a container, set CUDA_VISIBLE_DEVICES for "
            "each process"
        )
    for device in devices:
        if device.shared:
            streams.note(f"note     {device.uuid} shares memory and engines with other compute instances")
        for each in stopped_containers(host.containers, device, host.names):
            streams.note(f"note     container {each.name} has stopped, but gets {device.uuid} again if it is started")


def no_reservation(words: Sequence[str], recorded: Sequence[ContainerReservation]) -> UsageError:
    known = tuple(f"{r.id}  {r.name or '-'}  {', '.join(r.devices)}" for r in recorded) or ("nothing is reserved",)
    return UsageError(f"no reservation {', '.join(words)}", details=known, next_step="aliquot docker list")
