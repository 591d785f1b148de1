"""Facts about this host as a Slurm node, for the Slurm controller."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import NoNodeError
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.files.node_line import NodeHardware, gres_value
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.desired_gres import offered_by_node
from aliquot.slurm.node.next_step import version_of
from aliquot.slurm.node.request import SlurmNodeSettings


class SlurmHostFacts(msgspec.Struct, frozen=True):
    """Facts about this host as a Slurm node."""

    name: str
    offers: str
    """The value of ``Gres=`` for the current GPUs."""
    slurm: str
    """The state and the GRES of the node in Slurm; "" if Slurm does not have it, or was not queried (``error``)."""
    slurmd: str
    """The version of slurmd on this host."""
    runs: str
    """How slurmd is started."""
    last: str
    """The outcome of the last change: done, undone, refused, or open with its step."""
    inventory: Inventory
    settings: SlurmNodeSettings
    why: str = ""
    revision: str = ""
    open: bool = False
    error: str = msgspec.field(default="", name="trouble")
    """Why Slurm was not queried."""
    notes: tuple[str, ...] = ()


def facts(
    inventory: Inventory,
    settings: SlurmNodeSettings,
    record: ChangeRecord | None,
    slurm: Slurm | None,
    slurm_error: str = "",
) -> SlurmHostFacts:
    """Collect the facts. Unknown ones are empty; ``slurm_error`` or ``notes`` contain the reason."""
    notes: tuple[str, ...] = ()
    offers = ""
    try:
        found = offered_by_node(inventory, settings)
        offers, notes = gres_value(found), found.notes
    except BlockedError as error:
        notes = (error.brief,)
    under_way = record is not None and record.status == "open"
    return SlurmHostFacts(
        name=settings.name,
        offers=offers,
        slurm=_slurm_state(settings.name, slurm) if slurm else "",
        slurmd=slurmd_version(),
        runs="by commands" if settings.by_commands else f"as unit {settings.unit}",
        last=f"open at step '{record.phase}'" if record and under_way else record.status if record else "",
        inventory=inventory,
        settings=settings,
        why=record.why if record else "",
        revision=record.change.revision if record else "",
        open=under_way,
        error=slurm_error,
        notes=notes,
    )


def _slurm_state(name: str, slurm: Slurm) -> str:
    try:
        node = slurm.node(name)
    except NoNodeError:
        return ""
    gres = ",".join(map(str, node.gres))
    return f"{'+'.join(sorted(node.states))} {gres or 'no GRES'}"


def slurmd_version() -> str:
    """Return the version from ``slurmd -V``, or "" if slurmd is not installed."""
    word = _slurmd_output("-V").strip().rpartition(" ")[2]
    return word if version_of(word).major else ""


def memory_mib() -> int:
    """Return the memory of this host as slurmd registers it, or 0 if slurmd is not installed."""
    found = NodeHardware.parse(_slurmd_output("-C")).keys.get("RealMemory", "")
    return int(found) if found.isdecimal() else 0


def _slurmd_output(option: str) -> str:
    """Return the output of slurmd for an option; "" if it fails or is not installed."""
    from aliquot.foundation import bounded_process

    try:
        ran = bounded_process.run(["slurmd", option], 10)
    except OSError:  # a TimeoutError too
        return ""
    return ran.out if ran.code == 0 else ""
