"""What a verb needs of the machine: a connection, an inventory, and GPUs by any name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aliquot.cli.framework import streams
from aliquot.cli.framework.parser import Args
from aliquot.errors import NoSuchGpuError, UsageError

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Gpu, Inventory
    from aliquot.node.connect import Connection


@contextmanager
def connected(args: Args) -> Iterator[Connection]:
    """The node that ``--node`` or ALIQUOT_SIM names, else this machine. What containers and jobs have is held. A driver
    call that does not return is reported, and does not keep the command from ending.
    """
    from aliquot.foundation import driver_calls
    from aliquot.foundation.call_watchdog import CallWatchdog
    from aliquot.node.claims import attach_claims
    from aliquot.node.connect import connect
    from aliquot.slurm.holders import jobs

    with CallWatchdog(streams.note, driver_calls.hangs_s()), connect(args.node, report=streams.note) as connection:
        attach_claims(connection, (jobs.source,), streams.note)
        yield connection


def inventory(args: Args) -> Inventory:
    """One fresh look at the node."""
    with connected(args) as connection:
        return connection.backend.read()


def gpu(found: Inventory, word: str) -> Gpu:
    """The GPU that a person means: index, PCI address, UUID, or a product that only one GPU has.

    Raises UsageError where several GPUs have that name, NoSuchGpuError where this node has none, or the word is the
    address of a GPU's virtual function.
    """
    hits = [g for g in found.gpus if word.lower() in _names(g)]
    if len(hits) == 1:
        return hits[0]
    known = tuple(f"GPU {g.index}  {g.pci}  {g.uuid}  {g.product}" for g in found.gpus)
    if hits:
        raise UsageError(f"{word!r} names {len(hits)} GPUs", details=known, next_step=f"aliquot show {hits[0].pci}")
    if not found.gpus:
        raise NoSuchGpuError(f"there is no GPU {word!r}: this node has none", next_step="aliquot show")
    owner, number = found.find_function(word) or (None, 0)
    if owner is not None:
        sentence = f"{word} is virtual function {number} of GPU {owner.index}: name the GPU itself"
        raise NoSuchGpuError(sentence, details=known, next_step=f"aliquot show {owner.pci}")
    raise NoSuchGpuError(f"there is no GPU {word!r} on this node", details=known, next_step="aliquot show")


def _names(gpu: Gpu) -> tuple[str, ...]:
    from aliquot.core.model.ids import pci_address

    names = (
        str(gpu.index),
        gpu.pci,
        gpu.uuid.lower(),
        gpu.product.lower(),
        gpu.product.lower().removeprefix("nvidia "),
    )
    short = gpu.pci.partition(":")[2]
    return (*names, short, f"0000{pci_address(gpu.pci)}")


def set_aside(node: str | None) -> list[str]:
    """Return a sentence for each state file of this host (``node`` None) or of a simulated node that could not be
    understood and that still lies there.
    """
    from aliquot.foundation.paths import directories
    from aliquot.foundation.state_store import found_unreadable

    return [str(each) for each in found_unreadable(*directories(node)) if not each.why]
