"""``aliquot slurm apply`` and ``aliquot slurm node``: change and describe this host's Slurm node."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from aliquot.cli.framework import desired_args, output, streams
from aliquot.cli.framework import error_output as failure
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.slurm import dry_run_view as slurm_preview
from aliquot.cli.slurm.outcome_text import node_text, outcome_text
from aliquot.errors import AliquotError, UsageError

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.node.connect import Connection
    from aliquot.slurm.client.port import Slurm
    from aliquot.slurm.node.change_record import ChangeRecord
    from aliquot.slurm.node.context import SlurmChangeContext, SlurmChangeOutcome
    from aliquot.slurm.node.request import SlurmChange, SlurmNodeSettings

_EXCLUDED_BY_BOOT = ("continue", "undo", "dry_run", "node_name")


def run(args: Args) -> int:
    return {"apply": _apply, "node": _node}[args.verb](args)


def _apply(args: Args) -> int:
    from aliquot.slurm.node import transaction as apply
    from aliquot.slurm.node.dry_run import confirm, preview

    args.vgpu, args.mixed_size, args.passthrough = None, False, None  # not under Slurm
    if args.boot:
        return _finish_all(args)
    resume = getattr(args, "continue") or args.undo
    _one_of(args, resume)
    policy = desired_args.policy(args)
    config = None if resume or not desired_args.has_desired(args) else desired_args.config_from_args(args)
    with node.connected(args) as connection:
        name = node_name(args)
        if resume:
            return resume_change(args, connection, name)
        locked_change = partial(_locked_change, args, connection, config, policy)
        shown_preview = None
        if slurm_preview.needs_confirmation(args):
            with locked_change() as (change, context, inventory):
                shown_preview = preview(change, context)
            # The user may take hours to answer, so the lock is not held meanwhile.
            if not slurm_preview.agreed(args, shown_preview, inventory):
                return slurm_preview.declined(args, name)
        with locked_change() as (change, context, inventory):
            if args.dry_run:
                return slurm_preview.emit_preview(args, change, context, inventory)
            if shown_preview is not None:
                confirm(shown_preview, preview(change, context))
            outcome = apply.apply(change, context)
    return _emit_outcome(args, outcome)


@contextmanager
def _locked_change(
    args: Args, connection: Connection, config: Any, policy: Any
) -> Iterator[tuple[SlurmChange, SlurmChangeContext, Inventory]]:
    """Hold the node's lock, and yield the change for the node's current state."""
    from aliquot.slurm.node.change_record import ChangeRecordFile

    name = node_name(args)
    with _lock(connection, name).hold():
        change_record = ChangeRecordFile(connection.directory, name).read()
        inventory = connection.backend.read()
        chosen = settings(args, connection, inventory, change_record)
        change = _change(args, chosen, inventory, config, policy)
        with _context(args, connection, chosen) as context:
            yield change, context, inventory


def resume_change(args: Args, connection: Connection, name: str) -> int:
    """Finish or undo the interrupted change of a node. Raises BlockedError if no change was interrupted."""
    from aliquot.slurm.node import transaction as apply
    from aliquot.slurm.node.change_record import ChangeRecordFile

    with _lock(connection, name).hold():
        change_record = ChangeRecordFile(connection.directory, name).read()
        chosen = (
            _rerun(args, change_record.change.settings) if change_record else settings(args, connection, None, None)
        )
        with _context(args, connection, chosen) as context:
            outcome = apply.undo_change(context, chosen) if args.undo else apply.continue_change(context, chosen)
    return _emit_outcome(args, outcome)


def _finish_all(args: Args) -> int:
    """Finish the interrupted changes of all nodes of this host, for example after a power loss.

    Continues after a failure; the exit code is that of the first change that failed.
    """
    if desired_args.has_desired(args) or any(getattr(args, name) for name in _EXCLUDED_BY_BOOT):
        raise UsageError(
            "--boot takes no other options: it finishes the recorded changes", next_step=f"{args.prog} --boot"
        )
    codes = []
    with node.connected(args) as connection:
        for name in _unfinished(connection):
            streams.note(f"{name}: finishing an interrupted change")
            args.node_name = name
            try:
                codes.append(resume_change(args, connection, name))
            except AliquotError as error:
                failure.report(error, args.output, args.typed_node)
                codes.append(error.exit_code)
    if not codes:
        output.emit(
            output.build("SlurmOutcome", status="nothing"), args.output, "no change was interrupted on this host"
        )
    return next((code for code in codes if code), 0)


def _unfinished(connection: Connection) -> list[str]:
    """Return the Slurm nodes of this host whose last change did not end. Raises StorageError."""
    from aliquot.slurm.node.change_record import ChangeRecordFile, recorded_names

    found = [
        (name, ChangeRecordFile(connection.directory, name).read()) for name in recorded_names(connection.directory)
    ]
    return [name for name, change_record in found if change_record is not None and change_record.status == "open"]


def _one_of(args: Args, resume: bool) -> None:
    if resume and args.dry_run:
        raise UsageError(
            "--dry-run cannot preview a change in progress: 'aliquot slurm node' shows it",
            next_step="aliquot slurm node",
        )
    if getattr(args, "continue") and args.undo:
        raise UsageError("--continue and --undo exclude each other: use one", next_step=f"{args.prog} --help")
    if resume and desired_args.has_desired(args):
        raise UsageError(
            "--continue and --undo use the recorded request: do not give another one",
            next_step=f"{args.prog} --continue",
        )


def _rerun(args: Args, recorded: SlurmNodeSettings) -> SlurmNodeSettings:
    """Return the recorded settings with the commands given with --continue or --undo.

    A recorded command may be the reason why the change stopped.
    """
    import msgspec

    from aliquot.slurm.node.request import checked

    typed = {
        "unit": args.slurmd_unit,
        "start": args.slurmd_start,
        "stop": args.slurmd_stop,
        "controller_restart": args.slurmctld_restart,
        "push": args.push,
    }
    return checked(
        msgspec.structs.replace(recorded, **{key: value for key, value in typed.items() if value is not None})
    )


def node_name(args: Args) -> str:
    """Return the Slurm node's name: from the command line, else the host's short name, as slurmd does."""
    name = args.node_name or os.uname().nodename.partition(".")[0]
    from aliquot.slurm.node.request import SlurmNodeSettings, checked

    return checked(SlurmNodeSettings(name)).name


def conf_dir(args: Args) -> str:
    """Return the directory of Slurm's files: from the command line, else that of SLURM_CONF, else Slurm's default."""
    typed = args.conf_dir or os.path.dirname(os.environ.get("SLURM_CONF", "")) or "/etc/slurm"
    return os.path.abspath(typed)


def settings(
    args: Args, connection: Connection, inventory: Inventory | None, change_record: ChangeRecord | None
) -> SlurmNodeSettings:
    """Return the node's settings: from the command line, else from the last change that succeeded or is open."""
    from aliquot.slurm.node.change_record import remembered_settings
    from aliquot.slurm.node.request import SlurmNodeSettings, checked

    last = remembered_settings(change_record) if change_record else SlurmNodeSettings(node_name(args))
    typed = {
        "style": args.type_style,
        "form": args.autodetect,
        "unit": args.slurmd_unit,
        "start": args.slurmd_start,
        "stop": args.slurmd_stop,
        "options_file": args.slurmd_options,
        "node_conf": args.node_conf,
        "controller_restart": args.slurmctld_restart,
        "push": args.push,
        "slots": getattr(args, "slots", None),
    }
    import msgspec

    root = args.dev_root or (_sim_folder(args) if connection.simulated else "/")
    gpus = tuple(gpu.pci for gpu in node.gpus(inventory, args.capacity)) if inventory and args.capacity else ()
    made = msgspec.structs.replace(
        last,
        name=node_name(args),
        conf_dir=conf_dir(args) if args.conf_dir or change_record is None else last.conf_dir,
        gpus=gpus or last.gpus,
        dev_root=root if args.dev_root or change_record is None else last.dev_root,
        **{key: value for key, value in typed.items() if value is not None},
    )
    return checked(made)


