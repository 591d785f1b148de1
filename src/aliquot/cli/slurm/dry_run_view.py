"""``aliquot slurm apply --dry-run``, as text and as a document, and the question before the change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aliquot.cli.framework import output
from aliquot.cli.framework.parser import Args

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.slurm.node.context import World
    from aliquot.slurm.node.dry_run import Preview
    from aliquot.slurm.node.request import Change


def told(args: Args, change: Change, world: World, inventory: Inventory) -> int:
    """Print what would be done; 0. Raises AliquotError where it would be refused."""
    from aliquot.cli.framework import color as colour
    from aliquot.slurm.node.dry_run import preview

    found = preview(change, world)
    text = _text(found, inventory, colour.wanted())
    output.emit(output.made("SlurmPreview", **output.document(found)), args.output, text)
    return 0


def asks(args: Args) -> bool:
    """Return whether a person is asked before the change: one at a terminal is, without ``--yes``."""
    from aliquot.cli.framework import confirmation

    return not (args.dry_run or args.yes) and confirmation.asked()


def agreed(args: Args, found: Preview, inventory: Inventory) -> bool:
    """Return whether to go on: a person is shown what would be done, and asked."""
    from aliquot.cli.framework import confirmation

    return found.status == "nothing" or confirmation.confirmed(args, lambda color: _text(found, inventory, color))


def declined(args: Args, name: str) -> int:
    """Report that the person answered no; the exit code."""
    from aliquot.cli.framework import confirmation

    output.emit(output.made("SlurmOutcome", name=name, status="declined"), args.output, confirmation.DECLINED)
    return confirmation.DECLINED_EXIT


def _text(found: Preview, inventory: Inventory, color: bool) -> str:
    from aliquot.cli.framework.views import plan_view as planview

    if found.status == "nothing":
        return f"nothing to do: {found.name} has {found.gres or 'no GRES'}"
    lines = [f"{found.name}: {found.has or 'no GRES'} would be {found.gres}"]
    if found.plan is not None and found.plan.changes:
        lines.append(planview.text(found.plan, inventory, color))
    lines += found.files
    lines.append(f"steps    {' '.join(found.steps)}")
    lines += [f"waits for {job}, or is refused: --jobs" for job in found.jobs]
    lines += [f"note     {note}" for note in found.notes]
    return "\n".join(lines)
