"""Output of ``aliquot slurm apply --dry-run``, as text and as a document, and the confirmation of a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aliquot.cli.framework import output
from aliquot.cli.framework.parser import Args

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.slurm.node.context import SlurmChangeContext
    from aliquot.slurm.node.dry_run import SlurmPreview
    from aliquot.slurm.node.request import SlurmChange


def emit_preview(args: Args, change: SlurmChange, context: SlurmChangeContext, inventory: Inventory) -> int:
    """Print the preview and return 0. Raises AliquotError if the change would be refused."""
    from aliquot.cli.framework import color as colors
    from aliquot.slurm.node.dry_run import preview

    found = preview(change, context)
    text = _text(found, inventory, colors.wanted())
    output.emit(output.build("SlurmPreview", **output.document(found)), args.output, text)
    return 0


def needs_confirmation(args: Args) -> bool:
    """Report whether the user must confirm the change: at a terminal, without ``--yes``."""
    from aliquot.cli.framework import confirmation

    return not (args.dry_run or args.yes) and confirmation.is_interactive()


def agreed(args: Args, found: SlurmPreview, inventory: Inventory) -> bool:
    """Show the preview, ask the user, and return whether to continue."""
    from aliquot.cli.framework import confirmation

    return found.status == "nothing" or confirmation.confirmed(args, lambda color: _text(found, inventory, color))


def declined(args: Args, name: str) -> int:
    """Report that the user declined, and return the exit code."""
    from aliquot.cli.framework import confirmation

    output.emit(output.build("SlurmOutcome", name=name, status="declined"), args.output, confirmation.DECLINED)
    return confirmation.DECLINED_EXIT


def _text(found: SlurmPreview, inventory: Inventory, color: bool) -> str:
    from aliquot.cli.framework.views import plan_view as plan_views

    if found.status == "nothing":
        return f"nothing to do: {found.name} has {found.gres or 'no GRES'}"
    lines = [f"{found.name}: {found.current_gres or 'no GRES'} would be {found.gres}"]
    if found.plan is not None and found.plan.changes:
        lines.append(plan_views.text(found.plan, inventory, color))
    lines += found.files
    lines.append(f"steps    {' '.join(found.steps)}")
    lines += [f"waits for {job}, or is refused: --jobs" for job in found.jobs]
    lines += [f"note     {note}" for note in found.notes]
    return "\n".join(lines)
