"""Common parts of the verbs that switch a Slurm node's layout: settings, ports, release, locking."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aliquot.cli.framework import streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.slurm import apply as slurm_apply
from aliquot.errors import LockedError, UsageError

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.node.connect import Connection
    from aliquot.slurm.client.models import Version
    from aliquot.slurm.layouts.families import FeatureLayout
    from aliquot.slurm.node.context import SlurmChangeContext
    from aliquot.slurm.node.layout_switch import GpuGroup
    from aliquot.slurm.node.request import SlurmNodeSettings

_LOCK_S = 300.0


def settings(args: Args, connection: Connection, name: str, inventory: Inventory) -> SlurmNodeSettings:
    """Return the settings of a Slurm node on this host. Raises UsageError, NoSuchGpuError."""
    from aliquot.slurm.node.request import SlurmNodeSettings, checked

    root = "/"
    if connection.simulated:
        root = slurm_apply._sim_folder(args)
    return checked(
        SlurmNodeSettings(
            name=name,
            conf_dir=slurm_apply.conf_dir(args),
            gpus=offers(args, inventory),
            style=getattr(args, "type_style", None) or "short",
            start=getattr(args, "slurmd_start", None) or "",
            stop=getattr(args, "slurmd_stop", None) or "",
            dev_root=args.dev_root or root,
        )
    )


def offers(args: Args, inventory: Inventory) -> tuple[str, ...]:
    """Return the PCI addresses of the named GPUs; empty means all."""
    return tuple(gpu.pci for gpu in node.gpus(inventory, args.capacity)) if args.capacity else ()


@contextmanager
def open_context(args: Args, connection: Connection, chosen: SlurmNodeSettings) -> Iterator[SlurmChangeContext]:
    """Open the ports of the node. A signal interrupts the change, which is then undone."""
    from aliquot.foundation.signals import stoppable
    from aliquot.slurm.client.connect import open_client
    from aliquot.slurm.files import gpu_numbering as numbering
    from aliquot.slurm.node.context import SlurmChangeContext, StateFolders
    from aliquot.slurm.node.slurmd import daemon_of

    path = os.path.join(chosen.conf_dir, "slurm.conf")
    with stoppable(), open_client(conf=path if os.path.exists(path) else "") as slurm:
        places = StateFolders(connection.directory, numbering.run_folder(os.environ), connection.simulated)
        gpus = connection.execution_context()
        yield SlurmChangeContext(slurm, gpus, daemon_of(chosen), places, chosen.name, streams.note)


def layouts(args: Args, node_gpus: GpuGroup) -> tuple[FeatureLayout, ...]:
    """Parse the layouts of the command line. Raises FamilyError."""
    from aliquot.slurm.layouts.families import parse_layout

    return tuple(parse_layout(node_gpus.family, text) for text in args.layout or [])


def release(args: Args) -> Version:
    """Return the release to write for. Raises UsageError if none is given and slurmctld does not answer."""
    from aliquot.slurm.client.connect import open_client
    from aliquot.slurm.client.errors import SlurmError

    if (typed := typed_release(args)) is not None:
        return typed
    try:
        with open_client() as slurm:
            return slurm.version()
    except SlurmError as error:
        raise UsageError(
            f"cannot detect the release of Slurm: {error.brief}",
            next_step=f"{args.prog} --slurm 24.11",
        ) from error


def typed_release(args: Args) -> Version | None:
    """Return the release of ``--slurm``, None without it. Raises UsageError."""
    from aliquot.slurm.client.models import Version

    if args.slurm is None:
        return None
    match = re.fullmatch(r"(\d{2})\.(\d{1,2})(?:\.(\d+))?", args.slurm, re.ASCII)
    if match is None:
        raise UsageError(
            f"--slurm: invalid release {args.slurm!r}: use a release such as 22.05 or 24.11.5",
            next_step=f"{args.prog} --help",
        )
    return Version(int(match[1]), int(match[2]), int(match[3] or 0))


@contextmanager
def exclusive_access(connection: Connection) -> Iterator[None]:
    """Hold the lock for one start or stop on a host at a time; waits for another one in progress.

    Raises LockedError after ``_LOCK_S`` seconds, which is longer than any of them should take.
    """
    from aliquot.foundation.lock import FileLock

    lock = FileLock(os.path.join(connection.directory, "slurm", "records.lock"))
    deadline = connection.clock.now() + _LOCK_S
    while True:
        try:
            held = lock.hold()
            held.__enter__()
            break
        except LockedError:
            if connection.clock.now() > deadline:
                raise
            connection.clock.sleep(0.1)
    try:
        yield
    finally:
        held.__exit__(None, None, None)
