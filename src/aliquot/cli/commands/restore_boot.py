"""``aliquot restore --boot``: apply the last request for each GPU again, as soon as the driver answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.cli.commands.apply_plan import PlanExecution, execute
from aliquot.cli.framework import desired_args, output, streams
from aliquot.cli.framework import error_output as failure
from aliquot.cli.framework import target_node as node
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
"""How long a GPU may be missing after the driver answers: a GPU that was removed must not delay the boot."""

_WELL = (0, 10)
"""Exit codes of a successful apply."""

LATE = ("NO_VGPU_DRIVER",)
"""Rules that a host may break only because it is still starting."""

STARTING_S = 900.0
"""How long after its start a host may still load the vGPU driver, or find a GPU: large servers take minutes."""


class _Found(msgspec.Struct, frozen=True):
    """A plan for the GPUs that can be restored, and the reasons why others cannot."""

    plan: Plan
    inventory: Inventory
    left_out: tuple[Blocker, ...]


def run(args: Args) -> int:
    """Restore the recorded requests. Exits as apply does, or with 20 if only some GPUs could be restored."""
    from aliquot.hardware.state.boot_record_file import boot_record_file

    policy = desired_args.policy(args)
    if not 0 <= float(args.wait) < float("inf"):
        raise UsageError("--wait takes seconds, 0 or more", next_step=f"{args.prog} --help")
    record = boot_record_file(args.sim)
    requests = record.load()
    if not requests and record.unreadable is not None:
        raise StorageError(
            f"cannot parse the boot record {record.unreadable.path}: {record.unreadable.why}",
            next_step="apply the configuration again, which writes a new record",
        )
    if not requests:
        output.emit(output.build("Outcome", status="nothing", notes=()), args.output, "nothing is recorded to restore")
        streams.note("next     aliquot apply --help")
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
    """Restore each GPU alone, after a failure on one GPU rolled back all of them to their state after the boot.

    Prints a report for each GPU. The exit code is that of the first that failed.
    """
    from aliquot.core.planner.plan import plan

    streams.note("a failure rolled everything back: restoring the GPUs one by one")
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
    """Wait for the driver, at most ``--wait`` seconds. Raises NoDriverError.

    While the host is starting, also wait for the vGPU manager and every recorded GPU. Later these do not appear
    without help.
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
            skip = " (to skip: Ctrl-C, or --wait 0)" if streams.watched() else ""
            streams.note(f"waiting, {max(0.0, deadline - time.monotonic()):.0f} s at most: {why}{skip}")
            reported = why
        time.sleep(POLL_S)


def uptime() -> float:
    """Return the seconds since the host was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _plan_recorded(inventory: Inventory, requests: Sequence[RecordedRequest], policy: Policy) -> _Found:
    """Plan the recorded requests. A GPU that cannot be restored does not block the others."""
    from aliquot.core.config.boot_record import replay
    from aliquot.core.planner.plan import plan

    desired, gone = replay(requests, inventory)
    left = [Blocker(rule=f.rule, text=f.text, gpu=f.pci, step=f.step) for f in gone]
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
    return BlockedError(
        f"cannot restore {gpus} of {count} recorded requests",
        code=blockers[0].rule,
        details=tuple(lines),
        next_step=blockers[0].next_step or "aliquot show",
    )
