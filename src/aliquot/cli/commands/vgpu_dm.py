"""``aliquot vgpu-dm``: nvidia-vgpu-dm's verbs, flags, variables, success lines and exit codes.

It uses the same planner and engine as all verbs. The original logs to stderr, and prints nothing on stdout.
"""

from __future__ import annotations

from aliquot.cli.commands import apply_plan, compatible
from aliquot.cli.framework import streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.core.config.file import VGPU_DEVICE_MANAGER
from aliquot.core.model.plan import Policy
from aliquot.errors import BlockedError, DriftError

_VARIABLE = "VGPU_DM_CONFIG_FILE"


def run(args: Args) -> int:
    """Run one verb. Raises AliquotError; every one is exit code 1."""
    verbs = {"apply": _apply, "assert": _assert}
    verbs[args.verb](args)
    return 0


def _apply(args: Args) -> None:
    from aliquot.core.planner.plan import plan

    config = compatible.config(args, _VARIABLE, VGPU_DEVICE_MANAGER)
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        made = plan(inventory, compatible.desired(args, config, inventory), Policy())
        compatible.execute(apply_plan.PlanExecution(connection, made, inventory), args)
        if made.reboots:
            raise BlockedError(
                f"MIG mode is pending on GPU {', '.join(made.reboots)}: it needs a reboot",
                code="NEEDS_REBOOT",
                next_step="reboot the node",
            )
    streams.note("Selected vGPU device configuration successfully applied")


def _assert(args: Args) -> None:
    config = compatible.config(args, _VARIABLE, VGPU_DEVICE_MANAGER)
    if args.valid_config:
        streams.note("Selected vGPU device configuration is valid")
        return
    inventory = node.inventory(args)
    desired = compatible.desired(args, config, inventory)
    drift = compatible.drift(inventory, desired)
    if drift:
        error = DriftError(
            "assertion failure: selected configuration not currently applied",
            details=drift,
            next_step=f"aliquot vgpu-dm apply -f {args.config_file} -c {desired.name}",
        )
        raise compatible.with_refusal(error, inventory, desired)
    streams.note("Selected vGPU device configuration is currently applied")
