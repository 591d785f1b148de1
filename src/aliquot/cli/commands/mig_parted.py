"""``aliquot mig-parted``: nvidia-mig-parted's verbs, flags, variables, success lines and exit codes.

It uses the same planner and engine as all verbs. Intended differences: ``assert`` compares only the GPUs that the
config covers (mig-parted fails for the others), instances that fit are kept, and an impossible request changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.cli.commands import apply_plan, compatible
from aliquot.cli.framework import file_output as documents
from aliquot.cli.framework import output, owned_files, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.core.config.file import MIG_PARTED
from aliquot.core.model.actions import Action, Reset
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.errors import BlockedError, DriftError, UsageError

if TYPE_CHECKING:
    from aliquot.core.config.file import ConfigFile


def run(args: Args) -> int:
    verbs = {
        "apply": _apply,
        "assert": _assert,
        "export": _export,
        "generate-config": _generate,
        "checkpoint": _checkpoint,
        "restore": _restore,
    }
    verbs[args.verb](args)
    return 0


def _config(args: Args) -> ConfigFile:
    return compatible.config(args, "MIG_PARTED_CONFIG_FILE", MIG_PARTED)


def _desired(args: Args, config: ConfigFile, inventory: Inventory) -> Desired:
    from aliquot.core.config.select.named_config import mode_only

    desired = compatible.desired(args, config, inventory)
    return mode_only(desired) if args.mode_only else desired


def _apply(args: Args) -> None:
    from aliquot.core.planner.plan import plan

    config = _config(args)
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        desired = _desired(args, config, inventory)
        made = plan(inventory, desired, Policy())
        if args.skip_reset and made.resets:
            # The driver resets an idle GPU inside the call that sets the mode: read again before giving up.
            without_reset = without_resets(made)
            inventory = _execute(apply_plan.PlanExecution(connection, without_reset, inventory), args)
            made = plan(inventory, desired, Policy())
            if args.mode_only:
                made = without_resets(made)
        if made.resets and args.skip_reset:
            raise _pending(made.resets, "run it again without --skip-reset, or reboot the node")
        if made.changes or not args.skip_reset:
            _execute(apply_plan.PlanExecution(connection, made, inventory), args)
        if made.reboots and not args.mode_only:
            raise _pending(made.reboots, "reboot the node")
    streams.result("MIG configuration applied successfully")


def _pending(gpus: tuple[str, ...], next_step: str) -> BlockedError:
    return BlockedError(
        f"MIG mode is pending on GPU {', '.join(gpus)}: it needs a reset or a reboot",
        code="NEEDS_REBOOT",
        next_step=next_step,
    )


def without_resets(plan: Plan) -> Plan:
    """Return the plan without the actions from a GPU's reset on: the new mode stays pending on that GPU."""
    actions: list[Action] = []
    for gpu_actions in plan.actions_by_gpu.values():
        for action in gpu_actions:
            if isinstance(action, Reset):
                break
            actions.append(action)
    waiting = tuple(dict.fromkeys((*plan.reboots, *plan.resets)))
    return msgspec.structs.replace(plan, actions=tuple(actions), resets=(), reboots=waiting)


def _execute(execution: apply_plan.PlanExecution, args: Args) -> Inventory:
    # With --mode-only mig-parted ends before it reads the config.
    without = ("pre-apply-config",) if args.mode_only else ()
    hooks = apply_plan.hooks(args.hooks_file, _environment(args), debug=args.debug, without=without)
    return compatible.execute(execution, args, hooks)


def _environment(args: Args) -> dict[str, str]:
    def word(value: bool) -> str:
        return "true" if value else "false"

    return {
        "MIG_PARTED_CONFIG_FILE": getattr(args, "config_file", None) or "",
        "MIG_PARTED_SELECTED_CONFIG": getattr(args, "selected_config", None) or "",
        "MIG_PARTED_HOOKS_FILE": args.hooks_file or "",
        "MIG_PARTED_SKIP_RESET": word(getattr(args, "skip_reset", False)),
        "MIG_PARTED_MODE_CHANGE_ONLY": word(args.mode_only),
    }


def _assert(args: Args) -> None:
    config = _config(args)
    if args.valid_config:
        streams.result("Selected MIG configuration is valid")
        return
    inventory = node.inventory(args)
    desired = _desired(args, config, inventory)
    drift = compatible.drift(inventory, desired)
    if drift:
        error = DriftError(
            "Assertion failure: selected configuration not currently applied",
            details=drift,
            next_step=f"aliquot mig-parted apply -f {args.config_file} -c {desired.name}",
        )
        raise compatible.with_refusal(error, inventory, desired)
    what = "mode settings from configuration" if args.mode_only else "configuration"
    streams.result(f"Selected MIG {what} currently applied")


def _export(args: Args) -> None:
    from aliquot.core.config.export import export

    text = _encoded(export(node.inventory(args), args.config_label), args.output_format)
    streams.result(text, end="")


def _generate(args: Args) -> None:
    from aliquot.core.config.generate import generate

    text = _encoded(generate(node.inventory(args)), args.output_format)
    if args.output_file:
        owned_files.save(args.output_file, text, force=True)
    else:
        streams.result(text, end="")


def _encoded(document: dict[str, Any], form: str) -> str:
    """Encode a document as mig-parted does: its JSON sorts the configs and has no final newline."""
    if form != "json":
        return documents.encoded(document, form)
    configs = dict(sorted(document["mig-configs"].items()))
    return documents.encoded({**document, "mig-configs": configs}, form).rstrip("\n")


def _checkpoint_file(args: Args) -> str:
    if not args.checkpoint_file:
        raise UsageError(
            "no checkpoint file: give -f FILE or set MIG_PARTED_CHECKPOINT_FILE", next_step=f"{args.prog} --help"
        )
    return str(args.checkpoint_file)


def _checkpoint(args: Args) -> None:
    from aliquot.core.config.formats.checkpoint import checkpoint

    path = _checkpoint_file(args)
    owned_files.save(path, msgspec.json.encode(checkpoint(node.inventory(args))).decode(), force=True)
    streams.result("MIG configuration checkpointed successfully")


def _restore(args: Args) -> None:
    from aliquot.core.config.formats.checkpoint import restore
    from aliquot.core.config.select.named_config import mode_only
    from aliquot.core.planner.plan import plan

    path = _checkpoint_file(args)
    text = output.read_text(path, "checkpoint")
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        desired = restore(text, inventory, f"the checkpoint {path}")
        made = plan(inventory, mode_only(desired) if args.mode_only else desired, Policy())
        _execute(apply_plan.PlanExecution(connection, made, inventory), args)
    streams.result("MIG configuration restored successfully")
