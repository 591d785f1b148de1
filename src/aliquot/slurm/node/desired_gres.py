"""The GRES that Slurm should have for the current GPUs."""

from __future__ import annotations

from aliquot.core.model.inventory import Inventory
from aliquot.slurm.client.models import Gres, SlurmNode
from aliquot.slurm.files import fence
from aliquot.slurm.files import gres_conf as gres
from aliquot.slurm.files.job_devices import GresChoice, OfferedDevices, offered_devices
from aliquot.slurm.files.slot_board import slot_board
from aliquot.slurm.node.change_record import ExpectedGres
from aliquot.slurm.node.next_step import version_of
from aliquot.slurm.node.request import SlurmNodeSettings


def offered_by_node(inventory: Inventory, settings: SlurmNodeSettings, *, fenced: bool = False) -> OfferedDevices:
    """Return the devices that the node's GPUs offer, or the records of its slot board. Raises BlockedError."""
    choice = GresChoice(settings.gpus or None, settings.style, settings.dev, fence=fenced)
    return slot_board(inventory, choice) if settings.slots else offered_devices(inventory, choice)


def expected_gres(
    inventory: Inventory, settings: SlurmNodeSettings, version: str, cores: dict[str, str] | None = None
) -> ExpectedGres:
    """Return types, counts and lines for the current GPUs. ``cores`` are the near cores by PCI address.

    Raises BlockedError, OldSlurmError.
    """
    found = offered_by_node(inventory, settings, fenced=True)
    notes = found.notes
    if found.fenced and not settings.fence:
        notes = (*notes, _open(found.fenced, settings.name))
        found = offered_by_node(inventory, settings)
    release = version_of(version)
    form = gres.GresForm(settings.form, cores=cores or {}, version=release if release.major else None)
    return ExpectedGres(
        gres=tuple(Gres("gpu", kind, count) for kind, count in found.counts.items()),
        lines=gres.lines(settings.name, found, form),
        notes=notes,
        devices=found.devices,
        fenced=bool(found.fenced),
    )


def _open(fenced: tuple[str, ...], name: str) -> str:
    gpus = [file for file in fenced if "/nvidia-caps/" not in file]
    more = f" and {len(fenced) - 1} more" if len(fenced) > 1 else ""
    what = (
        f"{name} does not offer {fenced[0]}{more}, but Slurm does not deny its jobs access"
        if gpus
        else f"jobs of {name} can open {' and '.join(fenced)}, which allow to change and monitor all instances"
    )
    return f"{what}: set GresTypes=gpu,{fence.NAME} in slurm.conf, restart slurmctld, and run this again"


def agrees(node: SlurmNode, wanted: tuple[Gres, ...]) -> bool:
    """Report whether Slurm has exactly these GPU types and counts. Ignores GRES that are not GPUs."""
    now = counts(node.gres)
    return now == counts(wanted)


def counts(every: tuple[Gres, ...]) -> dict[str, int]:
    """Count the GPUs by type."""
    found: dict[str, int] = {}
    for each in every:
        if each.name == "gpu" and each.count:
            found[each.type] = found.get(each.type, 0) + each.count
    return found
