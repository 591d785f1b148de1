"""Access to the node of a verb: a connection, an inventory, and GPUs by any name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aliquot.cli.framework import streams
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Gpu, Inventory
    from aliquot.node.connect import Connection


@contextmanager
def connected(args: Args) -> Iterator[Connection]:
    """Connect to the node that ``--sim`` or ALIQUOT_SIM names, else to this host. GPUs of containers and jobs count as
    held. A driver call that does not return is reported, and does not keep the command from ending.
    """
    from aliquot.foundation import driver_calls
    from aliquot.foundation.call_watchdog import CallWatchdog
    from aliquot.node.claims import attach_claims
    from aliquot.node.connect import connect
    from aliquot.slurm.holders import jobs

    with CallWatchdog(streams.error, driver_calls.hangs_s()), connect(args.sim, report=streams.note) as connection:
        connection.command = args.recorded_words
        attach_claims(connection, (jobs.source,), streams.note)
        yield connection


def inventory(args: Args) -> Inventory:
    """Read the inventory of the node."""
    with connected(args) as connection:
        return connection.backend.read()


def gpus(found: Inventory, words: Sequence[str] | None) -> tuple[Gpu, ...]:
    """Return the GPUs that the words name, or all of them if there are no words. Raises NoSuchGpuError."""
    if not words:
        return found.gpus
    from aliquot.core.config.select.gpu_selection import select_gpus

    return select_gpus(found, words)


def gpu(found: Inventory, word: str) -> Gpu:
    """Return the one GPU that a word names. Raises UsageError if it names several, NoSuchGpuError if none."""
    hits = gpus(found, [word])
    if len(hits) > 1:
        known = tuple(f"GPU {g.index}  {g.pci}  {g.uuid}  {g.product}" for g in hits)
        raise UsageError(f"{word!r} names {len(hits)} GPUs", details=known, next_step=f"aliquot show {hits[0].pci}")
    return hits[0]


def gpu_words(args: Args) -> list[str]:
    """Return the words for GPUs on a command line: those without an option, then those of ``--gpu``."""
    return [*args.gpus, *(args.gpu or [])]


def required_gpu_words(args: Args) -> list[str]:
    """Return the words for GPUs. Raises UsageError if there are none."""
    words = gpu_words(args)
    if not words:
        raise UsageError(f"{args.prog}: name at least one GPU", next_step=f"{args.prog} --help")
    return words


def set_aside(node: str | None) -> list[str]:
    """Return a sentence for each unreadable state file of this host (``node`` None) or of a simulated node that was set
    aside and still exists.
    """
    from aliquot.foundation.paths import directories
    from aliquot.foundation.state_store import found_unreadable

    return [str(each) for each in found_unreadable(*directories(node)) if not each.why]
