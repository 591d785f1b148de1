"""``aliquot restore --boot``: ask again for what was asked last of each GPU, once the driver is there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.cli.framework import desired_args, output, streams
from aliquot.cli.framework import error_output as failure
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.apply_plan import PlanExecution, execute
from aliquot.cli.framework.parser import Args
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Blocker, Plan, Policy
from aliquot.errors import (
    AliquotError,
    BlockedError,
    HardwareError,
    NoDriverError,
    StorageError,
    UsageError,
)

if TYPE_CHECKING:
    from aliquot.core.config.boot_record import RecordedRequest
    from aliquot.node.connect import Connection

POLL_S = 0.5
GONE_S = 10.0
"""How long a GPU may be missing once the driver answers: a GPU that was taken out must not hold the boot up."""

_WELL = (0, 10)
"""Exit codes of an apply that did what it could."""

LATE = ("NO_VGPU_DRIVER",)
"""Rules that a machine may break only because it is still starting."""

STARTING_S = 900.0
"""How long after its start a machine may still load the vGPU driver, or find a GPU: servers with many GPUs take minutes
to get so far.
"""


class _Found(msgspec.Struct, frozen=True):
    """What the node can be given back: a plan for the GPUs that can have it, and why others cannot."""

    plan: Plan
    inventory: Inventory
    left_out: tuple[Blocker, ...]


def run(args: Args) -> int:
    """Exit codes as apply; 20 also where some GPU's wish could not be asked: the others have theirs."""
    from aliquot.hardware.state.boot_record_file import boot_record_file

    policy = desired_args.policy(args)
    if not 0 <= float(args.wait) < float("inf"):
        raise UsageError("--wait takes seconds, 0 or more", next_step=f"{args.prog} --help")
    record = boot_record_file(args.node)
    requests = record.load()
    if not requests and record.unreadable is not None:
        raise StorageError(
            f"the boot record {record.unreadable.path} cannot be understood: {record.unreadable.why}",
            next_step="apply the configuration again, which writes a new record",
        )
    if not requests:
        output.emit(output.build("Outcome", status="nothing", notes=()), args.output, "nothing is recorded to restore")
        return 0
    _wait_until_ready(args, requests, policy)
    with node.connected(args) as connection:
        found = _plan_recorded(connection.backend.read(), requests, policy)
        code = 0
        if found.plan.desired.gpus:
            code = execute(PlanExecution(connection, found.plan, found.inventory), args)
            if code not in _WELL and code <= 128 and len(found.plan.desired.gpus) > 1:
                code = _one_by_one(connection, found.plan, args)
    if found.left_out and code in _WELL:
        raise _left_out(found.left_out, len(requests))
    return code


def _one_by_one(connection: Connection, failed: Plan, args: Args) -> int:
    """A failure on one GPU leads all of them back to what they were after the boot, without what their machines need:
    each is asked alone then. One report for each; the exit code is that of the first that failed.
    """
    from aliquot.core.planner.plan import plan

    streams.note("a failure took everything back: the GPUs are restored one by one now")
    codes = []
    for each in failed.desired.gpus:
        try:
            inventory = connection.backend.read()
            made = plan(inventory, msgspec.structs.replace(failed.desired, gpus=(each,)), failed.policy)
            codes.append(execute(PlanExecution(connection, made, inventory, agreed=True), args))
        except AliquotError as error:
            failure.report(error, args.output, args.typed_node)
            codes.append(error.exit_code)
    return next((code for code in codes if code not in _WELL), max(codes))


def _wait_until_ready(args: Args, requests: Sequence[RecordedRequest], policy: Policy) -> None:
    """Waits, no longer than asked, until the driver answers and, while the machine is starting, until it has the vGPU
    manager and every recorded GPU: later these do not come by themselves. Raises NoDriverError.
    """
    start = time.monotonic()
    deadline = start + float(args.wait)
    grace: float | None = None
    reported = ""
    while True:
        why = ""
        try:
            with node.connected(args) as connection:
                found = _plan_recorded(connection.backend.read(), requests, policy)
        except (NoDriverError, HardwareError) as error:
            if time.monotonic() >= deadline:
                raise
            why = error.brief
        else:
            grace = grace or min(deadline, time.monotonic() + GONE_S)
            late = [b for b in found.left_out if b.rule in LATE]
            gone = [b for b in found.left_out if b.rule == "NO_SUCH_GPU" and time.monotonic() < grace]
            if not (late or gone) or time.monotonic() >= deadline or uptime() >= STARTING_S:
                return
            why = (late or gone)[0].message
        if why != reported:
            skip = " (Ctrl-C, or --wait 0, does not wait)" if streams.watched() else ""
            streams.note(f"waiting, {max(0.0, deadline - time.monotonic()):.0f} s at most: {why}{skip}")
            reported = why
        time.sleep(POLL_S)


def uptime() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _plan_recorded(inventory: Inventory, requests: Sequence[RecordedRequest], policy: Policy) -> _Found:
    """The recorded wishes planned. One GPU that cannot have its own does not keep the others from theirs."""
    from aliquot.core.config.boot_record import replay
    from aliquot.core.planner.plan import plan

    desired, gone = replay(requests, inventory)
    left = [Blocker(rule=f.rule, message=f.message, gpu=f.pci, next_step=f.next_step) for f in gone]
    made = plan(inventory, desired, policy)
    while made.blocked:
        blocked = {b.gpu for b in made.blockers}
        rest = tuple(w for w in desired.gpus if w.pci not in blocked)
        left += made.blockers
        if len(rest) == len(desired.gpus):
            rest = ()
        desired = msgspec.structs.replace(desired, gpus=rest)
        made = plan(inventory, desired, policy)
    return _Found(made, inventory, tuple(left))


def _left_out(blockers: Sequence[Blocker], count: int) -> BlockedError:
    gpus = len({b.gpu for b in blockers})
    lines = [f"{b.rule}: {b.message}" + "".join(f"; held by {h}" for h in b.holders) for b in blockers]
    error = BlockedError(
        f"{gpus} of {count} recorded wishes could not be restored",
        details=tuple(lines),
        next_step=blockers[0].next_step or "aliquot show",
    )
    error.code = blockers[0].rule
    return error