def _sim_folder(args: Args) -> str:
    from aliquot.foundation.paths import state_dir
    from aliquot.sim import lifecycle as control

    return control.folder(state_dir(), args.sim)


def _change(args: Args, chosen: SlurmNodeSettings, inventory: Inventory, config: Any, policy: Any) -> SlurmChange:
    from aliquot.core.model.desired import Desired
    from aliquot.slurm.node.request import SlurmChange

    for word in args.feature or ():
        if not re.fullmatch(r"[A-Za-z0-9_.=+:@/-]+", word):
            # In slurm.conf a space would begin another key, and a comma another feature.
            raise UsageError(
                f"--feature: invalid name {word!r}: use letters, digits and _ . = + : @ / -",
                next_step=f"{args.prog} --help",
            )
    desired = Desired(())
    if desired_args.has_desired(args):
        desired = desired_args.read(args, config, inventory)
        desired_args.refuse_errors(desired)
    return SlurmChange(
        settings=chosen,
        desired=desired,
        jobs=args.jobs,
        timeout_s=policy.timeout_s,
        policy=policy,
        features=tuple(args.feature) if args.feature else None,
        force=args.force,
        revision=args.revision or desired.name,
    )


def _context(
    args: Args, connection: Connection, chosen: SlurmNodeSettings
) -> AbstractContextManager[SlurmChangeContext]:
    @contextmanager
    def open_context() -> Any:
        from aliquot.foundation.signals import stoppable
        from aliquot.slurm.files import gpu_numbering as numbering
        from aliquot.slurm.node.context import SlurmChangeContext, StateFolders
        from aliquot.slurm.node.slurmd import daemon_of

        with stoppable(), _slurm(chosen) as slurm:
            places = StateFolders(connection.directory, numbering.run_folder(os.environ), connection.simulated)
            context = SlurmChangeContext(
                slurm, _gpus(args, connection), daemon_of(chosen), places, chosen.name, streams.note
            )
            if not {"***", "..."} & set(args.recorded_words):
                context.command = args.recorded_words
            yield context

    return open_context()


