"""``aliquot slurm apply --dry-run``, as text and as a document."""

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
    from aliquot.slurm.node.dry_run import preview

    found = preview(change, world)
    output.emit(output.made("SlurmPreview", **output.document(found)), args.output, _text(found, inventory))
    return 0


def _text(found: Preview, inventory: Inventory) -> str:
    from aliquot.cli.framework import color as colour
    from aliquot.cli.framework.views import plan_view as planview

    if found.status == "nothing":
        return f"nothing to do: {found.name} has {found.gres or 'no GRES'}"
    lines = [f"{found.name}: {found.has or 'no GRES'} would be {found.gres}"]
    if found.plan is not None and found.plan.changes:
        lines.append(planview.text(found.plan, inventory, colour.wanted()))
    lines += found.files
    lines.append(f"steps    {' '.join(found.steps)}")
    lines += [f"waits for {job}, or is refused: --jobs" for job in found.jobs]
    lines += [f"note     {note}" for note in found.notes]
    return "\n".join(lines)
