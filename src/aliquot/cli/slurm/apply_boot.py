"""``aliquot slurm apply --boot``: finish what a power loss has cut off on this host, on each of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aliquot.cli.framework import desired_args, output, streams
from aliquot.cli.framework import error_output as failure
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.slurm import apply as slurm_apply
from aliquot.errors import AliquotError, UsageError

if TYPE_CHECKING:
    from aliquot.node.connect import Connection

_GIVEN = ("continue", "undo", "dry_run", "node_name")


def run(args: Args) -> int:
    """Each change is finished though another cannot be; the exit code is that of the first that could not."""
    if desired_args.has_desired(args) or any(getattr(args, name) for name in _GIVEN):
        raise UsageError("--boot stands alone: what is under way is on record", next_step=f"{args.prog} --boot")
    codes = []
    with node.connected(args) as connection:
        for name in unfinished(connection):
            streams.note(f"{name}: a change was cut off; it is finished")
            args.node_name = name
            try:
                codes.append(slurm_apply.resume_change(args, connection, name))
            except AliquotError as error:
                failure.report(error, args.output, args.typed_node)
                codes.append(error.exit_code)
    if not codes:
        output.emit(output.build("SlurmOutcome", status="nothing"), args.output, "no change was cut off on this host")
    return next((code for code in codes if code), 0)


def unfinished(connection: Connection) -> list[str]:
    """The Slurm nodes of this host whose last change never ended. Raises StorageError."""
    from aliquot.slurm.node.change_record import OPEN, ChangeRecordFile, recorded_names

    found = [
        (name, ChangeRecordFile(connection.directory, name).read()) for name in recorded_names(connection.directory)
    ]
    return [name for name, change_record in found if change_record is not None and change_record.status == OPEN]