def _slurm(chosen: SlurmNodeSettings) -> AbstractContextManager[Slurm]:
    from aliquot.slurm.client.connect import open_client

    path = os.path.join(chosen.conf_dir, "slurm.conf")
    return open_client(conf=path if os.path.exists(path) else "")


def _gpus(args: Args, connection: Connection) -> Any:
    from aliquot.cli.commands import apply_plan

    hooks = getattr(args, "hooks", None)
    if hooks is None:
        return connection.execution_context()
    environment = {"MIG_PARTED_CONFIG_FILE": args.file or "", "MIG_PARTED_HOOKS_FILE": hooks}
    return connection.execution_context(
        apply_plan.hooks(hooks, environment, debug=bool(os.environ.get("ALIQUOT_DEBUG")))
    )


def _lock(connection: Connection, name: str) -> Any:
    from aliquot.foundation.lock import FileLock

    return FileLock(os.path.join(connection.directory, "slurm", f"{name}.lock"))


def _emit_outcome(args: Args, outcome: SlurmChangeOutcome) -> int:
    document = output.build("SlurmOutcome", **_plain(outcome))
    output.emit(document, args.output, outcome_text(outcome))
    for line in outcome.notes:
        streams.note(f"note     {line}")
    return outcome.exit_code


def _plain(outcome: SlurmChangeOutcome) -> dict[str, Any]:
    """Return the outcome's fields; its kind gets another name, because every document has one."""
    plain = output.document(outcome)
    plain["nodeKind"] = plain.pop("kind")
    plain["steps"] = [{"step": step, "seconds": seconds} for step, seconds in outcome.steps]
    return plain


def _node(args: Args) -> int:
    from aliquot.slurm.node.change_record import ChangeRecordFile
    from aliquot.slurm.node.host_facts import facts

    with node.connected(args) as connection:
        inventory = connection.backend.read()
        change_record = ChangeRecordFile(connection.directory, node_name(args)).read()
        chosen = settings(args, connection, inventory, change_record)
        try:
            with _slurm(chosen) as slurm:
                found = facts(inventory, chosen, change_record, slurm)
        except AliquotError as error:
            if error.exit_code == 2:
                raise
            found = facts(inventory, chosen, change_record, None, error.brief)
    document = output.build("SlurmNode", **output.document(found))
    output.emit(document, args.output, node_text(found))
    return 0
